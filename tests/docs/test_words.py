"""The code, the screens and the pages use the field's terms, not words of our own."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT, pages

# Each of these stood for several things. Use the term: reserve, notify, next to, rank, request,
# continue, resume, unbooked process, enforcement, maintenance, receive, suspended.
WORDS = (
    "lay",
    "lays",
    "laid",
    "lying",
    "lies",
    "told",
    "tells",
    "beside",
    "taste",
    "tastes",
    "whom",
    "goes on",
    "go on",
    "going on",
    "went on",
    "stranger",
    "strangers",
    "intruder",
    "intruders",
    "deed",
    "deeds",
    "upkeep",
    "undisturbed",
    "hear",
    "hears",
    "hearing",
    "wish",
    "wishes",
    "wished",
    "asleep",
    "those who",
    "if you like",
    "that which",
    "no room for",
    "put off",
    "puts off",
    "next in line",
    "for want of",
    "without a word",
    "lived through",
    "dearer",
    "dearest",
    "mended",
)
# The answer of a mail server, and a sentence of an old row.
ALLOWED_IN_TESTS = ("go on", "no room for")
# The parts of a phrase may be on two lines of a comment.
_WORD = re.compile(r"\b(?:" + "|".join(WORDS).replace(" ", r"[\s#]+") + r")\b", re.IGNORECASE)
# Code in backticks, link targets, names that agents of other versions exchange, and texts that are
# seeds of random numbers: another word would draw something else.
_EXEMPT = re.compile(
    r"`[^`\n]*`|\]\([^)\n]*\)|\.(?:told|deeds)\b|\b(?:told|deeds)(?:=|:)|\"told\""
    r"|\bRandom\(f\"[^\n]*\"\)"
)
CODE = (
    "portal",
    "tenants",
    "billing",
    "allocation",
    "solver",
    "agent",
    "wire",
    "gpu_client",
    "devtools",
)
SUFFIXES = {".py", ".html", ".txt", ".js", ".css", ".yml", ".json", ".conf", ".service", ".toml"}


def texts() -> Iterator[Path]:
    """Product code, templates, scripts, files for the installation, and every page."""
    for folder in (*CODE, "templates", "static", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            parts = path.relative_to(ROOT).parts
            if path.suffix in SUFFIXES and not {"migrations", "vendor"} & {*parts}:
                yield path
    yield from (ROOT / name for name in ("Makefile", "docker-compose.yml", "manage.py"))
    yield from pages()


def words_found(text: str) -> list[tuple[int, str]]:
    """The words of the list in a text, with their lines."""
    shown = _EXEMPT.sub(lambda found: " " * len(found[0]), text)
    return [(shown.count("\n", 0, each.start()) + 1, each[0]) for each in _WORD.finditer(shown)]


def test_code_screens_and_pages_use_the_terms_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in texts()
        for line, word in words_found(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_tests_use_the_terms_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "test_words.py"
        for line, word in words_found(path.read_text(encoding="utf-8"))
        if word not in ALLOWED_IN_TESTS
    ]
    assert not found, "\n".join(found)


def test_a_word_of_the_list_is_found_wherever_it_stands() -> None:
    text = "# The node is told.\n# It Goes\n# on; `told` and Notice(told=1) are names.\nwish = 1\n"
    text += 'Random(f"wishes {seed}")\n'
    assert words_found(text) == [(1, "told"), (2, "Goes\n# on"), (4, "wish")]
