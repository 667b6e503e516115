"""Draws the pictures of docs/data-model.md from the models: `make docs`.

A picture shows the tables that its marker names, and each foreign key between two of them.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "data-model.md"
KEYS = {"ForeignKey": "}o--||", "OneToOneField": "|o--||"}
_PICTURE = re.compile(r"<!-- tables: ([\w ,]+) -->\n.*?<!-- end of tables -->", re.DOTALL)
_SENTENCE = re.compile(r".*?[.:](?= |$)")


class UnknownTable(Exception):
    """A picture names a table that no model has."""


@dataclass(frozen=True, slots=True)
class Table:
    """A model: what it is, its app, and the models that its keys lead to, by field."""

    name: str
    app: str
    does: str
    keys: tuple[tuple[str, str, str], ...]


def model_page_drawn(text: str) -> str:
    """The page with each picture, and the table below it, drawn anew."""
    return _PICTURE.sub(lambda found: _picture(found[1]), text)


def _picture(named: str) -> str:
    tables = [_table(name.strip()) for name in named.split(",")]
    shown = {table.name for table in tables}
    lines = [f"<!-- tables: {named} -->", "", "```mermaid", "erDiagram"]
    joined: set[str] = set()
    for table in tables:
        for field, target, key in table.keys:
            if target in shown and target != table.name:
                lines.append(f"  {table.name} {KEYS[key]} {target} : {field}")
                joined |= {table.name, target}
    lines += [f"  {name}" for name in sorted(shown - joined)]
    rows = [f"| `{table.app}_{table.name.lower()}` | {table.does} |" for table in tables]
    return "\n".join(
        [*lines, "```", "", "| Table | One row is |", "| --- | --- |", *rows, "", "<!-- end of tables -->"]
    )


def _table(name: str) -> Table:
    try:
        return _tables()[name]
    except KeyError:
        raise UnknownTable(name) from None


@cache
def _tables() -> dict[str, Table]:
    files = [
        file
        for app in ("tenants", "billing", "allocation")
        for file in sorted((ROOT / app).rglob("*.py"))
        if "models" in file.relative_to(ROOT).as_posix() and "migrations" not in file.parts
    ]
    return {
        table.name: table
        for file in files
        for table in _of_file(file.read_text(encoding="utf-8"), file.relative_to(ROOT).parts[0])
    }


def _of_file(text: str, app: str) -> Iterator[Table]:
    for each in ast.parse(text).body:
        if isinstance(each, ast.ClassDef) and (said := ast.get_docstring(each)):
            yield Table(each.name, app, _first_sentence(said), tuple(_keys(each)))


def _first_sentence(said: str) -> str:
    found = _SENTENCE.match(" ".join(said.split()))
    return (found[0] if found else said).rstrip(":.") + "."


def _keys(of: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    for line in of.body:
        if not (isinstance(line, ast.Assign) and isinstance(line.value, ast.Call)):
            continue
        call, (field,) = line.value, line.targets
        kind = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if kind in KEYS and call.args and isinstance(field, ast.Name):
            yield field.id, _target(call.args[0], of.name), kind


def _target(named: ast.expr, own: str) -> str:
    """The model that a key names: a class, a text as `"app.Model"`, or the user's setting."""
    text = named.value if isinstance(named, ast.Constant) else ast.unparse(named)
    if text == "self":
        return own
    return "User" if text == "settings.AUTH_USER_MODEL" else str(text).rpartition(".")[2]


def main() -> None:
    """Draws the page anew."""
    PAGE.write_text(model_page_drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
