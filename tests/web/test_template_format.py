"""Templates are formatted as code is: by djlint, on lines that fit a screen."""

from pathlib import Path

from djlint.reformat import formatter
from djlint.settings import Config

from allocation.rules.states import State
from allocation.web.parts.state_pills import PILLS

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
LONGEST = 120


def test_no_line_of_a_template_is_wider_than_a_screen() -> None:
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEMPLATES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > LONGEST
    ]
    assert wide == []


def test_every_template_is_formatted_by_djlint() -> None:
    config = Config(str(ROOT / "templates"))
    assert config.max_line_length == LONGEST
    texts = {path: path.read_text(encoding="utf-8") for path in TEMPLATES}
    unlike = [path for path, text in texts.items() if formatter(config, text) != text]
    assert [str(path.relative_to(ROOT)) for path in unlike] == []


def test_every_state_has_a_pill() -> None:
    assert set(PILLS) == set(State)
