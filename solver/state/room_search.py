"""The search for room: which windows have room and quota, and the best places in each."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import WHOLE_MASK, Masks
from solver.fleet.pool import Pool
from solver.model.demand import Demand, Fit
from solver.model.inputs import Place, Snapshot
from solver.model.ordering import place_order
from solver.model.policy import Policy
from solver.placement.gang import Choice, DataPlaces, choose, fits
from solver.placement.scoring import PoolState
from solver.quota.use import Block, Use
from solver.reasons.reason import Reason
from solver.state.held_space import HeldSpace
from solver.state.held_work import HeldWork
from solver.state.occupancy import Occupancy
from solver.state.room_bounds import RoomBounds, chunks
from solver.timeline.grid import Grid
from solver.timeline.host_calendar import Free
from solver.timeline.maintenance import MaintenanceCalendar
from solver.timeline.mig_modes import hardware_mode_of

_MOST_WINDOWS = 32
"""Most windows of a class that are cached until something changes in it."""


@dataclass(frozen=True, slots=True)
class _WindowState:
    """A class in one window, and the places chosen there."""

    pool_state: PoolState
    choices: dict[tuple[object, ...], Choice | None]


def is_only_room(occupancy: Occupancy, demand: Demand) -> bool:
    """True when GPUs are all that it needs, and none is shared or changes its mode."""
    name = demand.gpu_class
    is_plain = not occupancy.gpus[name].has_shares and not occupancy.modes.may_switch(name)
    return is_plain and demand.share is None and not any(demand.host_resources)


@dataclass(slots=True)
class WindowStates:
    """Each class in the windows that were looked at, with the places chosen there, until something
    changes in it."""

    _all: Occupancy
    _pools: Mapping[str, Pool]
    _data: DataPlaces
    _versions: dict[str, tuple[int, int]] = field(default_factory=dict)
    _windows: dict[str, dict[tuple[object, ...], _WindowState]] = field(default_factory=dict)

    def pool_state(self, demand: Demand, starts: int) -> PoolState:
        """The demand's class in the window from `starts` on, for choosing places."""
        return self._state(demand, starts).pool_state

    def choice(self, demand: Demand, starts: int) -> Choice | None:
        """The best places for a demand in the window from `starts` on; None: there are none."""
        found = self._state(demand, starts)
        key = (demand.shape, demand.count, demand.level, demand.host_resources, demand.data)
        if key not in found.choices:
            pool = self._pools[demand.gpu_class]
            preferred = self._data.preferred(pool, demand.data) if demand.data else ()
            found.choices[key] = choose(found.pool_state, demand, preferred)
        return found.choices[key]

    def _state(self, demand: Demand, starts: int) -> _WindowState:
        """The class in the window, cached until something changes."""
        name, pool = demand.gpu_class, self._pools[demand.gpu_class]
        versions = (self._all.gpus[name].version, self._all.hosts.version[name])
        if self._versions.get(name) != versions or len(self._windows[name]) == _MOST_WINDOWS:
            self._versions[name], self._windows[name] = versions, {}
        whose = demand.owner if demand.share is not None else None
        cut = hardware_mode_of(demand.shape) if self._all.modes.may_switch(name) else None
        is_hosted = self._all.needs_hosts(demand, pool)
        key = (starts, demand.duration, is_hosted, whose, demand.pin, demand.where, cut)
        found = self._windows[name].get(key)
        if found is None:
            busy, free = self._all.busy(demand, np.array([starts], dtype=np.int64))
            switches = None if cut is None else self._all.modes.switching(pool, demand.shape, starts)
            found = _WindowState(PoolState(pool, busy[0], free and free.row(0), switches), {})
            self._windows[name][key] = found
        return found


