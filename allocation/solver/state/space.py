"""Room of all classes over time: which windows have room, and the best places in each.

Quota, queue order and pauses are `CycleState`'s.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from allocation.reasons.reason import Reason
from allocation.solver.fleet.demand_mix import mixes_of
from allocation.solver.fleet.fragmentation import DEFAULT_SCORING, Ints
from allocation.solver.fleet.mig_geometry import WHOLE_MASK, Masks
from allocation.solver.fleet.pool import Bools, Pool, pools_of
from allocation.solver.model.demand import Demand, Fit
from allocation.solver.model.inputs import Place, Snapshot
from allocation.solver.model.policy import Scoring
from allocation.solver.placement.gang import Choice, choose, fits
from allocation.solver.placement.scoring import PoolState
from allocation.solver.state.held_work import HeldWork
from allocation.solver.state.occupancy import Occupancy
from allocation.solver.timeline.gpu_calendar import GpuCalendar
from allocation.solver.timeline.grid import Grid
from allocation.solver.timeline.host_calendar import HostCalendar
from allocation.solver.timeline.mig_modes import ModeCalendar, hardware_mode_of
from allocation.solver.timeline.share_calendar import ShareCalendar

_MOST_LOOKS = 32
"""Most windows of a class that are cached until something changes in it."""
_FIRST_CHUNK = 8
_CHUNK_GROWTH = 4
_CHUNK_MOST = 1_024


@dataclass(frozen=True, slots=True)
class _Look:
    """A class in one window, and the places chosen there."""

    pool_state: PoolState
    choices: dict[tuple[object, ...], Choice | None]


class Space:
    """Pools and calendars, and the search for room in them."""

    def __init__(
        self,
        snapshot: Snapshot,
        scoring: Scoring = DEFAULT_SCORING,
        *,
        alone: bool = False,
        step: int = 1,
        work: HeldWork | None = None,
    ) -> None:
        """Nothing is taken. KeyError: unknown model. `alone`: a GPU is shared by one owner at a
        time. `step`: of the grid on which room opens. `work`: what is held, where it is known."""
        if work is None:
            work = HeldWork(snapshot.gpus, snapshot.models)
            work.update(snapshot.held)
        self.now = snapshot.now
        planned = [each.planned.starts for each in snapshot.requests if each.planned is not None]
        starts = np.concatenate([np.array(planned, dtype=np.int64), work.starts])
        self.grid = Grid.of(self.now, step, starts)
        self.pools: dict[str, Pool] = pools_of(
            snapshot.gpus,
            snapshot.models,
            mixes_of(work.kinds, snapshot.requests),
            scoring,
            work.pools,
        )
        work.pools = self.pools
        self.all = Occupancy(
            {name: GpuCalendar(pool, self.grid) for name, pool in self.pools.items()},
            HostCalendar(snapshot.hosts, self.pools.values(), self.grid),
            ShareCalendar(self.pools.values(), alone=alone),
            ModeCalendar(self.pools.values(), snapshot.held, self.now),
        )
        self.held_blockers: dict[tuple[object, ...], tuple[Reason, ...]] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._looks: dict[str, dict[tuple[object, ...], _Look]] = {}
        self._class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}

    def class_of(self, gpu: str) -> str | None:
        """Class of a GPU; None when the fleet does not have it."""
        return self._class_of.get(gpu)

    def parts(self, fit: Fit) -> tuple[Fit, ...]:
        """The fit on each class: one, unless the booking is mixed."""
        if not fit.demand.groups:
            return (fit,)
        by_class: dict[str | None, list[Place]] = {}
        for place in fit.places:
            by_class.setdefault(self.class_of(place.gpu), []).append(place)
        return tuple(
            replace(fit, demand=each, places=tuple(by_class.get(each.gpu_class, ())))
            for each in fit.demand.parts
        )

    def is_in_service(self, gpu: str) -> bool:
        """True when the GPU is in the fleet and may keep what it has."""
        name = self.class_of(gpu)
        return name is not None and bool(self.pools[name].in_service[self.pools[name].column[gpu]])

    def units(self, gpu_class: str, places: Iterable[Place]) -> int:
        pool = self.pools[gpu_class]
        return sum(pool.geometry(place.gpu).units_taken(place) for place in places)

    def may_fit(self, demand: Demand, starts: Ints) -> Bools:
        """False for windows without enough idle GPUs for whole ones; True needs a closer look.

        Examines bits instead of masks, for many windows.
        """
        pool = self.pools[demand.gpu_class]
        calendar = self.all.gpus[demand.gpu_class]
        eligible = pool.eligible(None)
        if demand.pin:
            eligible = eligible & pool.within(demand.pin)
        idle = calendar.idle(starts, demand.duration, eligible)
        able: Bools = np.bitwise_count(idle).sum(axis=1) >= demand.count
        if demand.level != "any":
            columns = np.unpackbits(idle[able], axis=1, count=len(pool))
            able[able] = pool.has_group(demand.level, columns, demand.count)
        return able

    def first_of(self, demand: Demand, tried: Ints) -> int | None:
        """The first of rising starts at which the demand fits, tried in ever larger chunks: most
        bookings need few."""
        if demand.groups:
            for each in demand.parts:
                tried = tried[[self._has_place(each, at) for at in tried.tolist()]]
            return int(tried[0]) if len(tried) else None
        begin, size = 0, 1
        while begin < len(tried):
            starts = self._first_fit(demand, tried[begin : begin + size])
            if starts is not None:
                return starts
            begin, size = begin + size, min(_CHUNK_MOST, max(_FIRST_CHUNK, size * _CHUNK_GROWTH))
        return None

    def _has_place(self, demand: Demand, starts: int) -> bool:
        return self._first_fit(demand, np.array([starts], dtype=np.int64)) is not None

    def _first_fit(self, demand: Demand, bite: Ints) -> int | None:
        """The first of a chunk of rising starts at which it fits."""
        if demand.shape is None and len(bite) > 1:
            hopeful = bite[self.may_fit(demand, bite)]
            if self._is_only_room(demand):
                return int(hopeful[0]) if len(hopeful) else None
            found = (self._first_fit(demand, each) for each in hopeful[:, None])
            return next((starts for starts in found if starts is not None), None)
        good = fits(self.pools[demand.gpu_class], demand, *self.all.busy(demand, bite))
        return int(bite[int(good.argmax())]) if good.any() else None

    def _is_only_room(self, demand: Demand) -> bool:
        """True when idle whole GPUs are all that it needs."""
        name = demand.gpu_class
        is_plain = not self.all.gpus[name].has_shares and not self.all.modes.may_switch(name)
        return is_plain and not any(demand.host_resources)

    def starts_between(self, demand: Demand, first: int, last: int) -> Ints:
        """Candidate starts: `first`, then each instant up to `last` at which room changes."""
        if demand.groups:
            each = [self.starts_between(part, first, last) for part in demand.parts]
            return np.unique(np.concatenate(each))
        tried = self.all.gpus[demand.gpu_class].starts_between(first, last)
        if self.all.modes.may_switch(demand.gpu_class):
            pool = self.pools[demand.gpu_class]
            tried = np.union1d(tried, self.all.modes.instants(pool, demand.shape, first, last))
        return (
            np.union1d(tried, self.all.hosts.between(first, last))
            if any(demand.host_resources)
            else tried
        )

    def stretches(self, gpu_class: str, since: int, until: int) -> tuple[Ints, Ints, Masks]:
        """Begins and ends of the stretches of [since, until) in which nothing changes for whole
        GPUs, and the taken bits of each; a GPU in the other mode is taken."""
        calendar, pool = self.all.gpus[gpu_class], self.pools[gpu_class]
        begins = calendar.starts_between(since, until - 1)
        if self.all.modes.may_switch(gpu_class):
            begins = np.union1d(begins, self.all.modes.edges(pool, None, since, until - 1))
        busy = calendar.busy(begins, 1)
        if self.all.modes.may_switch(gpu_class):
            busy[self.all.modes.others(pool, None, (begins, 1))] = WHOLE_MASK
        return begins, np.append(begins[1:], until), busy

    def pool_state(self, demand: Demand, starts: int) -> PoolState:
        """The demand's class in the window from `starts` on, for choosing places."""
        return self._look(demand, starts).pool_state

    def _choice(self, demand: Demand, starts: int) -> Choice | None:
        look = self._look(demand, starts)
        key = (demand.shape, demand.count, demand.level, demand.host_resources)
        if key not in look.choices:
            look.choices[key] = choose(look.pool_state, demand)
        return look.choices[key]

    def _look(self, demand: Demand, starts: int) -> "_Look":
        """The class in the window, cached until something changes."""
        name, pool = demand.gpu_class, self.pools[demand.gpu_class]
        versions = (self.all.gpus[name].version, self.all.hosts.version[name])
        if self._versions.get(name) != versions or len(self._looks[name]) == _MOST_LOOKS:
            self._versions[name], self._looks[name] = versions, {}
        whose = demand.owner if demand.share is not None else None
        cut = hardware_mode_of(demand.shape) if self.all.modes.may_switch(name) else None
        key = (starts, demand.duration, self.all.needs_hosts(demand, pool), whose, demand.pin, cut)
        look = self._looks[name].get(key)
        if look is None:
            busy, free = self.all.busy(demand, np.array([starts], dtype=np.int64))
            switches = None if cut is None else self.all.modes.switching(pool, demand.shape, starts)
            look = _Look(PoolState(pool, busy[0], free and free.row(0), switches), {})
            self._looks[name][key] = look
        return look


