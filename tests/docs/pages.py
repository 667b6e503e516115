"""The documentation as files: its pages, and what their text refers to."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "portal",
    "tenants",
    "billing",
    "allocation",
    "solver",
    "agent",
    "wire",
    "gpu_client",
    "devtools",
    "tests",
)
# A path of the repository, in a sentence or a command: `wire/`.
_PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(PACKAGES)}|docs|deploy|static|templates)/[\w*./-]*[\w*/]")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MODULE_RUN = re.compile(r"(?<!\w)python3? -m ([\w.]+)")
_MAKE = re.compile(r"(?:`|^)make ([a-z][a-z-]+)(?=`| {2}| [A-Z])", re.MULTILINE)
_COMMAND = re.compile(r"manage\.py ([a-z][a-z_]+)")
_DOTTED = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`")
# A file of tests below `tests/`, as tables name it: `faults/test_partitions.py`.
_TEST_FILE = re.compile(r"`((?!tests/)[\w/]*test_\w+\.py)`")
# A check of `manage.py check`, a setting of PostgreSQL, and a file of a backup.
_NO_NAME = re.compile(r"portal\.([EW]\d+|tenant|dump)")


def pages() -> list[Path]:
    """Every page that people read, without the changelog: it names what existed then."""
    top = [page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"]
    rooms = (*ROOT.glob("*/README.md"), ROOT / "tests/golden/README.md")
    return sorted([*top, *(ROOT / "docs").rglob("*.md"), *rooms])


def links(text: str) -> list[str]:
    """The targets of links inside the repository."""
    return [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def paths(text: str) -> list[str]:
    """The paths of the repository that a page names."""
    found = _PATH.findall(_TEST_FILE.sub("", re.sub(r"\w+://\S+", "", text)))
    return [*found, *(f"tests/{path}" for path in _TEST_FILE.findall(text) if "/" in path)]


def programs(text: str) -> list[str]:
    """The modules that a page runs with `python -m`."""
    return _MODULE_RUN.findall(text)


def make_targets(text: str) -> list[str]:
    """The targets of the Makefile that a page names."""
    return _MAKE.findall(text)


def commands(text: str) -> list[str]:
    """The commands of `manage.py` that a page names."""
    return _COMMAND.findall(text)


def names(text: str) -> list[str]:
    """The dotted Python names in backticks: `solver.cycle.solve.solve`."""
    return [name for name in _DOTTED.findall(text) if not _NO_NAME.fullmatch(name)]


def anchors(text: str) -> set[str]:
    """The addresses of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def module_file(dotted: str) -> Path | None:
    """The file of a module or package, or None."""
    path = ROOT / dotted.replace(".", "/")
    found = [each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()]
    return found[0] if found else None


def is_defined(dotted: str) -> bool:
    """Whether a module, or a function, class, method or constant in one, has this name.

    The source is parsed, not imported, so a page may name the agent's modules and Django's alike.
    """
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        file = module_file(".".join(parts[:length]))
        if file is not None:
            return _holds(ast.parse(file.read_text(encoding="utf-8")).body, parts[length:])
    return False


def _holds(body: list[ast.stmt], attributes: list[str]) -> bool:
    if not attributes:
        return True
    first, *rest = attributes
    return any(
        name == first and (not rest or (isinstance(node, ast.ClassDef) and _holds(node.body, rest)))
        for node in body
        for name in _defined(node)
    )


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
