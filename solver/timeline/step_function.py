"""Step functions of time, on which all calendars are built.

Time-major arrays: a row is a stretch of time without changes, so "taken at any instant of a window"
is an OR, or a maximum, over consecutive rows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Index
from solver.timeline.grid import Grid

Run = slice | Index
"""Columns: adjacent ones, or some, each once."""


class StepFunction:
    """A step function: row i holds from times[i] until times[i + 1], the last one forever.

    The end of every window is rounded by the `grid`.
    """

    times: Ints
    """Begin of each row, rising."""
    values: npt.NDArray[Any]
    """Rows × width, or rows alone."""

    def __init__(
        self,
        grid: Grid,
        width: int | None,
        dtype: npt.DTypeLike,
        instants: Iterable[int] | Ints = (),
    ) -> None:
        """Zero from the grid's origin on, with a row for each of the `instants`; without `width`
        one number at a time."""
        self.grid, self._wide = grid, width or 0
        times = rising(as_instants(instants))
        later = times[times.searchsorted(grid.origin, "right") :]
        times = np.concatenate([np.array([grid.origin], dtype=np.int64), later])
        self._begins = times.tolist()  # bisecting a list takes a fifth of the time
        self._times = np.concatenate([times, np.empty(len(times) + 64, dtype=np.int64)])
        rows = len(self._times)
        self._values = np.zeros((rows,) if width is None else (rows, width), dtype=dtype)
        self._show()

    def copy(self) -> "StepFunction":
        twin = StepFunction.__new__(StepFunction)
        twin.grid, twin._wide = self.grid, self._wide
        # Spare rows are not copied: with large calendars that is half of the time.
        twin._times, twin._values = self.times.copy(), self.values.copy()
        twin._begins = self._begins.copy()
        twin._show()
        return twin

    def is_same(self, other: "StepFunction | None") -> bool:
        """True when both change at the same times to the same values."""
        return (
            other is not None
            and np.array_equal(self.times, other.times)
            and np.array_equal(self.values, other.values)
        )

    def widen(self) -> int:
        """Add a column of zeros; its number. Columns are created in advance, some at a time."""
        if self._wide == self._values.shape[1]:
            more = np.zeros((len(self._values), max(16, self._wide)), self._values.dtype)
            self._values = np.concatenate([self._values, more], axis=1)
            self._show()
        self._wide += 1
        return self._wide - 1

    def cut(self, starts: int, ends: int) -> slice:
        """Rows that are exactly [starts, ends), created if missing; clipped to the origin."""
        origin = self._begins[0]
        first = self._cut(max(starts, origin))
        return slice(first, max(first, self._cut(max(self.grid.end(ends), origin))))

    def cut_at(self, instants: Iterable[int] | Ints) -> None:
        """Create rows that begin at these instants, none of which is before the origin."""
        asked = as_instants(instants)
        at = np.minimum(self.times.searchsorted(asked), len(self.times) - 1)
        for instant in sorted(set(asked[self.times[at] != asked].tolist())):
            self._cut(instant)

    def rows(self, starts: int, ends: int) -> slice:
        """Rows that overlap [starts, ends), without creating any."""
        first = max(bisect_right(self._begins, starts) - 1, 0)
        return slice(first, bisect_left(self._begins, self.grid.end(ends)))

    def rows_at(self, instants: Ints) -> Ints:
        """The row that holds at each instant."""
        return np.maximum(self.times.searchsorted(instants, side="right") - 1, 0)

    def row(self, instant: int) -> int:
        """The row that holds at an instant, which is not before the origin."""
        return bisect_right(self._begins, instant) - 1

    def _cut(self, instant: int) -> int:
        begins = self._begins
        rows = len(begins)
        at = bisect_left(begins, instant)
        if at < rows and begins[at] == instant:
            return at
        if rows == len(self._times):
            self._times = np.concatenate([self._times, self._times])
            self._values = np.concatenate([self._values, self._values])
        self._times[at + 1 : rows + 1] = self._times[at:rows]
        self._values[at + 1 : rows + 1] = self._values[at:rows]
        self._times[at] = instant
        self._values[at] = self._values[at - 1]
        begins.insert(at, instant)
        self._show()
        return at

    def _show(self) -> None:
        rows = len(self._begins)
        self.times, self.values = self._times[:rows], self._values[:rows]

    def between(self, first: int, last: int) -> Ints:
        """Instants in (first, last] at which something changes."""
        low = int(self.times.searchsorted(first, side="right"))
        return self.times[low : int(self.times.searchsorted(last, side="right"))]

    def over(self, windows: tuple[Ints, int], merge: np.ufunc) -> npt.NDArray[Any]:
        """Rows merged over each window, given as rising starts and a length: (starts, width)."""
        first, last = self._touched(windows)
        if len(first) == 1:
            alone: npt.NDArray[Any] = merge.reduce(self._values[int(first[0]) : int(last[0])], axis=0)
            return alone[None, :]
        low, high = int(first[0]), int(last[-1])
        if high - low == len(first) and (last - first == 1).all():
            # One row after the other, as they are.
            return self._values[low:high].copy()
        return _merged(self._values[low:high], first - low, last - low, merge)

    def _touched(self, windows: tuple[Ints, int]) -> tuple[Ints, Ints]:
        """First row, and the one after the last, of each window."""
        starts, duration = windows
        ends = self.grid.ends(starts + duration)
        return self.rows_at(starts), self.times.searchsorted(ends, side="left")


def rising(instants: Ints) -> Ints:
    """The same instants, each once and in order."""
    if (instants[1:] > instants[:-1]).all():
        return instants
    # Most are some rising runs one after the other, which are merged.
    found = np.sort(instants, kind="stable")
    once: Ints = found[np.concatenate([[True], found[1:] != found[:-1]])]
    return once


def as_instants(instants: Iterable[int] | Ints) -> Ints:
    """The same as an array."""
    if isinstance(instants, np.ndarray):
        return instants
    return np.array([*instants], dtype=np.int64)


def _merged(rows: npt.NDArray[Any], first: Ints, last: Ints, merge: np.ufunc) -> npt.NDArray[Any]:
    """Rows [first, last) merged for each pair, by doubling: two overlapping halves each."""
    level = np.frexp(last - first)[1] - 1
    found = np.empty((len(first), rows.shape[1]), dtype=rows.dtype)
    table = rows
    for power in range(int(level.max()) + 1):
        width = 1 << power
        if power:
            table = merge(table[: -width // 2], table[width // 2 :])
        pick = level == power
        if power == 0:
            found[pick] = table[first[pick]]
        elif pick.any():
            found[pick] = merge(table[first[pick]], table[last[pick] - width])
    return found