class NoRoomCache:
    """Stretches without room by class and kind of demand, so that later searches can skip them.

    While room only gets less, a full stretch stays full. One look at each stretch proves for all
    planned starts of a kind that they can't be earlier, and a newcomer that found no room rules
    the same out for the next of its kind.
    """

    def __init__(self, calendars: dict[str, GpuCalendar]) -> None:
        self._calendars = calendars
        self._kinds: dict[str, dict[tuple[object, ...], _Kind]] = {}
        self._first_possible: dict[str, dict[tuple[object, ...], dict[int, int]]] = {}

    def forget(self, gpu_class: str, since: int) -> None:
        """Room of the class may have become free from `since` on."""
        for kind in self._kinds.get(gpu_class, {}).values():
            kind.forget(since)
        self._first_possible.pop(gpu_class, None)

    def first_possible(self, demand: Demand) -> int:
        """The second before which, by earlier searches, no window of the demand has room.

        Searches for the same or a shorter duration count.
        """
        if demand.groups:
            return max(map(self.first_possible, demand.parts))
        known = self._first_possible.get(demand.gpu_class, {}).get(_what(demand), {})
        return max((at for seconds, at in known.items() if seconds <= demand.duration), default=0)

    def record_search(self, demand: Demand, starts: int) -> None:
        """Record that every window from now on that begins before `starts` lacks room."""
        if self.records(demand):
            kinds = self._first_possible.setdefault(demand.gpu_class, {})
            known = kinds.setdefault(_what(demand), {})
            known[demand.duration] = max(starts, known.get(demand.duration, 0))

    def records(self, demand: Demand) -> bool:
        """True when searches for the demand are recorded.

        Host cores and memory may become free with another class, and others have no pin, so demands
        with either record nothing.
        """
        is_mixed = bool(demand.groups)
        return not (is_mixed or demand.share or demand.pin or any(demand.host_resources))

    @contextmanager
    def trial(self, gpu_class: str) -> Iterator[Callable[[], None]]:
        """Restore what is known at the end, unless the yielded function was called: then what was
        freed inside has not been taken again."""
        kept: list[bool] = []
        known = self._first_possible.get(gpu_class)
        marks = [(kind, kind.mark()) for kind in self._kinds.get(gpu_class, {}).values()]
        yield lambda: kept.append(True)
        if kept:
            return
        if known is not None:
            self._first_possible[gpu_class] = known
        for kind, mark in marks:
            kind.back(mark)

    def is_full_until(self, demand: Demand, starts: int) -> bool:
        """True when certainly no window that begins before `starts` has room.

        Such a window either ends by then, inside a long enough stretch with room, or contains
        the instant before `starts`. If neither exists there is none, whatever is free later. So the
        caller's own reservation from `starts` on need not be removed first. Only GPUs are examined:
        hosts, share owners and quota can only forbid more.
        """
        if demand.share is not None or demand.pin or demand.groups:
            return False
        kinds = self._kinds.setdefault(demand.gpu_class, {})
        what = _what(demand)
        if what not in kinds:
            kinds[what] = _Kind(self._calendars[demand.gpu_class], demand)
        return kinds[what].is_full_until(starts, demand.duration)


