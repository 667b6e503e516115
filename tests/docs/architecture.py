"""Draws what docs/architecture.md says of the code: `python -m tests.docs.architecture`.

The floors are the `layers` contracts of pyproject.toml, and what a package is for is the first line
of its docstring, so the page can't say something else than what import-linter checks. The table of
features is read from their folders.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from tests.docs.pages import ROOT, module_file

PAGE = ROOT / "docs" / "architecture.md"
APPS = ("allocation", "tenants")
TABLE = re.compile(r"^class (\w+)\((?:EndedRow|models\.Model)\)", re.MULTILINE)
PAGE_ROUTE = re.compile(r"(operator_)?form_page\(\s*\"([^\"]+)\"")
REST_ROUTE = re.compile(r"@(?:rest|ops)\.\w+\(\s*\"([^\"]+)\"")


def page_drawn(text: str) -> str:
    """The page with what stands between its markers drawn anew."""
    for name, draw in (("floors", _floors), ("features", _features)):
        begin, end = f"<!-- {name}: `make docs` writes this -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{draw()}\n{end}{rest.partition(end)[2]}"
    return text


def _features() -> str:
    rows = ["| Folder | For | Tables | Pages | REST |", "| --- | --- | --- | --- | --- |"]
    folders = [each.parent for app in APPS for each in ROOT.glob(f"{app}/features/*/__init__.py")]
    for folder in sorted(folders):
        texts = {each.stem: each.read_text(encoding="utf-8") for each in folder.glob("*.py")}
        found = (
            [(ast.get_docstring(ast.parse(texts["__init__"])) or "").partition("\n")[0]],
            [f"`{folder.parts[-3]}_{each.lower()}`" for each in TABLE.findall(texts.get("models", ""))],
            [
                f"`{'/ops' if ops else '/t/…'}/{each}`"
                for ops, each in PAGE_ROUTE.findall(texts.get("page", ""))
            ],
            [f"`{each}`" for each in dict.fromkeys(REST_ROUTE.findall(texts.get("rest", "")))],
        )
        rows.append(f"| `{folder.relative_to(ROOT)}/` | " + " | ".join(map(", ".join, found)) + " |")
    return "\n".join([*rows, ""])


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
