"""Templates have lines that fit a screen. `make check` compares their format with djlint's."""

from pathlib import Path

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


def test_every_state_has_a_pill() -> None:
    assert set(PILLS) == set(State)
