"""What the documentation names exists: links, paths, commands, functions."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import yaml

from allocation.rules.states import TRANSITIONS, State
from tests.docs import data_model, pages
from tests.docs.architecture import PAGE, page_drawn
from tests.docs.pages import ROOT


def _broken(find: Callable[[str], list[str]], exists: Callable[[Path, str], bool]) -> list[str]:
    return [
        f"{page.relative_to(ROOT)}: {found}"
        for page in pages.pages()
        for found in find(page.read_text(encoding="utf-8"))
        if not exists(page, found)
    ]


def _link_leads(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or anchor in pages.anchors(target.read_text(encoding="utf-8"))


def _path_exists(_: Path, path: str) -> bool:
    return any(ROOT.glob(path.rstrip("/")))


def _runs(_: Path, module: str) -> bool:
    """Whether `python -m` finds it; what we did not write is a matter of what is installed."""
    if module.partition(".")[0] not in pages.PACKAGES:
        return True
    file = pages.module_file(module)
    return file is not None and (file.name != "__init__.py" or (file.parent / "__main__.py").exists())


@cache
def _make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


@cache
def _manage_commands() -> set[str]:
    return {file.stem for file in ROOT.glob("*/management/commands/*.py")}


DJANGO_COMMANDS = {
    "check",
    "collectstatic",
    "makemigrations",
    "migrate",
    "spectacular",
}


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    assert _broken(pages.links, _link_leads) == []


def test_every_path_of_the_repository_exists() -> None:
    assert _broken(pages.paths, _path_exists) == []


def test_every_program_that_a_page_runs_exists() -> None:
    assert _broken(pages.programs, _runs) == []


def test_every_target_of_make_exists() -> None:
    assert _broken(pages.make_targets, lambda _, name: name in _make_targets()) == []


def test_every_command_of_manage_py_exists() -> None:
    known = _manage_commands() | DJANGO_COMMANDS
    assert _broken(pages.commands, lambda _, name: name in known) == []


def test_every_python_name_is_defined() -> None:
    """The life of a booking names each function on its way: a rename has to reach the page."""
    assert _broken(pages.names, lambda _, name: pages.is_defined(name)) == []


def test_the_architecture_page_shows_the_contracts() -> None:
    """`make docs` draws it anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert page_drawn(page) == page


def test_the_pictures_of_the_data_model_show_the_models() -> None:
    """`make docs` draws them anew."""
    page = data_model.PAGE.read_text(encoding="utf-8")
    assert data_model.model_page_drawn(page) == page
    assert page.count("erDiagram") == 6


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(pages.links((folder / "README.md").read_text(encoding="utf-8")))
    assert {file.name for file in folder.glob("*.md")} - listed == {"README.md"}


def test_the_life_of_a_booking_names_its_functions() -> None:
    page = ROOT / "docs" / "life-of-a-booking.md"
    assert len(set(pages.names(page.read_text(encoding="utf-8")))) > 60


def test_the_life_of_a_booking_lists_every_step_between_states_with_its_writers() -> None:
    text = (ROOT / "docs" / "life-of-a-booking.md").read_text(encoding="utf-8")
    table = text.partition("| From | To | When | Written by |")[2].partition("\n\n")[0]
    steps = []
    for row in table.splitlines()[2:]:
        cells = row.split("|")[1:5]
        sources, target, _, writers = (re.findall(r"`([\w.]+)`", cell) for cell in cells)
        steps += [(State(source), State(target[0])) for source in sources]
        known = (
            f"allocation{'' if name.startswith('features.') else '.services'}.{name}" for name in writers
        )
        assert all(map(pages.is_defined, known)), row
    assert sorted(steps) == sorted(TRANSITIONS)


def test_the_page_of_rest_names_the_lists_without_pages() -> None:
    described = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text(encoding="utf-8"))
    whole = set()
    for path, methods in described["paths"].items():
        read = methods.get("get", {})
        answer = read.get("responses", {}).get("200", {}).get("content", {}).get("application/json", {})
        shape = answer.get("schema", {})
        shape = described["components"]["schemas"].get(shape.get("$ref", "").rpartition("/")[2], shape)
        if {"items", "next"} <= shape.get("properties", {}).keys():
            names = {each["name"] for each in read.get("parameters", ())}
            whole |= set() if "limit" in names else {path.removeprefix("/api/v1/")}
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"come in one answer without `limit`\s+and\s+`cursor`:([^.]*)\.", page)
    assert set(re.findall(r"`([^`]+)`", said)) == whole


def test_the_changelog_says_nothing_twice() -> None:
    bullets = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]
    begins = [" ".join(each.split()[:7]) for each in bullets]
    assert sorted({each for each in begins if begins.count(each) > 1}) == []
