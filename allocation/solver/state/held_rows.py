"""Rows of held work in the order of their ids, with their numbers as arrays."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.pool import Index


class Kind(NamedTuple):
    """What decides how held work uses quota."""

    quota_owners: tuple[str, ...]
    owner: str
    tier: str
    gpu_class: str


class Row(Protocol):
    """Units of a kind in a window. `row` is the id of its first held row."""

    @property
    def row(self) -> str:
        """The id that orders it."""

    @property
    def kind(self) -> Kind:
        """Its kind."""

    @property
    def units(self) -> int:
        """Its units."""

    @property
    def starts(self) -> int:
        """Begin of its window."""

    @property
    def ends(self) -> int:
        """End of its window."""


R = TypeVar("R", bound=Row)


class Table(NamedTuple):
    """Windows with units and the number of their kind, as arrays. Each kind has a row."""

    kinds: tuple[Kind, ...]
    kind: Index
    units: Ints
    starts: Ints
    ends: Ints

    def of_class(self, gpu_class: str) -> Index:
        """The positions of the rows of a class."""
        mine = np.array([kind.gpu_class == gpu_class for kind in self.kinds], dtype=np.bool_)
        return np.flatnonzero(mine[self.kind]) if len(mine) else self.kind


class Series(Generic[R]):
    """Rows in the order of their ids."""

    def __init__(self) -> None:
        """No rows."""
        self.rows: list[R] = []
        self.table = Table((), *np.zeros((4, 0), dtype=np.int64))
        self._ids: list[str] = []
        self._kinds: dict[Kind, int] = {}

    def join(self, rows: Iterable[R]) -> None:
        """Use these rows instead."""
        self.rows = sorted(rows, key=lambda row: row.row)
        self._ids = [row.row for row in self.rows]
        self._kinds = {}
        self._set(self._numbers(self.rows))

    def splice(self, gone: Iterable[R], new: Iterable[R]) -> None:
        """Remove some rows and add others, which equals joining the result."""
        out = sorted(bisect_left(self._ids, row.row) for row in gone)
        for at in reversed(out):
            del self.rows[at], self._ids[at]
        more = sorted(new, key=lambda row: row.row)
        places = [bisect_left(self._ids, row.row) for row in more]
        for at, row in zip(reversed(places), reversed(more), strict=True):
            self.rows.insert(at, row)
            self._ids.insert(at, row.row)
        left = np.delete(np.stack(self.table[1:]), out, axis=1)
        numbers = np.insert(left, places, self._numbers(more), axis=1)
        if np.bincount(numbers[0], minlength=len(self._kinds)).all():
            self._set(numbers)
        else:
            # A kind has no row any more.
            self.join(self.rows)

    def is_same(self, other: "Series[R]") -> bool:
        """True when both have the same numbers, whatever the order of their kinds."""
        mine, its = self.table, other.table
        return [mine.kinds[at] for at in mine.kind] == [its.kinds[at] for at in its.kind] and all(
            np.array_equal(one, two) for one, two in zip(mine[2:], its[2:], strict=True)
        )

    def _numbers(self, rows: Sequence[R]) -> Ints:
        kinds = self._kinds
        found = [
            (kinds.setdefault(row.kind, len(kinds)), row.units, row.starts, row.ends)
            for row in rows
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 4).T

    def _set(self, numbers: Ints) -> None:
        self.table = Table(tuple(self._kinds), *numbers)
