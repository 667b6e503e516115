"""Each test that is taken in turn runs in one turn; what finds planted faults runs in all."""

import zlib
from dataclasses import dataclass, field

from tests.turns import TURNS, deselected, finders, is_due

ONE_OF_EACH = {zlib.crc32(turn.encode()) % TURNS: turn for turn in map(str, range(100))}


@dataclass(frozen=True)
class Item:
    """What is asked of a collected test."""

    name: str
    marks: frozenset[str] = field(default=frozenset({"turn"}))

    @property
    def nodeid(self) -> str:
        """Its id."""
        return f"tests/test_any.py::{self.name}"

    def get_closest_marker(self, name: str) -> str | None:
        """The mark, if it has it."""
        return name if name in self.marks else None


def test_every_test_is_due_in_exactly_one_turn() -> None:
    assert len(ONE_OF_EACH) == TURNS
    for number in range(200):
        name = f"tests/test_any.py::test_any[{number}]"
        assert sum(is_due(name, turn) for turn in ONE_OF_EACH.values()) == 1


def test_about_an_eighth_runs_and_what_finds_a_planted_fault_always_does() -> None:
    many = [Item(f"test_any[{number}]") for number in range(400)]
    others = [Item("test_plain", frozenset()), Item(f"{min(finders())}[a parameter]")]
    for turn in ONE_OF_EACH.values():
        left = deselected([*many, *others], turn)  # type: ignore[list-item]  # items of a made run
        assert 300 < len(left) < 365
        assert not {*others} & {*left}
