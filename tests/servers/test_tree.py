"""What no linter says about the tree."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.servers import ROOT

PACKAGES = ("portal", "tenants", "billing", "allocation", "gpu_client", "tests")
LINES_MAX = 500
MODULES_MAX = 15
# Each of them is where a library has no types. The list may only get shorter.
TYPES_IGNORED = {"allocation/consumers.py": 1, "tenants/api/auth.py": 1}
CATCH_ALL_NAMES = {"utils", "helpers", "common", "misc"}


def sources() -> list[Path]:
    return [
        path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
    ]


def test_no_file_is_longer_than_a_reader_holds_in_mind() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if (lines := path.read_text(encoding="utf-8").count("\n")) > LINES_MAX
    }
    assert long == {}


def test_no_folder_of_the_product_has_more_modules_than_a_reader_looks_through() -> None:
    modules = Counter(
        path.parent.relative_to(ROOT)
        for path in sources()
        if path.name != "__init__.py" and ROOT / "tests" not in path.parents
    )
    assert {str(folder): n for folder, n in modules.items() if n > MODULES_MAX} == {}


def test_no_module_is_named_for_having_no_subject() -> None:
    assert [path for path in sources() if path.stem in CATCH_ALL_NAMES] == []


def test_types_of_product_code_are_checked_everywhere() -> None:
    ignored = {
        str(path.relative_to(ROOT)): count
        for path in sources()
        if (count := path.read_text(encoding="utf-8").count("# type: ignore"))
        and ROOT / "tests" not in path.parents
    }
    assert ignored == TYPES_IGNORED
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (untyped,) = settings["tool"]["mypy"]["overrides"]
    assert untyped.keys() == {"module", "ignore_missing_imports"}
    assert sum(ignored.values()) + 1 <= 3


def test_allocation_can_be_imported_without_django() -> None:
    assert (ROOT / "allocation" / "__init__.py").read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-test.lock"])
def test_every_locked_package_has_a_hash(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[a-z0-9])", text)
    assert len(blocks) > 20
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_what_tests_install_holds_what_the_portal_runs_on() -> None:
    """Or the tests would prove another set of packages than the one that runs."""
    pin = re.compile(r"^([a-z0-9._-]+(?:\[[^]]+\])?==\S+)", re.MULTILINE)
    runtime, testing = (
        set(pin.findall((ROOT / name).read_text(encoding="utf-8")))
        for name in ("requirements.lock", "requirements-test.lock")
    )
    assert runtime - testing == set()
