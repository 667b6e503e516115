"""The tests that runs take in turn: a quarter of them with each change, all of them each night.

Tests marked `turn` cost most of the time and are many of a kind. `make test` passes the id of the
commit as `--turn`, so that the same commit always runs the same tests. Without it, all of them run.
A test that the list of planted faults names runs each time.
"""

import tomllib
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

TURNS = 4
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
