"""The commands of the tutorials do on the demo what the pages show."""

import json
import os
from pathlib import Path

import pytest

from tests.browser.site import Site
from tests.docs.pages import ROOT
from tests.docs.tutorials import is_shown, steps_read, steps_run

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.turn
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_commands_of_a_tutorial_print_what_it_shows(running: Site, page: Path, tmp_path: Path) -> None:
    keys = tmp_path / "demo.json"
    keys.write_text(json.dumps({"tokens": dict(running.tokens)}), encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "http://localhost:8000" in text
    steps = steps_read(text.replace("http://localhost:8000", running.url).replace("var/demo.json", str(keys)))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "100"}
    for step, printed in zip(steps, steps_run(steps, environment, tmp_path), strict=True):
        assert is_shown(step, printed), f"$ {step.command}\n{printed}"


def test_a_page_that_shows_something_else_is_found(tmp_path: Path) -> None:
    steps = steps_read(
        "```console\n$ echo one\none\n$ echo two; echo 2\ntwo\n…\n$ X=1\n$ echo 'a\n> b'\na\nc\n```\n"
    )
    found = [
        is_shown(step, printed)
        for step, printed in zip(steps, steps_run(steps, os.environ, tmp_path), strict=True)
    ]
    assert found == [True, True, True, False]
    with pytest.raises(AssertionError, match="false"):
        steps_run(steps_read("```console\n$ false\n```\n"), os.environ, tmp_path)
