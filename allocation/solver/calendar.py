"""Occupancy over time: for one GPU class, time × GPU -> busy mask.

Time-major arrays: a row is a stretch of time in which nothing changes, so that "what is taken at
any instant of a window" is an OR over neighbouring rows.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from allocation.solver.fragmentation import Ints
from allocation.solver.geometry import Masks
from allocation.solver.topology import Bools, Pool
from allocation.solver.types import Place


class Steps:
    """A step function: row i holds from times[i] until times[i + 1], the last one for ever."""

    def __init__(self, origin: int, width: int, dtype: npt.DTypeLike) -> None:
        """Zero from `origin` (Unix seconds) on."""
        self._times = np.full(64, origin, dtype=np.int64)
        self._values = np.zeros((64, width), dtype=dtype)
        self._rows = 1

    @property
    def times(self) -> Ints:
        """Begin of each row, rising."""
        return self._times[: self._rows]

    @property
    def values(self) -> npt.NDArray[Any]:
        """Rows × width."""
        return self._values[: self._rows]

    def copy(self) -> "Steps":
        """The same function, apart from this one."""
        twin = Steps(int(self._times[0]), self._values.shape[1], self._values.dtype)
        twin._times, twin._values = self._times.copy(), self._values.copy()
        twin._rows = self._rows
        return twin

    def prime(self, instants: Iterable[int]) -> None:
        """Make rows begin at all these instants at once; only on a function that is still zero."""
        origin = int(self._times[0])
        times = np.unique(np.array([origin, *(t for t in instants if t > origin)], dtype=np.int64))
        self._rows = len(times)
        self._times = np.concatenate([times, np.empty(len(times) + 64, dtype=np.int64)])
        self._values = np.zeros((len(self._times), self._values.shape[1]), self._values.dtype)

    def cut(self, starts: int, ends: int) -> slice:
        """Rows that are exactly [starts, ends), made where missing; clipped to the origin."""
        first = self._cut(max(starts, int(self._times[0])))
        return slice(first, max(first, self._cut(max(ends, int(self._times[0])))))

    def rows(self, starts: int, ends: int) -> slice:
        """Rows that touch [starts, ends), without making any."""
        first = max(int(self.times.searchsorted(starts, side="right")) - 1, 0)
        return slice(first, int(self.times.searchsorted(ends, side="left")))

    def _cut(self, instant: int) -> int:
        rows = self._rows
        at = int(self._times[:rows].searchsorted(instant))
        if at < rows and self._times[at] == instant:
            return at
        if rows == len(self._times):
            self._times = np.concatenate([self._times, self._times])
            self._values = np.concatenate([self._values, self._values])
        self._times[at + 1 : rows + 1] = self._times[at:rows]
        self._values[at + 1 : rows + 1] = self._values[at:rows]
        self._times[at] = instant
        self._values[at] = self._values[at - 1]
        self._rows = rows + 1
        return at


class Calendar:
    """Who has which slots of a class when, as masks."""

    def __init__(self, pool: Pool, origin: int) -> None:
        """Empty from `origin` on."""
        self.pool = pool
        self._steps = Steps(origin, len(pool), np.uint16)

    def copy(self) -> "Calendar":
        """The same calendar, apart from this one."""
        twin = Calendar.__new__(Calendar)
        twin.pool = self.pool
        twin._steps = self._steps.copy()
        return twin

    def prime(self, instants: Iterable[int]) -> None:
        """Prepare for these starts and ends; before anything is put."""
        self._steps.prime(instants)

    def is_free(self, places: Iterable[Place], starts: int, ends: int) -> bool:
        """True when none of the slots is taken at any instant of [starts, ends)."""
        rows = self._steps.rows(starts, ends)
        taken: dict[int, int] = {}
        for place in places:
            column, mask = self.pool.column[place.gpu], self.pool.mask_of(place)
            if column not in taken:
                stretch: Masks = self._steps.values[rows, column]
                taken[column] = int(np.bitwise_or.reduce(stretch)) if len(stretch) else 0
            if taken[column] & mask:
                return False
            taken[column] |= mask
        return True

    def free_until(self, place: Place, starts: int, ends: int) -> int:
        """End of the free stretch of the place that begins at `starts`, at most `ends`."""
        rows = self._steps.rows(starts, ends)
        stretch: Masks = self._steps.values[rows, self.pool.column[place.gpu]]
        taken = np.flatnonzero(stretch & self.pool.mask_of(place))
        if not len(taken):
            return ends
        return max(starts, int(self._steps.times[rows.start + int(taken[0])]))

    def put(self, places: Iterable[Place], starts: int, ends: int) -> None:
        """Take the slots for [starts, ends). ValueError when one of them is not free."""
        places = tuple(places)
        if not self.is_free(places, starts, ends):
            raise ValueError(f"not free from {starts} to {ends}: {places}")
        self.lay(places, starts, ends)

    def lay(self, places: Iterable[Place], starts: int, ends: int) -> None:
        """Take the slots without asking: running work is true whether or not it fits."""
        rows = self._steps.cut(starts, ends)
        for place in places:
            self._steps.values[rows, self.pool.column[place.gpu]] |= self.pool.mask_of(place)

    def drop(self, places: Iterable[Place], starts: int, ends: int) -> None:
        """Undo of `put` with the same arguments."""
        rows = self._steps.cut(starts, ends)
        for place in places:
            mask = np.uint16(self.pool.mask_of(place) ^ 0xFFFF)
            self._steps.values[rows, self.pool.column[place.gpu]] &= mask

    def redraw(self, columns: list[int], other: "Calendar") -> None:
        """Make these columns what they are in `other`, which changes at no other instants."""
        mine, its = self._steps, other._steps
        rows = its.times.searchsorted(mine.times, side="right") - 1
        mine.values[:, columns] = its.values[rows[:, None], columns]

    def starts_between(self, first: int, last: int) -> Ints:
        """Candidate starts: `first`, then each instant up to `last` at which something changes.

        The earliest feasible start is always one of them: a window that can't be moved to an
        earlier second either begins at `first` or touches the end of what is in its way.
        """
        times = self._steps.times
        low = int(times.searchsorted(first, side="right"))
        high = int(times.searchsorted(last, side="right"))
        return np.concatenate([np.array([first], dtype=np.int64), times[low:high]])

    def busy(self, starts: Ints, duration: int) -> Masks:
        """Slots taken at any instant of each window: (len(starts), columns)."""
        first = self._steps.times.searchsorted(starts, side="right") - 1
        last = self._steps.times.searchsorted(starts + duration, side="left")
        first = np.maximum(first, 0)
        if len(starts) == 1:
            rows = self._steps.values[int(first[0]) : int(last[0])]
            found: Masks = np.bitwise_or.reduce(rows, axis=0)[None, :]
            return found
        low = int(first[0])
        return _or_over(self._steps.values[low : int(last[-1])], first - low, last - low)


def _or_over(rows: Masks, first: Ints, last: Ints) -> Masks:
    """OR of rows [first, last) for each pair, rising, by doubling: two overlapping halves each."""
    level = np.frexp(last - first)[1] - 1
    found = np.empty((len(first), rows.shape[1]), dtype=rows.dtype)
    table = rows
    for power in range(int(level.max()) + 1):
        width = 1 << power
        if power:
            table = table[: -width // 2] | table[width // 2 :]
        pick: Bools = level == power
        if pick.any():
            found[pick] = table[first[pick]] | table[last[pick] - width]
    return found
