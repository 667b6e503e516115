"""The search for room: which windows have room and quota, and the best places in each."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import WHOLE_MASK, Masks
from solver.fleet.pool import Bools
from solver.model.demand import Demand, Fit
from solver.model.inputs import Place, Snapshot
from solver.model.ordering import place_order
from solver.model.policy import Policy
from solver.placement.gang import Choice, choose, fits
from solver.placement.scoring import PoolState
from solver.quota.use import Block, Use
from solver.reasons.reason import Reason
from solver.state.held_space import HeldSpace
from solver.state.held_work import HeldWork
from solver.timeline.gpu_calendar import GpuCalendar
from solver.timeline.mig_modes import hardware_mode_of

_MOST_WINDOWS = 32
"""Most windows of a class that are cached until something changes in it."""
_FIRST_CHUNK = 8
_CHUNK_GROWTH = 4
_CHUNK_MOST = 1_024


@dataclass(frozen=True, slots=True)
class _WindowState:
    """A class in one window, and the places chosen there."""

    pool_state: PoolState
    choices: dict[tuple[object, ...], Choice | None]


class RoomSearch(HeldSpace):
    """The search for room and quota: at one second, or at the earliest one."""

    def __init__(self, snapshot: Snapshot, policy: Policy, work: HeldWork) -> None:
        """Load the work. KeyError: unknown model."""
        self.no_room = NoRoomCache()
        self.held_blockers: dict[tuple[object, ...], tuple[Reason, ...]] = {}
        self._quiet = frozenset(snapshot.quiet)
        self._versions: dict[str, tuple[int, int]] = {}
        self._windows: dict[str, dict[tuple[object, ...], _WindowState]] = {}
        super().__init__(snapshot, policy, work)

    def is_quiet(self, classes: Iterable[str]) -> bool:
        """True when nothing of these classes was given back since their last search."""
        return self._quiet.issuperset(classes)

    def frozen_until(self, gpu_class: str) -> int:
        """Starts up to then are final: the freeze horizon plus the time of a mode change."""
        return self.now + self.policy.freeze_horizon + self.all.modes.lead(gpu_class)

    def first_start(self, earliest: int) -> int:
        """First second at which a booking may start: now, or its requested start on the grid."""
        if earliest <= self.now:
            return self.now
        return -(-earliest // self.policy.grid) * self.policy.grid

    def frozen_for(self, demand: Demand) -> int:
        """The same for a demand: the latest of its classes."""
        return max(self.frozen_until(each.gpu_class) for each in demand.parts)

    @contextmanager
    def _host_use(self) -> Iterator[Callable[[Fit], None]]:
        """Count host resources of fits for as long as the context lasts."""
        hosts, taken = self.all.hosts, list[Fit]()

        def take(part: Fit) -> None:
            if any(part.demand.host_resources):
                hosts.add(part.places, part.demand.host_resources, part.window)
                taken.append(part)

        yield take
        for part in taken:
            hosts.add(part.places, part.demand.host_resources, part.window, -1)

    def uses(self, demand: Demand) -> tuple[Use, ...]:
        """Quota units that the demand uses of each class."""
        return tuple(map(self.use, demand.parts))

    def use(self, demand: Demand) -> Use:
        """Quota units that the demand uses of its class, without further groups."""
        units = demand.count * self.pools[demand.gpu_class].units(demand.shape)
        owners = self.quota.owners(demand.owners, demand.owner)
        return Use(owners, demand.tier, demand.gpu_class, units)

    def over(self, demand: Demand, starts: int) -> Block | None:
        """The quota rule that forbids a window from `starts` on."""
        window = (starts, starts + demand.duration)
        if not demand.groups:
            return self.quota.over(self.use(demand), window)
        blocks = (self.quota.over(use, window) for use in self.uses(demand))
        return next(filter(None, blocks), None)

    def at(self, demand: Demand, starts: int) -> Fit | None:
        """A fit at exactly this start; None when room or quota forbids it."""
        return self.first_at((demand,), starts)

    def first_at(self, demands: Iterable[Demand], starts: int) -> Fit | None:
        """A fit at exactly this start on the first class that has room and quota.

        If the classes are equivalent, on the one where it costs later demand least.
        """
        allowed = ((n, each) for n, each in enumerate(demands) if self.over(each, starts) is None)
        return self._placed(allowed, starts)

    def has_room(self, demand: Demand, starts: int) -> bool:
        """True when the demand has room at exactly this start, whatever its quota."""
        if demand.groups:
            return self._placed([(0, demand)], starts) is not None
        at = np.array([starts], dtype=np.int64)
        return bool(fits(self.pools[demand.gpu_class], demand, *self.all.busy(demand, at))[0])

    def has_room_unpinned(self, demand: Demand, starts: int) -> bool:
        """True when a pinned demand would have room elsewhere, whatever its quota."""
        return self._placed([(0, replace(demand, pin=()))], starts) is not None

    def _placed(self, demands: Iterable[tuple[int, Demand]], starts: int) -> Fit | None:
        """The same for demands, with their class ranks, that quota allows."""
        best: tuple[tuple[int, int], Fit] | None = None
        for class_rank, demand in demands:
            if demand.groups:
                return self._placed_together(demand, starts)
            choice = self._choice(demand, starts)
            if choice is None:
                continue
            found = Fit(demand, choice.places, starts, class_rank)
            if not demand.any_class:
                return found
            cost = (choice.apart, choice.loss)
            if best is None or cost < best[0]:
                best = (cost, found)
        return best and best[1]

    def _placed_together(self, demand: Demand, starts: int) -> Fit | None:
        """Places of all groups of a mixed demand; None when one of them does not fit."""
        places: list[Place] = []
        with self._host_use() as take:
            for part in demand.parts:
                choice = self._choice(part, starts)
                if choice is None:
                    return None
                places += choice.places
                take(Fit(part, choice.places, starts))
        return Fit(demand, tuple(sorted(places, key=place_order)), starts)

    def earliest(
        self, demands: Iterable[Demand], first: int, last: int, latest: int | None = None
    ) -> Fit | None:
        """The earliest end over the classes, ties as in `first_at`.

        It starts in [first, last] and ends by `latest`. With equal durations the earliest end is
        the earliest start.
        """
        best: tuple[int, int] | None = None
        tied: list[tuple[int, Demand]] = []
        for class_rank, demand in enumerate(demands):
            until = last if latest is None else min(last, latest - demand.duration)
            if best is not None:
                until = min(until, best[0] - demand.duration - (not demand.any_class))
            starts = self._earliest(demand, first, until)
            if starts is None:
                continue
            when = (starts + demand.duration, starts)
            if when == best:
                tied.append((class_rank, demand))
            elif best is None or when[0] < best[0]:
                best, tied = when, [(class_rank, demand)]
        return best and self._placed(tied, best[1])

    def _earliest_together(self, demand: Demand, first: int, last: int) -> int | None:
        """The first start at which all groups fit: each moves it on until none has to."""
        starts: int | None = first
        while starts is not None and starts <= last:
            before = starts
            for part in demand.parts:
                found = self._earliest(part, starts, last)
                if found is None:
                    return None
                starts = found
            if starts == before:
                if self._placed_together(demand, starts) is not None:
                    return starts
                # Each fits alone, but not all on the same nodes.
                later = self.starts_between(demand, starts, last)
                later = later[later > starts]
                starts = int(later[0]) if len(later) else None
        return None

    def _earliest(self, demand: Demand, first: int, last: int) -> int | None:
        if demand.groups:
            return self._earliest_together(demand, first, last)
        sooner = max(first, self.no_room.first_possible(demand))
        if sooner > last:
            return None
        tried = self.starts_between(demand, sooner, last)
        use = self.use(demand)
        days = self.quota.instants(use)
        if len(days):
            tried = np.union1d(tried, days[(days > sooner) & (days <= last)])
        allowed = self.quota.allows(use, tried, demand.duration)
        hopeful = tried if allowed is None else tried[allowed]
        if len(hopeful) < len(tried) and first <= self.now and self.no_room.records(demand):
            # What room alone forbids is forbidden to all owners, so it is searched for once.
            room = self.first_of(demand, tried)
            self.no_room.record_search(demand, last + 1 if room is None else room)
            hopeful = hopeful[:0] if room is None else hopeful[hopeful >= room]
        starts = self.first_of(demand, hopeful)
        if first <= self.now and starts is not None and len(hopeful) == len(tried):
            self.no_room.record_search(demand, starts)
        return None if starts is None else self._with_patience(demand, starts, hopeful)

    def _with_patience(self, demand: Demand, starts: int, hopeful: Ints) -> int:
        """That start, or one slightly later at which no GPU has to change its mode."""
        if not self.all.modes.may_switch(demand.gpu_class):
            return starts
        patience = self.policy.of(demand.gpu_class).mode_patience
        near = hopeful[(hopeful >= starts) & (hopeful <= starts + patience)]
        calm = self.first_of(replace(demand, keeps_modes=True), near)
        return starts if calm is None else calm

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
        return np.union1d(tried, self.all.hosts.between(first, last)) if any(demand.host_resources) else tried

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
        return self._window_state(demand, starts).pool_state

    def _choice(self, demand: Demand, starts: int) -> Choice | None:
        found = self._window_state(demand, starts)
        key = (demand.shape, demand.count, demand.level, demand.host_resources)
        if key not in found.choices:
            found.choices[key] = choose(found.pool_state, demand)
        return found.choices[key]

    def _window_state(self, demand: Demand, starts: int) -> "_WindowState":
        """The class in the window, cached until something changes."""
        name, pool = demand.gpu_class, self.pools[demand.gpu_class]
        versions = (self.all.gpus[name].version, self.all.hosts.version[name])
        if self._versions.get(name) != versions or len(self._windows[name]) == _MOST_WINDOWS:
            self._versions[name], self._windows[name] = versions, {}
        whose = demand.owner if demand.share is not None else None
        cut = hardware_mode_of(demand.shape) if self.all.modes.may_switch(name) else None
        key = (starts, demand.duration, self.all.needs_hosts(demand, pool), whose, demand.pin, cut)
        found = self._windows[name].get(key)
        if found is None:
            busy, free = self.all.busy(demand, np.array([starts], dtype=np.int64))
            switches = None if cut is None else self.all.modes.switching(pool, demand.shape, starts)
            found = _WindowState(PoolState(pool, busy[0], free and free.row(0), switches), {})
            self._windows[name][key] = found
        return found


class NoRoomCache:
    """Stretches without room by class and kind of demand, so that later searches can skip them.

    While room only gets less, a full stretch stays full. One look at each stretch proves for all
    planned starts of a kind that they can't be earlier, and a newcomer that found no room rules
    the same out for the next of its kind.
    """

    def __init__(self) -> None:
        """Nothing is known."""
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
        known = self._first_possible.get(demand.gpu_class, {}).get(_kind_of(demand), {})
        return max((at for seconds, at in known.items() if seconds <= demand.duration), default=0)

    def record_search(self, demand: Demand, starts: int) -> None:
        """Record that every window from now on that begins before `starts` lacks room."""
        if self.records(demand):
            kinds = self._first_possible.setdefault(demand.gpu_class, {})
            known = kinds.setdefault(_kind_of(demand), {})
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

    def is_full_until(self, calendar: GpuCalendar, demand: Demand, starts: int) -> bool:
        """True when certainly no window that begins before `starts` has room. `calendar` is that of
        the demand's class.

        Such a window either ends by then, inside a long enough stretch with room, or contains
        the instant before `starts`. If neither exists there is none, whatever is free later. So the
        caller's own reservation from `starts` on need not be removed first. Only GPUs are examined:
        hosts, share owners and quota can only forbid more.
        """
        if demand.share is not None or demand.pin or demand.groups:
            return False
        kinds = self._kinds.setdefault(demand.gpu_class, {})
        kind = _kind_of(demand)
        if kind not in kinds:
            kinds[kind] = _Kind(calendar, demand)
        return kinds[kind].is_full_until(starts, demand.duration)


def _kind_of(demand: Demand) -> tuple[object, ...]:
    return (demand.shape, demand.count, demand.level)


class _Kind:
    """One shape, count and level on one class."""

    def __init__(self, calendar: GpuCalendar, demand: Demand) -> None:
        self._calendar, self._demand = calendar, demand
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
            self._examine(starts)
        at = int(self._ends.searchsorted(starts))
        # The stretch that contains the instant before `starts`.
        return bool(self._full[at]) and int(self._longest[at]) < duration

    def _examine(self, until: int) -> None:
        """Examine the stretches up to `until` that are not known yet."""
        known = int(self._ends.searchsorted(self._until, side="right"))
        since = int(self._ends[known - 1]) if known else self._calendar.grid.origin
        ends, masks = self._calendar.stretches(since, until)
        full = ~fits(self._calendar.pool, self._demand, masks)
        self._full = np.concatenate([self._full[:known], full])
        self._ends = np.concatenate([self._ends[:known], ends])
        self._until = until
        last_full = np.where(self._full, self._ends, self._calendar.grid.origin)
        # The longest time without a full stretch, up to the end of each.
        since_full = self._ends - np.maximum.accumulate(last_full)
        self._longest = np.maximum.accumulate(since_full)