@dataclass(slots=True)
class HeldRoom:
    """What held work alone leaves of the fleet."""

    _held: Occupancy
    _all: Occupancy
    _grid: Grid
    _maintenance: MaintenanceCalendar
    _next_seconds: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def busy(self, demand: Demand, starts: int) -> tuple[Masks, Free | None]:
        """What held work alone takes in one window, as `Occupancy.busy` says it; for whole GPUs
        without the profiles of those that are taken."""
        if not self._is_plain(demand):
            return self._held.busy(demand, np.array([starts], dtype=np.int64))
        is_taken = self._idle_until(demand.gpu_class, starts) < self._grid.end(starts + demand.duration)
        return (is_taken * np.uint16(WHOLE_MASK))[None, :], None

    def window(self, demand: Demand, starts: int) -> tuple[int, bool]:
        """The same for all windows from `starts` on in which held work takes the same GPUs from the
        demand."""
        if not self._is_plain(demand) or self._maintenance.by_class.get(demand.gpu_class):
            return (demand.duration, False)
        key = (demand.gpu_class, starts)
        if key not in self._next_seconds:
            self._next_seconds[key] = np.unique(self._idle_until(*key)).tolist()
        return (bisect_left(self._next_seconds[key], self._grid.end(starts + demand.duration)), True)

    def _is_plain(self, demand: Demand) -> bool:
        """True when it is enough to know until when each whole GPU is idle."""
        return demand.shape is None and not demand.is_bound and is_only_room(self._all, demand)

    def _idle_until(self, gpu_class: str, starts: int) -> Ints:
        """For each column the second until which held work leaves it idle; no later one than
        `starts`: it is taken then."""
        calendar = self._held.gpus[gpu_class]
        rows = calendar.steps.rows_at(np.array([starts], dtype=np.int64))
        found: Ints = calendar.following.after_rows(rows)[0]
        return found


def parts_by_zone(fleet: Mapping[str, Pool], demand: Demand) -> Iterator[tuple[Demand, ...]]:
    """The groups of a mixed demand, for each zone in which all of them may be."""
    pools = [fleet[part.gpu_class] for part in demand.parts]
    zones = set[str]().union(*(pool.zones for pool in pools))
    if len(zones) < 2:
        yield demand.parts
        return
    for zone in sorted(zones):
        parts = tuple(there for part in demand.parts if (there := part.in_zone(zone)) is not None)
        if len(parts) == len(pools):
            yield parts


