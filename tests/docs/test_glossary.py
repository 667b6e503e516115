"""The glossary has the terms by which the solver's rooms and public classes are named."""

import inspect
import re

import solver
from tests.docs.pages import ROOT

# The grammar of names: questions, answers, and what a thing is used for.
GRAMMAR = {"answer", "ask", "availability", "block", "extend", "gpu", "kept", "last"}
GRAMMAR |= {"parts", "person", "planned", "start", "use", "used", "state", "waiting"}
CAMEL = re.compile(r"[A-Z][a-z]+")


def rows() -> list[tuple[str, str]]:
    """The terms with their sentences."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    return [(term, said) for term, said in found if term not in ("Term", "---")]


def basic(word: str) -> str:
    """The word without the ending of a noun or a verb."""
    return re.sub(r"(ations?|ments?|ings?|als?|ed|e|s)$", "", word.lower())


def test_each_term_of_the_solver_s_names_stands_in_the_glossary() -> None:
    known = {basic(word) for term, _ in rows() for word in re.split(r"[ -]", term)}
    classes = [name for name, value in vars(solver).items() if inspect.isclass(value)]
    rooms = [path.name for path in (ROOT / "solver").iterdir() if (path / "__init__.py").exists()]
    words = {word.lower() for name in classes for word in CAMEL.findall(name)} | set(rooms)
    assert sorted(word for word in words - GRAMMAR if basic(word) not in known) == []


def test_the_glossary_is_in_order_with_one_sentence_each() -> None:
    names = [term.lower() for term, _ in rows()]
    assert len(names) >= 30
    assert names == sorted(names)
    assert [said for _, said in rows() if not said.rstrip().endswith(".") or ". " in said] == []
