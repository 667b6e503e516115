"""Step functions of time, on which all calendars are built.

Time-major arrays: a row is a stretch of time without changes, so "taken at any instant of a window"
is an OR, or a maximum, over consecutive rows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools, Index
from solver.timeline.grid import Grid

_OFTEN = 16
"""After so many questions for columns that are zero the bits are kept."""


_MOST_INSTANTS = 32
_FIRST_ROWS = 64
_NEVER = np.iinfo(np.int64).max

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
        # Which columns are not zero, eight to a byte, row by row; None: not kept yet.
        self._taken: npt.NDArray[np.uint8] | None = None
        self._searches = 0
        self._show()

    def copy(self) -> "StepFunction":
        twin = StepFunction.__new__(StepFunction)
        twin.grid, twin._wide = self.grid, self._wide
        # Spare rows are not copied: with large calendars that is half of the time.
        twin._times, twin._values = self.times.copy(), self.values.copy()
        twin._begins = self._begins.copy()
        twin._taken, twin._searches = None, 0
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
            self._values, self._taken = np.concatenate([self._values, more], axis=1), None
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
            if self._taken is not None:
                self._taken = np.concatenate([self._taken, self._taken])
        self._times[at + 1 : rows + 1] = self._times[at:rows]
        self._values[at + 1 : rows + 1] = self._values[at:rows]
        self._times[at] = instant
        self._values[at] = self._values[at - 1]
        if self._taken is not None:
            self._taken[at + 1 : rows + 1] = self._taken[at:rows]
            self._taken[at] = self._taken[at - 1]
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

    def zero(self, windows: tuple[Ints, int], columns: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
        """Which of the columns are zero in all of each window, eight to a byte (np.packbits)."""
        first, last = self._touched(windows)
        low, high = int(first[0]), int(last[-1])
        self._searches += 1
        if self._taken is None and self._searches > _OFTEN:
            self._taken = np.packbits(self._values != 0, axis=1)
        if self._taken is None:
            bits = np.packbits((self._values[low:high] == 0) & columns, axis=1)
        else:
            bits = ~self._taken[low:high] & np.packbits(columns)
        return _merged(bits, first - low, last - low, np.bitwise_and)

    def changed(self, rows: slice, columns: slice | Index) -> None:
        """Note that values of these columns in these rows were written."""
        if self._taken is not None:
            for first, after in _runs(columns):
                low, high = first // 8, -(-after // 8)
                values = self._values[rows, 8 * low : 8 * high]
                self._taken[rows, low:high] = np.packbits(values != 0, axis=1)

    def filled(self, rows: slice, columns: slice | Index) -> None:
        """Note that no value of these columns in these rows is zero."""
        if self._taken is not None:
            for first, after in _runs(columns):
                low = first // 8
                bits = _bits(first - 8 * low, after - 8 * low)
                self._taken[rows, low : low + len(bits)] |= bits

    def _touched(self, windows: tuple[Ints, int]) -> tuple[Ints, Ints]:
        """First row, and the one after the last, of each window."""
        starts, duration = windows
        first = np.maximum(self.times.searchsorted(starts, side="right") - 1, 0)
        ends = self.grid.ends(starts + duration)
        return first, self.times.searchsorted(ends, side="left")


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


def _runs(columns: slice | Index) -> Iterator[tuple[int, int]]:
    """Adjacent columns as [first, after)."""
    if isinstance(columns, slice):
        yield columns.start, columns.stop
    else:
        yield from ((column, column + 1) for column in columns.tolist())


@lru_cache(maxsize=4_096)
def _bits(first: int, after: int) -> npt.NDArray[np.uint8]:
    """Bytes with the bits [first, after), as np.packbits has them."""
    flags = np.zeros(-(-after // 8) * 8, dtype=np.bool_)
    flags[first:after] = True
    return np.packbits(flags)


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
