"""What no linter says about the tree."""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.servers import ROOT

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
LINES_MAX = 500
CLASS_LINES_MAX = 250
# Longer ones, by file and name. A class that is shortened leaves the list; none may be added.
LONG_CLASSES = {
    # Two tables.
    ("allocation/models/bookings.py", "Booking"),
    ("allocation/models/fleet/hardware.py", "Node"),
    ("solver/cycle/walk.py", "Walk"),
    ("solver/quota/quota.py", "Quota"),
}
ATTRIBUTES_MAX = 12
# Classes with more attributes that change, and how many they have: the numbers may only fall.
CHANGEABLE = {
    ("agent/kubernetes/mirror.py", "Mirror"): 14,
    ("agent/process.py", "Agent"): 23,
    ("agent/slurm/cluster.py", "SlurmCluster"): 13,
    # Sums of one noun.
    ("allocation/features/insights/figures.py", "Figures"): 30,
    ("allocation/features/policy_lab/plays/play.py", "Play"): 20,
    # Parts of a request line, each found at another place.
    ("allocation/rules/ask/when/when_parts.py", "When"): 16,
    ("allocation/services/inbox/consumer.py", "Reader"): 18,
    ("allocation/web/timeline/elements.py", "Row"): 18,
    ("devtools/demo/nodes.py", "DemoNode"): 15,
    ("devtools/simulation/metrics.py", "SimulationMetrics"): 14,
    ("solver/cycle/order/queue.py", "BookingQueue"): 16,
    ("solver/cycle/outcome.py", "Outcome"): 17,
    ("solver/cycle/walk.py", "Walk"): 24,
    ("solver/fleet/pool.py", "Columns"): 17,
    ("solver/fleet/pool.py", "Pool"): 22,
    ("solver/preemption/in_place.py", "InPlace"): 13,
    ("solver/state/held_space.py", "HeldSpace"): 18,
    ("solver/state/held_work.py", "HeldWork"): 20,
    ("solver/state/running.py", "RunningBookings"): 13,
}
MODULES_MAX = 15
# A feature has all layers of its noun in one folder.
FEATURE_MODULES_MAX = 20
# Each of them is where a library has no types. The list may only get shorter.
TYPES_IGNORED = {"allocation/consumers.py": 1, "tenants/api/auth.py": 1}
# Modules below so many lines that one other module imports: its readers have to open both. The
# number may only fall. Not counted: programs, and what a package, or its list of routes, models or
# tasks imports.
SMALL_LINES = 125
MOST_SMALL_MODULES = 24
LISTS = {"urls", "models", "tasks"}
_IMPORTS = re.compile(
    r"""^[ ]*from ([\w.]+) import (?:\(([^)]*)\)|([^\n#]*))|["']([\w.]+)["']""", re.MULTILINE
)
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


def test_no_class_of_the_product_has_more_lines_than_one_noun_needs() -> None:
    long = {
        (str(path.relative_to(ROOT)), node.name)
        for path in sources()
        if ROOT / "tests" not in path.parents
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef)
        and (node.end_lineno or node.lineno) - node.lineno >= CLASS_LINES_MAX
    }
    assert long == LONG_CLASSES


def attributes(node: ast.ClassDef) -> set[str]:
    """What methods of a class set on it, and its fields if it is a dataclass that is not frozen."""
    assigned = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    marks = [ast.unparse(each) for each in node.decorator_list]
    if any("dataclass" in mark and "frozen=True" not in mark for mark in marks):
        assigned |= {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
    return assigned


def test_no_class_of_the_product_has_more_attributes_that_change_than_a_reader_follows() -> None:
    many = {
        (str(path.relative_to(ROOT)), node.name): count
        for path in sources()
        if ROOT / "tests" not in path.parents
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef) and (count := len(attributes(node))) > ATTRIBUTES_MAX
    }
    assert many == CHANGEABLE


def test_no_folder_of_the_product_has_more_modules_than_a_reader_looks_through() -> None:
    modules = Counter(
        path.parent.relative_to(ROOT)
        for path in sources()
        if path.name != "__init__.py" and ROOT / "tests" not in path.parents
    )
    full = {
        str(folder): n
        for folder, n in modules.items()
        if n > (FEATURE_MODULES_MAX if folder.parent.name == "features" else MODULES_MAX)
    }
    assert full == {}


def test_small_modules_have_more_than_one_importer() -> None:
    """A file is a noun that a reader looks for, not a slice of the one module that imports it."""
    texts = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text(encoding="utf-8")
        )
        for path in sources()
        if ROOT / "tests" not in path.parents
    }
    uses: dict[str, dict[str, bool]] = {}
    for name, text in texts.items():
        for module, many, few, quoted in _IMPORTS.findall(text):
            names = [each.split()[0] for each in (many or few).split(",") if each.split()]
            named = [f"{module}.{each}" for each in names]
            for found in named or [quoted]:
                # A module, or what is in it. Settings and programs have names of modules as texts.
                at = found if found in texts else found.rpartition(".")[0]
                if at in texts and at != name:
                    uses.setdefault(at, {})[name] = bool(named)
    small = {
        name: by
        for name, by_module in sorted(uses.items())
        for by, is_import in by_module.items()
        if len(by_module) == 1
        and is_import
        and texts[name].count("\n") < SMALL_LINES
        and not _is_package(name)
        and not name.endswith(".__main__")
        and not _is_package(by)
        and by.rpartition(".")[2] not in LISTS
        and ".features." not in name  # There each module is a part that every feature has.
    }
    assert len(small) <= MOST_SMALL_MODULES, small


def _is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).is_dir()


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


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-test.lock"])
def test_every_locked_package_has_a_hash(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[a-z0-9])", text)
    assert len(blocks) > 20
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_what_tests_install_holds_what_the_portal_runs_on() -> None:
    """Or the tests would prove another set of packages, or other files of them, than what runs."""
    pin = re.compile(r"^[a-z0-9._-]+(?:\[[^]]+\])?==\S+(?: \\\n    --hash=\S+)+", re.MULTILINE)
    runtime, testing = (
        set(pin.findall((ROOT / name).read_text(encoding="utf-8")))
        for name in ("requirements.lock", "requirements-test.lock")
    )
    assert len(runtime) > 20
    assert runtime - testing == set()
