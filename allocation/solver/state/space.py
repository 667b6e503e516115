"""Room of all classes over time, with what their nodes have: what is taken, and where one could go.

`Working` decides who gets it; here nothing knows of quota, order or pauses.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from allocation.reasons.reason import Reason
from allocation.solver.fleet.columns import Bools
from allocation.solver.fleet.demand_mix import mixes_of
from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.mig_geometry import WHOLE_MASK, Masks
from allocation.solver.fleet.pool import Pool, pools_of
from allocation.solver.model.inputs import Place, Snapshot
from allocation.solver.placement.gang import Choice, Demand, PoolState, choose, fits, most_together
from allocation.solver.timeline.gpu_calendar import GpuCalendar
from allocation.solver.timeline.host_calendar import Free, HostCalendar
from allocation.solver.timeline.mig_modes import ModeCalendar, hardware_mode_of
from allocation.solver.timeline.share_calendar import ShareCalendar

_MOST_LOOKS = 32
"""Windows of a class that are kept in mind until something changes in it."""
_FIRST_CHUNK = 8
_CHUNK_GROWTH = 4
_CHUNK_MOST = 1_024


@dataclass(frozen=True, slots=True)
class Fit:
    """A gang's places for a window, not yet reserved. `class_rank` is the rank of its class.

    `over` are the running bookings on whose room it stands: they must be paused for it.
    """

    demand: Demand
    places: tuple[Place, ...]
    starts: int
    class_rank: int = 0
    over: tuple[str, ...] = ()

    @property
    def ends(self) -> int:
        """End of the window."""
        return self.starts + self.demand.duration

    @property
    def window(self) -> tuple[int, int]:
        """[starts, ends)."""
        return (self.starts, self.ends)


@dataclass(frozen=True, slots=True)
class RoomLeft:
    """What held work leaves of a class in a window: room for the whole ask, GPUs for it, and how
    many GPUs of the shape together when there are too few."""

    is_enough: bool
    has_gpus: bool
    together: int = 0


@dataclass(frozen=True, slots=True)
class _Look:
    """A class in one window, and what was chosen there."""

    pool_state: PoolState
    choices: dict[tuple[object, ...], Choice | None]


class Space:
    """Pools, calendars and nodes. Subclasses lay on them what is held and given."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Empty. KeyError: unknown model."""
        self.now = snapshot.now
        self.pools: dict[str, Pool] = pools_of(
            snapshot.gpus,
            snapshot.models,
            mixes_of(snapshot.gpus, snapshot.held, snapshot.requests),
        )
        self.calendars = {name: GpuCalendar(pool, self.now) for name, pool in self.pools.items()}
        self.hosts = HostCalendar(snapshot.hosts, self.pools.values(), self.now)
        self.sharers = self.held_sharers = ShareCalendar((), alone=False)
        self.modes = self.held_modes = ModeCalendar(self.pools.values(), snapshot.held, self.now)
        self.firm: dict[str, GpuCalendar] = {}
        self.firm_hosts: HostCalendar | None = None
        self.held_only: dict[str, GpuCalendar] = {}
        self.held_hosts: HostCalendar | None = None
        self.beside_held: dict[tuple[object, ...], tuple[Reason, ...]] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._looks: dict[str, dict[tuple[object, ...], _Look]] = {}
        self._class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}

    def class_of(self, gpu: str) -> str | None:
        """Class of a GPU; None when the fleet does not have it."""
        return self._class_of.get(gpu)

    def is_in_service(self, gpu: str) -> bool:
        """True when the GPU is in the fleet and may keep what it has."""
        name = self.class_of(gpu)
        return name is not None and bool(self.pools[name].in_service[self.pools[name].column[gpu]])

    def units(self, gpu_class: str, places: Iterable[Place]) -> int:
        """Quota units of the places."""
        pool = self.pools[gpu_class]
        return sum(pool.geometry(place.gpu).units_taken(place) for place in places)

    def is_free(self, found: Fit) -> bool:
        """True when its places, and what comes with them, are free for the whole window."""
        demand, window = found.demand, found.window
        if not self.calendars[demand.gpu_class].is_free(found.places, *window):
            return False
        if not self.sharers.is_free(found.places, demand.owner, window):
            return False
        if not self.modes.is_free(self.pools[demand.gpu_class], found.places, window):
            return False
        return self.hosts.has(found.places, demand.of_host, window)

    def free_until(self, gpu_class: str, place: Place, window: tuple[int, int]) -> int:
        """End of the free stretch of a place from the window's start on, within the window."""
        ends = self.calendars[gpu_class].free_until(place, *window)
        return self.modes.free_until(self.pools[gpu_class], place, window[0], ends)

    def busy(
        self, demand: Demand, starts: Ints, *, held_only: bool = False
    ) -> tuple[Masks, Free | None]:
        """What is taken in windows of the want's length, and what nodes have free in them."""
        calendars, hosts, sharers, modes = self.calendars, self.hosts, self.sharers, self.modes
        if held_only and self.held_hosts is not None:
            calendars, hosts, sharers = self.held_only, self.held_hosts, self.held_sharers
            modes = self.held_modes
        masks = calendars[demand.gpu_class].busy(starts, demand.duration)
        pool = self.pools[demand.gpu_class]
        if demand.share is not None:
            masks[sharers.others(pool, demand.owner, (starts, demand.duration))] = WHOLE_MASK
        if demand.pin:
            masks[:, ~pool.within(demand.pin)] = WHOLE_MASK
        if modes.may_switch(demand.gpu_class):
            masks[modes.others(pool, demand.shape, (starts, demand.duration))] = WHOLE_MASK
            for row, begin in enumerate(starts.tolist() if demand.keeps_modes else ()):
                masks[row, modes.switching(pool, demand.shape, begin)] = WHOLE_MASK
        if not self._minds_hosts(demand, pool):
            return masks, None
        return masks, hosts.free(pool, starts, demand.duration)

    def left_by_held(self, demand: Demand, starts: int) -> RoomLeft:
        """The window from `starts` on, as if nothing were reserved."""
        pool = self.pools[demand.gpu_class]
        held, beside = self.busy(demand, np.array([starts], dtype=np.int64), held_only=True)
        if fits(pool, demand, held, beside)[0]:
            return RoomLeft(is_enough=True, has_gpus=True)
        if fits(pool, demand, held)[0]:
            return RoomLeft(is_enough=False, has_gpus=True)
        return RoomLeft(
            is_enough=False, has_gpus=False, together=most_together(pool, demand, held[0])
        )

    def would_fit_in_service(self, demand: Demand, starts: int) -> bool:
        """The same if every GPU of the class were in service: whether those that are out of it are
        in the way."""
        pool, at = self.pools[demand.gpu_class], np.array([starts], dtype=np.int64)
        held, _ = self.busy(demand, at, held_only=True)
        capacity = pool.capacity_on(demand.shape, held[0], pool.suits(demand.shape))
        return int(pool.sums(demand.level, capacity).max()) >= demand.count

    def may_fit(self, demand: Demand, starts: Ints) -> Bools:
        """False for windows without room for whole GPUs; others may lack what else they need.

        Looks at bits instead of masks, for when there are many windows.
        """
        pool = self.pools[demand.gpu_class]
        calendar = self.calendars[demand.gpu_class]
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
        """The first of rising starts at which it fits, alone, then in ever larger bites: most
        bookings need few of them."""
        begin, size = 0, 1
        while begin < len(tried):
            starts = self._first_fit(demand, tried[begin : begin + size])
            if starts is not None:
                return starts
            begin, size = begin + size, min(_CHUNK_MOST, max(_FIRST_CHUNK, size * _CHUNK_GROWTH))
        return None

    def _first_fit(self, demand: Demand, bite: Ints) -> int | None:
        """The first of rising starts at which it fits."""
        if demand.shape is None and len(bite) > 1:
            hopeful = bite[self.may_fit(demand, bite)]
            if self._is_only_room(demand):
                return int(hopeful[0]) if len(hopeful) else None
            found = (self._first_fit(demand, each) for each in hopeful[:, None])
            return next((starts for starts in found if starts is not None), None)
        good = fits(self.pools[demand.gpu_class], demand, *self.busy(demand, bite))
        return int(bite[int(good.argmax())]) if good.any() else None

    def _is_only_room(self, demand: Demand) -> bool:
        """True when whole GPUs that are idle are all that it takes."""
        name = demand.gpu_class
        is_plain = not self.calendars[name].has_shares and not self.modes.may_switch(name)
        return is_plain and not any(demand.of_host)

    def most_on_hosts(self, demand: Demand) -> int:
        """How many of the want one group could hold for its cores and memory if all were idle."""
        pool = self.pools[demand.gpu_class]
        return most_together(pool, demand, self._empty(demand), self.hosts.whole(pool))

    def most_pinned(self, demand: Demand) -> int:
        """How many of the want one group could hold of what it is pinned to, if all were idle and
        in service."""
        pool = self.pools[demand.gpu_class]
        capacity = pool.capacity_on(demand.shape, self._empty(demand), pool.suits(demand.shape))
        return int(pool.sums(demand.level, capacity).max())

    def _empty(self, demand: Demand) -> Masks:
        """Nothing is taken, but what a pin leaves out."""
        pool = self.pools[demand.gpu_class]
        empty = np.zeros(len(pool), dtype=np.uint16)
        if demand.pin:
            empty[~pool.within(demand.pin)] = WHOLE_MASK
        return empty

    def free_of_firm(self, demand: Demand, starts: int) -> Free | None:
        """What nodes would have free in the window if all who may be paused had left."""
        if self.firm_hosts is None or not any(demand.of_host):
            return None
        at = np.array([starts], dtype=np.int64)
        return self.firm_hosts.free(self.pools[demand.gpu_class], at, demand.duration).row(0)

    def firm_beside(self, node: str, window: tuple[int, int]) -> tuple[int, int]:
        """The same of one node, at every instant of any window. ValueError: nobody may leave."""
        if self.firm_hosts is None:
            raise ValueError("nobody may be paused")
        return self.firm_hosts.least(node, window)

    def starts_between(self, demand: Demand, first: int, last: int) -> Ints:
        """Candidate starts: `first`, then each instant up to `last` at which room changes."""
        tried = self.calendars[demand.gpu_class].starts_between(first, last)
        if self.modes.may_switch(demand.gpu_class):
            pool = self.pools[demand.gpu_class]
            tried = np.union1d(tried, self.modes.instants(pool, demand.shape, first, last))
        return np.union1d(tried, self.hosts.between(first, last)) if any(demand.of_host) else tried

    def stretches(self, gpu_class: str, since: int, until: int) -> tuple[Ints, Ints, Masks]:
        """Begins and ends of the stretches of [since, until) in which nothing changes for whole
        GPUs, and what is taken in each; a GPU that has the other mode is."""
        calendar, pool = self.calendars[gpu_class], self.pools[gpu_class]
        begins = calendar.starts_between(since, until - 1)
        if self.modes.may_switch(gpu_class):
            begins = np.union1d(begins, self.modes.edges(pool, None, since, until - 1))
        busy = calendar.busy(begins, 1)
        if self.modes.may_switch(gpu_class):
            busy[self.modes.others(pool, None, (begins, 1))] = WHOLE_MASK
        return begins, np.append(begins[1:], until), busy

    def pool_state(self, demand: Demand, starts: int) -> PoolState:
        """The want's class as it is in the window from `starts` on, for choosing places."""
        return self._look(demand, starts).pool_state

    def _choice(self, demand: Demand, starts: int) -> Choice | None:
        look = self._look(demand, starts)
        key = (demand.shape, demand.count, demand.level, demand.of_host)
        if key not in look.choices:
            look.choices[key] = choose(look.pool_state, demand)
        return look.choices[key]

    def _look(self, demand: Demand, starts: int) -> "_Look":
        """The class in the window, as it was looked at before if nothing has changed since."""
        name, pool = demand.gpu_class, self.pools[demand.gpu_class]
        versions = (self.calendars[name].version, self.hosts.version[name])
        if self._versions.get(name) != versions or len(self._looks[name]) == _MOST_LOOKS:
            self._versions[name], self._looks[name] = versions, {}
        whose = demand.owner if demand.share is not None else None
        cut = hardware_mode_of(demand.shape) if self.modes.may_switch(name) else None
        key = (starts, demand.duration, self._minds_hosts(demand, pool), whose, demand.pin, cut)
        look = self._looks[name].get(key)
        if look is None:
            busy, free = self.busy(demand, np.array([starts], dtype=np.int64))
            switches = None if cut is None else self.modes.switching(pool, demand.shape, starts)
            look = _Look(PoolState(pool, busy[0], free and free.row(0), switches), {})
            self._looks[name][key] = look
        return look

    def _minds_hosts(self, demand: Demand, pool: Pool) -> bool:
        """True when it matters here what nodes have beside GPUs."""
        return any(demand.of_host) or (pool.values.minds_cores and self.hosts.are_known)
