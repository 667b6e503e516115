"""When each GPU of a class is next taken, seen from a few instants that are asked about often."""

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.pool import Bools, Index
from allocation.solver.timeline.step_function import StepFunction

_MOST_INSTANTS = 32
_FIRST_ROWS = 64
_NEVER = np.iinfo(np.int64).max

Run = slice | Index
"""Columns: adjacent ones, or some, each once."""


class NextTaken:
    """For each instant and column, the first second from the instant on at which a bit is taken.

    A search that asks about one start and many durations reads one row instead of all stretches of
    each window. What is added later is followed; columns of which something is removed are read
    again before the next answer.
    """

    def __init__(self, steps: StepFunction) -> None:
        """`steps` has the taken bits: (stretches, columns)."""
        self._steps = steps
        self._row: dict[int, int] = {}
        self._instants: Ints = np.zeros(0, dtype=np.int64)
        self._next: Ints = np.zeros((0, steps.values.shape[1]), dtype=np.int64)
        self._stale: Bools = np.zeros(steps.values.shape[1], dtype=np.bool_)
        self._is_stale = False

    def after(self, instant: int) -> Ints:
        """The second for each column; the largest integer for those that are never taken."""
        if self._is_stale:
            columns = np.flatnonzero(self._stale)
            self._next[:, columns] = self._read(self._instants, columns)
            self._stale[columns] = False
            self._is_stale = False
        if instant not in self._row:
            self._add_row(instant)
        found: Ints = self._next[self._row[instant]]
        return found

    def add(self, columns: Run, starts: int, ends: int) -> None:
        """The columns are taken in [starts, ends), too."""
        if self._row:
            since = np.maximum(self._instants, starts)
            since[self._instants >= ends] = _NEVER
            self._next[:, columns] = np.minimum(self._next[:, columns], since[:, None])

    def remove(self, columns: Run, starts: int) -> None:
        """Something of the columns that was taken from `starts` on has become free."""
        if self._row and np.maximum.reduce(self._next[:, columns], axis=None, initial=0) >= starts:
            self._stale[columns] = True
            self._is_stale = True

    def _add_row(self, instant: int) -> None:
        if len(self._row) == _MOST_INSTANTS:
            self._row.clear()
            self._instants, self._next = self._instants[:0], self._next[:0]
        self._row[instant] = len(self._row)
        alone = np.array([instant], dtype=np.int64)
        self._instants = np.append(self._instants, alone)
        self._next = np.vstack([self._next, self._read_one(instant)])

    def _read_one(self, instant: int) -> Ints:
        """The same for all columns and one instant, as far ahead as some are not taken yet."""
        steps = self._steps
        at = int(steps.times.searchsorted(instant, side="right")) - 1
        found: Ints = np.full(steps.values.shape[1], _NEVER, dtype=np.int64)
        open_ones, size = np.arange(len(found)), _FIRST_ROWS
        while at < len(steps.times) and len(open_ones):
            taken = steps.values[at : at + size][:, open_ones] != 0
            first = taken.argmax(axis=0)
            is_taken = taken[first, np.arange(len(open_ones))]
            found[open_ones[is_taken]] = steps.times[at + first[is_taken]]
            open_ones = open_ones[~is_taken]
            at, size = at + size, 2 * size
        return np.maximum(found, instant)

    def _read(self, instants: Ints, columns: Index) -> Ints:
        steps = self._steps
        first = steps.times.searchsorted(instants, side="right") - 1
        low = int(first.min())
        taken = steps.values[low:, columns] != 0
        times = np.where(taken, steps.times[low:, None], _NEVER)
        following = np.minimum.accumulate(times[::-1], axis=0)[::-1]
        found: Ints = np.maximum(following[first - low], instants[:, None])
        return found
