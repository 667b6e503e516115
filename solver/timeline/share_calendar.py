"""Owners of shares over time: by default a GPU is shared by one owner at a time."""

from collections.abc import Collection, Iterable

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools, Pool
from solver.model.inputs import Place

Window = tuple[int, int]
_Row = tuple[int, int, int, int]


class IntervalTable:
    """Rows of one class as a table: column of the GPU, owner number, begin and end."""

    def __init__(self) -> None:
        self._values: Ints = np.zeros((4, 16), dtype=np.int64)
        self._keys: list[_Row] = []
        self._at: dict[_Row, int] = {}
        self._times: dict[_Row, int] = {}

    def copy(self) -> "IntervalTable":
        twin = IntervalTable()
        twin._values, twin._keys = self._values.copy(), self._keys.copy()
        twin._at, twin._times = self._at.copy(), self._times.copy()
        return twin

    def add(self, row: _Row) -> None:
        """Count the row once more."""
        self._times[row] = self._times.get(row, 0) + 1
        if row in self._at:
            return
        size = self._at[row] = len(self._keys)
        self._keys.append(row)
        if size == self._values.shape[1]:
            self._values = np.concatenate([self._values, self._values], axis=1)
        self._values[:, size] = row

    def remove(self, row: _Row) -> None:
        """Count the row once less. KeyError: there is none."""
        self._times[row] -= 1
        if self._times[row]:
            return
        del self._times[row]
        at, last = self._at.pop(row), self._keys.pop()
        if last != row:
            self._keys[at], self._at[last] = last, at
            self._values[:, at] = last

    @property
    def table(self) -> Ints:
        """All rows: columns, owners, begins and ends, each an array."""
        return self._values[:, : len(self._keys)]

    def others(self, owner: int, starts: Ints, duration: int) -> tuple[Ints, Bools]:
        """Columns of other owners' rows, and windows × rows: True where the row overlaps the
        window."""
        columns, owners, since, until = self.table
        at = np.flatnonzero(owners != owner)
        early = since[at] < (starts + duration)[:, None]
        return columns[at], early & (starts[:, None] < until[at])


class ShareCalendar:
    """Shares by GPU. Without `alone` all owners may share, and nothing is recorded."""

    def __init__(self, pools: Collection[Pool], *, alone: bool) -> None:
        self._alone = alone
        self._pool_of = {gpu.id: pool for pool in pools for gpu in pool.gpus}
        self._rows = {pool.gpu_class: IntervalTable() for pool in pools}
        self._numbers: dict[str, int] = {}

    def copy(self) -> "ShareCalendar":
        twin = ShareCalendar((), alone=self._alone)
        twin._pool_of, twin._numbers = self._pool_of, self._numbers
        twin._rows = {name: rows.copy() for name, rows in self._rows.items()}
        return twin

    def add(self, places: Iterable[Place], owner: str, window: Window, sign: int = 1) -> None:
        """Give the owner those places that are shares; `sign` -1 takes them back."""
        for place in places if self._alone else ():
            if place.share is not None:
                pool = self._pool_of[place.gpu]
                rows = self._rows[pool.gpu_class]
                row = (pool.column[place.gpu], self._number(owner), *window)
                (rows.add if sign > 0 else rows.remove)(row)

    def is_free(self, places: Iterable[Place], owner: str, window: Window) -> bool:
        """True when no other owner has a share of the same GPUs in the window."""
        for place in places:
            if place.share is not None:
                starts = np.array([window[0]], dtype=np.int64)
                pool = self._pool_of[place.gpu]
                others = self.others(pool, owner, (starts, window[1] - window[0]))
                if others[0, pool.column[place.gpu]]:
                    return False
        return True

    def others(self, pool: Pool, owner: str, windows: tuple[Ints, int]) -> Bools:
        """Columns of which other owners have shares at some instant of each window."""
        found: Bools = np.zeros((len(windows[0]), len(pool)), dtype=np.bool_)
        rows = self._rows.get(pool.gpu_class)
        if rows is not None:
            columns, touched = rows.others(self._number(owner), *windows)
            if len(columns):
                which, at = touched.nonzero()
                found[which, columns[at]] = True
        return found

    def _number(self, owner: str) -> int:
        return self._numbers.setdefault(owner, len(self._numbers))
