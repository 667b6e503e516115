"""The tests that runs take in turn: an eighth of them with each change, all of them each night.

Tests marked `turn` cost most of the time and are many of a kind. `make test` passes the id of the
commit as `--turn`, so that the same commit always runs the same tests. Without it, all of them run.
A test that the list of planted faults names runs each time.

A plugin of pytest: `tests/conftest.py` loads it, and `make test-pure`, which has no conftest.
"""

import tomllib
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

TURNS = 8
FAULTS = Path(__file__).parent / "mutants" / "mutations.toml"


def finders() -> frozenset[str]:
    """The names of test functions that find a planted fault."""
    faults = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["mutation"]
    names = (name.rpartition("::")[2] for fault in faults for name in fault["tests"])
    return frozenset(name.partition("[")[0] for name in names)


def is_due(node_id: str, turn: str) -> bool:
    """True if a run with this turn takes the test."""
    return zlib.crc32(node_id.encode()) % TURNS == zlib.crc32(turn.encode()) % TURNS


def deselected(items: Iterable[pytest.Item], turn: str) -> list[pytest.Item]:
    """The tests marked `turn` that this run leaves to others."""
    always = finders()
    return [
        item
        for item in items
        if item.get_closest_marker("turn")
        and item.name.partition("[")[0] not in always
        and not is_due(item.nodeid, turn)
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses an eighth of the tests that are taken in turn."""
    parser.addoption("--turn", help="run only the tests marked `turn` that this text chooses")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are not due in this turn."""
    turn = config.getoption("turn")
    if turn:
        left = deselected(items, turn)
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