class RoomSearch(HeldSpace):
    """The search for room and quota: at one second, or at the earliest one."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, work: HeldWork, asked: frozenset[str] | None = None
    ) -> None:
        """Load the work, as `HeldSpace`. KeyError: unknown model."""
        self.held_blockers: dict[tuple[object, ...], tuple[Reason, ...]] = {}
        self._quiet = frozenset(snapshot.quiet)
        super().__init__(snapshot, policy, work, asked)
        self.data = DataPlaces(snapshot.caches)
        self.windows = WindowStates(self.all, self.pools, self.data)
        self.held_room = HeldRoom(self.held, self.all, self.grid, self.maintenance)
        self.bounds = RoomBounds(self.all.gpus)

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
        return self.first_of(demand, np.array([starts], dtype=np.int64)) is not None

    def has_room_unpinned(self, demand: Demand, starts: int) -> bool:
        """True when a pinned demand would have room elsewhere, whatever its quota."""
        return self._placed([(0, replace(demand, pin=()))], starts) is not None

    def _placed(self, demands: Iterable[tuple[int, Demand]], starts: int) -> Fit | None:
        """The same for demands, with their class ranks, that quota allows."""
        best: tuple[tuple[int, int, int], Fit] | None = None
        for class_rank, demand in demands:
            if demand.groups:
                return self._placed_together(demand, starts)
            choice = self.windows.choice(demand, starts)
            if choice is None:
                continue
            found = Fit(demand, choice.places, starts, class_rank)
            if not demand.any_class:
                return found
            missing = self.data.missing(self.pools[demand.gpu_class], choice.places, demand.data)
            cost = (choice.apart, missing, choice.loss)
            if best is None or cost < best[0]:
                best = (cost, found)
        return best and best[1]

    def _placed_together(self, demand: Demand, starts: int) -> Fit | None:
        """Places of all groups of a mixed demand; None when one of them does not fit."""
        found = (self._places_together(parts, starts) for parts in parts_by_zone(self.pools, demand))
        places = next((each for each in found if each is not None), None)
        return None if places is None else Fit(demand, tuple(sorted(places, key=place_order)), starts)

    def _places_together(self, parts: Iterable[Demand], starts: int) -> list[Place] | None:
        places: list[Place] = []
        with self._host_use() as take:
            for part in parts:
                choice = self.windows.choice(part, starts)
                if choice is None:
                    return None
                places += choice.places
                take(Fit(part, choice.places, starts))
        return places

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
                later = self.all.starts_between(demand, starts, last)
                later = later[later > starts]
                starts = int(later[0]) if len(later) else None
        return None

    def _earliest(self, demand: Demand, first: int, last: int) -> int | None:
        if demand.groups:
            return self._earliest_together(demand, first, last)
        if first > last:
            return None
        tried, use = self._with_room(demand, first, last), self.use(demand)
        days = self.quota.instants(use)
        if len(days):
            days = days[(days > first) & (days <= last)]
            tried = np.union1d(tried, days[self.bounds.may_have_room(demand, days)])
        allowed = self.quota.allows(use, tried, demand.duration) if len(tried) else None
        hopeful = tried if allowed is None else tried[allowed]
        if demand.shape is None and is_only_room(self.all, demand):
            return self.bounds.first_idle(demand, hopeful)
        starts = self._first_of(demand, hopeful)
        return None if starts is None else self._with_patience(demand, starts, hopeful)

    def _with_room(self, demand: Demand, first: int, last: int) -> Ints:
        """Those of `starts_between` at which there may be room."""
        if is_only_room(self.all, demand):
            return self.bounds.starts_between(demand, first, last)
        tried = self.all.starts_between(demand, first, last)
        return tried[self.bounds.may_have_room(demand, tried)]

    def _with_patience(self, demand: Demand, starts: int, hopeful: Ints) -> int:
        """That start, or one slightly later at which no GPU has to change its mode."""
        if not self.all.modes.may_switch(demand.gpu_class):
            return starts
        patience = self.policy.of(demand.gpu_class).mode_patience
        near = hopeful[(hopeful >= starts) & (hopeful <= starts + patience)]
        calm = self.first_of(replace(demand, keeps_modes=True), near)
        return starts if calm is None else calm

    def first_of(self, demand: Demand, tried: Ints) -> int | None:
        """The first of rising starts at which the demand fits."""
        if demand.groups:
            for each in demand.parts:
                tried = tried[[self._has_place(each, at) for at in tried.tolist()]]
            return int(tried[0]) if len(tried) else None
        return self._first_of(demand, tried[self.bounds.may_have_room(demand, tried)])

    def first_between(self, demand: Demand, first: int, last: int) -> int | None:
        """The first start in [first, last] at which a demand of one class fits."""
        return self._first_of(demand, self._with_room(demand, first, last))

    def _first_of(self, demand: Demand, tried: Ints) -> int | None:
        if demand.shape is None and is_only_room(self.all, demand):
            return self.bounds.first_idle(demand, tried)
        found = (self._first_fit(demand, chunk) for chunk in chunks(tried, 1))
        return next((starts for starts in found if starts is not None), None)

    def _has_place(self, demand: Demand, starts: int) -> bool:
        return self._first_of(demand, np.array([starts], dtype=np.int64)) is not None

    def _first_fit(self, demand: Demand, bite: Ints) -> int | None:
        """The first of a chunk of rising starts at which it fits."""
        if demand.shape is None and len(bite) > 1:
            hopeful = bite[self.bounds.have_idle(demand, bite)]
            found = (self._first_fit(demand, each) for each in hopeful[:, None])
            return next((starts for starts in found if starts is not None), None)
        good = fits(self.pools[demand.gpu_class], demand, *self.all.busy(demand, bite))
        if is_only_room(self.all, demand) and not demand.pin:
            self.bounds.lack_room(demand, bite[~good])
        return int(bite[int(good.argmax())]) if good.any() else None
