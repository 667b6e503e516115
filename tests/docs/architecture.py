"""Draws the floors of the code for docs/architecture.md: `python -m tests.docs.architecture`.

The floors are the `layers` contracts of pyproject.toml, and what a package is for is the first line
of its docstring, so the page can't say something else than what import-linter checks.
"""

import ast
import tomllib
from collections.abc import Iterator
from typing import Any

from tests.docs.pages import ROOT, module_file

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- floors: `make docs` writes this -->", "<!-- end of floors -->"


def page_drawn(text: str) -> str:
    """The page with the floors between its markers drawn anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_floors()}\n{END}{after}"


def _floors() -> str:
    contracts = _contracts()
    drawn = [
        _drawn(container, contract["layers"], container or contract["name"])
        for contract in contracts
        if contract["type"] == "layers"
        for container in contract.get("containers", [""])
    ]
    others = [f"- {each['name']}." for each in contracts if each["type"] != "layers"]
    return "\n".join([*drawn, "Other contracts:\n", *others, ""])


def _contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


def _drawn(container: str, layers: list[str], title: str) -> str:
    floors = [rows for layer in layers if (rows := list(_rows(container, layer)))]
    width = max(len(name) for rows in floors for name, _ in rows)
    texts = ["\n".join(f"│ {name:<{width}}  {does}".rstrip() for name, does in f) for f in floors]
    return f"```text\n┌ {title}\n" + "\n├──\n".join(texts) + "\n└──\n```\n"


def _rows(container: str, layer: str) -> Iterator[tuple[str, str]]:
    """The modules of a floor with what each is for; a module in parentheses may be missing."""
    for part in layer.split("|"):
        name = part.strip().strip("()")
        file = module_file(f"{container}.{name}" if container else name)
        if file is not None:
            said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            yield name, " ".join(said.partition("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page_drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
