"""How long room lasts at most, so that later searches skip windows in which there is none.

For each kind of demand and each stretch of time: the last end that a window from the stretch on may
have. One search finds it for all durations and owners, and it stays true while room only gets less.
What comes free makes only those stretches unknown from which a window reaches it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools
from solver.model.demand import Demand, Fit
from solver.timeline.gpu_calendar import GpuCalendar

_NEVER = np.iinfo(np.int64).max
_MOST_NARROW = 1 << 16
"""As 16 bits fewer columns than so many are counted in an eighth of the time."""
CHUNK = 8
"""Starts that are examined at once, at first; most bookings need few."""
_CHUNK_GROWTH = 4
_CHUNK_MOST = 1_024


class RoomBounds:
    """The bounds of all classes. Only GPUs are counted: hosts, pins, modes and quota forbid more."""

    def __init__(self, calendars: Mapping[str, GpuCalendar]) -> None:
        """Nothing is known."""
        self._calendars = calendars
        self._classes: dict[str, _Bounds] = {}

    def may_have_room(self, demand: Demand, starts: Ints, until: int = _NEVER) -> Bools:
        """False for the windows of a demand of one class that certainly lack room, in the part of
        each before `until`."""
        if demand.share is not None:
            return np.ones(len(starts), dtype=np.bool_)
        return self._of(demand.gpu_class).may_have_room(demand, starts, until)

    def starts_between(self, demand: Demand, first: int, last: int) -> Ints:
        """`first`, and each instant up to `last` at which GPUs change, if there may be room then."""
        return self._of(demand.gpu_class).starts_between(demand, first, last)

    def first_idle(self, demand: Demand, starts: Ints, own: Fit | None = None) -> int | None:
        """The first of rising starts at which enough whole GPUs are idle; without an `own` reservation,
        which begins later and ends no earlier than the window."""
        return self._of(demand.gpu_class).first_idle(demand, starts, own)

    def have_idle(self, demand: Demand, starts: Ints) -> Bools:
        """False for windows of whole GPUs in which too few of them are idle."""
        return self._of(demand.gpu_class).have_idle(demand, starts)

    def lack_room(self, demand: Demand, starts: Ints) -> None:
        """Note windows in which GPUs alone are too few for the demand, which has no pin."""
        self._of(demand.gpu_class).lack_room(demand, starts)

    def freed(self, gpu_class: str, since: int) -> None:
        """Room of the class may have become free from `since` on."""
        if gpu_class in self._classes:
            self._classes[gpu_class].freed(since)

    @contextmanager
    def trial(self, gpu_class: str) -> Iterator[Callable[[], None]]:
        """Restore what is known at the end, unless the yielded function was called: then what was
        freed inside has not been taken again."""
        kept: list[bool] = []
        known = self._classes.get(gpu_class)
        mark = None if known is None else known.mark()
        yield lambda: kept.append(True)
        if known is not None and mark is not None and not kept:
            known.back(mark)

    def _of(self, gpu_class: str) -> "_Bounds":
        found = self._classes.get(gpu_class)
        if found is None:
            found = self._classes[gpu_class] = _Bounds(self._calendars[gpu_class])
        return found


def chunks(starts: Ints, size: int) -> Iterator[Ints]:
    """The starts in ever larger chunks, of which the first has this size."""
    begin = 0
    while begin < len(starts):
        yield starts[begin : begin + size]
        begin, size = begin + size, min(_CHUNK_MOST, max(CHUNK, size * _CHUNK_GROWTH))


class _Bounds:
    """The bounds of one class: kinds × stretches of its calendar."""

    def __init__(self, calendar: GpuCalendar) -> None:
        self._calendar, self._steps = calendar, calendar.steps
        self._kinds: dict[tuple[object, ...], int] = {}
        self._times: Ints = calendar.steps.times.copy()
        self._ends: Ints = np.zeros((0, len(self._times)), dtype=np.int64)
        """The last end that a window from the stretch on may have, to have room."""

    def may_have_room(self, demand: Demand, starts: Ints, until: int) -> Bools:
        kind, rows = self._kind(demand), self._rows(starts)
        found: Bools = self._ends[kind, rows] >= np.minimum(starts + demand.duration, until)
        return found

    def starts_between(self, demand: Demand, first: int, last: int) -> Ints:
        kind = self._kind(demand)
        row, after = self._times.searchsorted((first, last), side="right").tolist()
        row = max(row - 1, 0)
        starts = self._times[row:after].copy()
        starts[0] = first  # It is somewhere in its stretch.
        return starts[self._ends[kind, row:after] >= starts + demand.duration]

    def first_idle(self, demand: Demand, starts: Ints, own: Fit | None) -> int | None:
        for chunk in chunks(starts, CHUNK):
            able = self.have_idle(demand, chunk, own)
            if able.any():
                return int(chunk[int(able.argmax())])
        return None

    def have_idle(self, demand: Demand, starts: Ints, own: Fit | None = None) -> Bools:
        kind, rows, pool = self._kind(demand), self._rows(starts), self._calendar.pool
        idle = (self._steps.values[rows] == 0).view(np.uint8)
        narrow = np.uint16 if idle.shape[-1] < _MOST_NARROW else np.int64
        found: Bools = np.add.reduce(idle, axis=-1, dtype=narrow) >= demand.count
        if not found.all():
            # No window that begins in such a stretch has room, and where all GPUs are busy nearly all do.
            full = rows[~found]
            self._ends[kind, full] = np.minimum(self._ends[kind, full], self._times[full])
        if not found.any():
            return found
        rows, ends = rows[found], self._steps.grid.ends(starts[found] + demand.duration)
        until = pool.idle_until(self._calendar.following.after_rows(rows), demand.pin, demand.where)
        if own is not None:
            until = self._without(own, until)
        last = pool.last_of_rows(demand.level, until, demand.count, ends)
        if not demand.pin and own is None:
            self._ends[kind, rows] = np.minimum(self._ends[kind, rows], last)
        found[found] = last >= ends
        return found

    def _without(self, own: Fit, until: Ints) -> Ints:
        """Until when columns are idle without a reservation; never before its end where only it ends that."""
        columns = [self._calendar.pool.column[place.gpu] for place in own.places]
        until = until.copy()
        its = until[:, columns]
        until[:, columns] = np.where(its == own.starts, _NEVER, its)
        return until

    def lack_room(self, demand: Demand, starts: Ints) -> None:
        kind, rows = self._kind(demand), self._rows(starts)
        # Of several windows in one stretch any may be noted.
        self._ends[kind, rows] = np.minimum(self._ends[kind, rows], starts + (demand.duration - 1))

    def freed(self, since: int) -> None:
        self._align()
        row, step = int(self._rows(since)), self._steps.grid.step
        earlier = self._ends[:, :row]
        # Room opens a step of the grid after the end of a window, at most.
        earlier[earlier >= since - step] = _NEVER
        self._ends[:, row:] = _NEVER

    def mark(self) -> tuple[Ints, Ints]:
        """What is known now."""
        self._align()
        return self._times, self._ends.copy()

    def back(self, mark: tuple[Ints, Ints]) -> None:
        """Know again what was known at the mark, besides what was found since then."""
        self._align()
        times, ends = mark
        if len(times) != len(self._times):
            ends = ends[:, times.searchsorted(self._times, side="right") - 1]
        kinds = len(ends)
        self._ends[:kinds] = np.minimum(self._ends[:kinds], ends)

    def _rows(self, instants: Ints | int) -> Ints:
        """The stretch that holds at each instant."""
        return np.maximum(self._times.searchsorted(instants, side="right") - 1, 0)

    def _kind(self, demand: Demand) -> int:
        """The row of a kind of demand, when what is known follows the calendar."""
        self._align()
        key = (demand.profile, demand.count, demand.level, demand.where)
        number = self._kinds.get(key)
        if number is None:
            number = self._kinds[key] = len(self._kinds)
            unknown = np.full((1, len(self._times)), _NEVER, dtype=np.int64)
            self._ends = np.concatenate([self._ends, unknown])
        return number

    def _align(self) -> None:
        """Follow the calendar: what is known of a stretch is true of its parts."""
        times = self._steps.times
        if len(times) != len(self._times):
            self._ends = self._ends[:, self._times.searchsorted(times, side="right") - 1]
            self._times = times.copy()
