"""Modes of GPUs over time, where a change between whole and slices resets the GPU.

A change needs an empty GPU for the model's `switch_seconds`. So two rows of different modes on one
GPU are at least that far apart, and the present hardware mode counts as a row that ends now. GPUs
that change for free, or whose mode is fixed, are left out.
"""

from collections.abc import Collection, Iterable

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools, Pool
from solver.model.inputs import Gpu, Held, Place, Shape
from solver.timeline.share_calendar import IntervalTable

Window = tuple[int, int]

_EVER = -(1 << 40)
_WHOLE, _SLICED = 0, 1


def hardware_mode_of(shape: Shape) -> int:
    """The hardware mode that a shape needs; shares need the same as whole GPUs."""
    return _SLICED if isinstance(shape, str) else _WHOLE


class ModeCalendar:
    """Rows by GPU and mode, extended on both sides by the seconds of a change."""

    def __init__(self, pools: Collection[Pool], held: Iterable[Held], now: int) -> None:
        """The present modes, or those that started work needs."""
        self._seconds: dict[str, Ints] = {}
        self._rows: dict[str, IntervalTable] = {}
        able = [
            (pool, [column for column, gpu in enumerate(pool.gpus) if _may_change(pool, gpu)])
            for pool in pools
        ]
        able = [(pool, columns) for pool, columns in able if columns]
        started = (row for row in held if row.started) if able else ()
        begun = {row.place.gpu: hardware_mode_of(row.place.shape) for row in started}
        for pool, columns in able:
            seconds = np.zeros(len(pool), dtype=np.int64)
            rows = self._rows[pool.gpu_class] = IntervalTable()
            for column in columns:
                gpu = pool.gpus[column]
                seconds[column] = pool.geometries[column].model.switch_seconds
                stands = begun.get(gpu.id, _SLICED if gpu.stands == "sliced" else _WHOLE)
                rows.add((column, stands, _EVER, now + int(seconds[column])))
            self._seconds[pool.gpu_class] = seconds

    def copy(self) -> "ModeCalendar":
        twin = ModeCalendar.__new__(ModeCalendar)
        twin._seconds = self._seconds
        twin._rows = {name: rows.copy() for name, rows in self._rows.items()}
        return twin

    def may_switch(self, gpu_class: str) -> bool:
        """True when some GPU of the class may change its mode by a reset."""
        return gpu_class in self._rows

    def lead(self, gpu_class: str) -> int:
        """Seconds that the slowest change of the class takes."""
        seconds = self._seconds.get(gpu_class)
        return 0 if seconds is None else int(seconds.max())

    def add(self, pool: Pool, places: Iterable[Place], window: Window, sign: int = 1) -> None:
        """Take the places in the window; `sign` -1 gives them back."""
        if not self.may_switch(pool.gpu_class):
            return
        rows, seconds = self._rows[pool.gpu_class], self._seconds[pool.gpu_class]
        for place in places:
            column = pool.column[place.gpu]
            gap = int(seconds[column])
            if gap:
                row = (column, hardware_mode_of(place.shape), window[0] - gap, window[1] + gap)
                (rows.add if sign > 0 else rows.remove)(row)

    def is_free(self, pool: Pool, places: Collection[Place], window: Window) -> bool:
        """True when the GPUs of the places can have their mode for the whole window."""
        if not self.may_switch(pool.gpu_class):
            return True
        at = (np.array([window[0]], dtype=np.int64), window[1] - window[0])
        for cut in {hardware_mode_of(place.shape) for place in places}:
            columns = [pool.column[p.gpu] for p in places if hardware_mode_of(p.shape) == cut]
            if self._others(pool, cut, at)[0, columns].any():
                return False
        return True

    def others(self, pool: Pool, shape: Shape, windows: tuple[Ints, int]) -> Bools:
        """Columns that can't have the mode of the shape at some instant of each window."""
        return self._others(pool, hardware_mode_of(shape), windows)

    def _others(self, pool: Pool, cut: int, windows: tuple[Ints, int]) -> Bools:
        found: Bools = np.zeros((len(windows[0]), len(pool)), dtype=np.bool_)
        columns, touched = self._rows[pool.gpu_class].others(cut, *windows)
        which, at = touched.nonzero()
        found[which, columns[at]] = True
        return found

    def switching(self, pool: Pool, shape: Shape, starts: int) -> Bools:
        """Columns that are in the other mode until shortly before `starts` and change for it."""
        columns, cuts, since, until = self._rows[pool.gpu_class].table
        at = np.flatnonzero(since + self._seconds[pool.gpu_class][columns] < starts)
        at = at[np.lexsort((cuts[at], until[at]))]
        found: Bools = np.zeros(len(pool), dtype=np.bool_)
        # The last row of a GPU counts.
        found[columns[at]] = cuts[at] != hardware_mode_of(shape)
        return found

    def instants(self, pool: Pool, shape: Shape, first: int, last: int) -> Ints:
        """Instants in (first, last] at which a GPU can have the mode of the shape again."""
        _, cuts, _, until = self._rows[pool.gpu_class].table
        return np.unique(until[(cuts != hardware_mode_of(shape)) & (until > first) & (until <= last)])

    def edges(self, pool: Pool, shape: Shape, first: int, last: int) -> Ints:
        """The same, and those at which it must begin its change to the other mode."""
        _, cuts, since, until = self._rows[pool.gpu_class].table
        both = np.concatenate([edge[cuts != hardware_mode_of(shape)] for edge in (since, until)])
        return np.unique(both[(both > first) & (both <= last)])

    def free_until(self, pool: Pool, place: Place, starts: int, ends: int) -> int:
        """The end of the time from `starts` on, at most `ends`, without a change of mode."""
        if not self.may_switch(pool.gpu_class):
            return ends
        columns, cuts, since, until = self._rows[pool.gpu_class].table
        in_the_way = (columns == pool.column[place.gpu]) & (cuts != hardware_mode_of(place.shape))
        later = since[in_the_way & (until > starts) & (since < ends)]
        return max(starts, int(later.min())) if len(later) else ends


def _may_change(pool: Pool, gpu: Gpu) -> bool:
    seconds = pool.geometries[pool.column[gpu.id]].model.switch_seconds
    return seconds > 0 and gpu.stands is not None and gpu.mode != gpu.stands