def _what(demand: Demand) -> tuple[object, ...]:
    return (demand.shape, demand.count, demand.level)


class _Kind:
    """One shape, count and level on one class."""

    def __init__(self, calendar: GpuCalendar, demand: Demand) -> None:
        self._calendar, self._want = calendar, demand
        self._until = 0
        self._ends: Ints = np.zeros(0, dtype=np.int64)
        self._full: Bools = np.zeros(0, dtype=np.bool_)
        self._longest: Ints = np.zeros(0, dtype=np.int64)

    def forget(self, since: int) -> None:
        """Forget what was seen from `since` on."""
        self._until = min(self._until, since)

    def mark(self) -> tuple[int, Ints]:
        """The present knowledge, which `back` can restore."""
        return self._until, self._ends

    def back(self, mark: tuple[int, Ints]) -> None:
        """Restore the knowledge of the mark, unless room was searched since then."""
        until, ends = mark
        if self._ends is ends:
            self._until = until

    def is_full_until(self, starts: int, duration: int) -> bool:
        """See `NoRoomCache.is_full_until`."""
        if starts > self._until:
            self._look(starts)
        at = int(self._ends.searchsorted(starts))
        # The stretch that contains the instant before `starts`.
        return bool(self._full[at]) and int(self._longest[at]) < duration

    def _look(self, until: int) -> None:
        """Examine the stretches up to `until` that are not known yet."""
        known = int(self._ends.searchsorted(self._until, side="right"))
        since = int(self._ends[known - 1]) if known else self._calendar.grid.origin
        ends, masks = self._calendar.stretches(since, until)
        full = ~fits(self._calendar.pool, self._want, masks)
        self._full = np.concatenate([self._full[:known], full])
        self._ends = np.concatenate([self._ends[:known], ends])
        self._until = until
        last_full = np.where(self._full, self._ends, self._calendar.grid.origin)
        # The longest time without a full stretch, up to the end of each.
        since_full = self._ends - np.maximum.accumulate(last_full)
        self._longest = np.maximum.accumulate(since_full)
