"""The list of small faults, as data, and their places in the source.

A fault is located by its text inside a package, and its test by the name of a function, so both may
move to other files.
"""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutations.toml")


class AmbiguousMutation(Exception):
    """A text or a test of the list is missing, or is there more than once."""


@dataclass(frozen=True)
class Mutation:
    """One fault: in the package, `find` becomes `replace`; `tests` are functions that find it."""

    about: str
    package: str
    find: str
    replace: str
    tests: tuple[str, ...]

    def file(self, root: Path = ROOT) -> Path:
        """The one file that has the text. Raises NotOnce."""
        found = [(path, text.count(self.find)) for path, text in _sources(root / self.package)]
        files = [path for path, times in found if times]
        if sum(times for _, times in found) != 1:
            raise AmbiguousMutation(f"{self.find!r} is {len(files)} times in {self.package}: {self.about}")
        return files[0]

    def node_ids(self, root: Path = ROOT) -> list[str]:
        """The names that pytest knows the tests by. Raises NotOnce."""
        return [node_id_of(name, root) for name in self.tests]


def mutations() -> list[Mutation]:
    """All of the list."""
    rows = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutation"]
    return [Mutation(**(row | {"tests": tuple(row["tests"])})) for row in rows]


def node_id_of(name: str, root: Path = ROOT) -> str:
    """The node id of a test function: `name`, or `stem::name` where two files have one of that
    name; with the id of a parameter where only that one is meant. Raises NotOnce."""
    stem, _, function = name.rpartition("::")
    function, _, parameter = function.partition("[")
    found = [node_id for node_id in _tests(root).get(function, ()) if not stem or f"/{stem}.py::" in node_id]
    if len(found) != 1:
        raise AmbiguousMutation(f"{len(found)} tests are named {name}")
    return found[0] + (f"[{parameter}" if parameter else "")


@cache
def _sources(folder: Path) -> tuple[tuple[Path, str], ...]:
    files = sorted(folder.rglob("*.py"))
    return tuple((path, path.read_text(encoding="utf-8")) for path in files)


@cache
def _tests(root: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path, text in _sources(root / "tests"):
        if path.name.startswith("test_"):
            for name, node_id in _functions(ast.parse(text), path.relative_to(root).as_posix()):
                found.setdefault(name, []).append(node_id)
    return found


def _functions(tree: ast.Module | ast.ClassDef, above: str) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        node_id = f"{above}::{getattr(node, 'name', '')}"
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, node_id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node_id
