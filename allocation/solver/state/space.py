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
from allocation.solver.placement.gang import Choice, Ground, Want, choose, fits, most_together
from allocation.solver.timeline.gpu_calendar import Calendar
from allocation.solver.timeline.host_calendar import Free, Hosts
from allocation.solver.timeline.mig_modes import Modes, cut_of
from allocation.solver.timeline.share_calendar import Sharers

_MOST_LOOKS = 32
"""Windows of a class that are kept in mind until something changes in it."""
_FIRST_CHUNK = 8
_CHUNK_GROWTH = 4
_CHUNK_MOST = 1_024


@dataclass(frozen=True, slots=True)
class Found:
    """A gang's places for a window, not yet reserved. `taste` is the rank of its class.

    `over` are the running bookings on whose room it stands: they must be paused for it.
    """

    want: Want
    places: tuple[Place, ...]
    starts: int
    taste: int = 0
    over: tuple[str, ...] = ()

    @property
    def ends(self) -> int:
        """End of the window."""
        return self.starts + self.want.duration

    @property
    def window(self) -> tuple[int, int]:
        """[starts, ends)."""
        return (self.starts, self.ends)


@dataclass(frozen=True, slots=True)
class Left:
    """What held work leaves of a class in a window: room for the whole ask, GPUs for it, and how
    many GPUs of the shape together when there are too few."""

    is_enough: bool
    has_gpus: bool
    together: int = 0


@dataclass(frozen=True, slots=True)
class _Look:
    """A class in one window, and what was chosen there."""

    ground: Ground
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
        self.calendars = {name: Calendar(pool, self.now) for name, pool in self.pools.items()}
        self.hosts = Hosts(snapshot.hosts, self.pools.values(), self.now)
        self.sharers = self.held_sharers = Sharers((), alone=False)
        self.modes = self.held_modes = Modes(self.pools.values(), snapshot.held, self.now)
        self.firm: dict[str, Calendar] = {}
        self.firm_hosts: Hosts | None = None
        self.held_only: dict[str, Calendar] = {}
        self.held_hosts: Hosts | None = None
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

    def is_free(self, found: Found) -> bool:
        """True when its places, and what comes with them, are free for the whole window."""
        want, window = found.want, found.window
        if not self.calendars[want.gpu_class].is_free(found.places, *window):
            return False
        if not self.sharers.is_free(found.places, want.owner, window):
            return False
        if not self.modes.is_free(self.pools[want.gpu_class], found.places, window):
            return False
        return self.hosts.has(found.places, want.of_host, window)

    def free_until(self, gpu_class: str, place: Place, window: tuple[int, int]) -> int:
        """End of the free stretch of a place from the window's start on, within the window."""
        ends = self.calendars[gpu_class].free_until(place, *window)
        return self.modes.free_until(self.pools[gpu_class], place, window[0], ends)

    def busy(
        self, want: Want, starts: Ints, *, held_only: bool = False
    ) -> tuple[Masks, Free | None]:
        """What is taken in windows of the want's length, and what nodes have free in them."""
        calendars, hosts, sharers, modes = self.calendars, self.hosts, self.sharers, self.modes
        if held_only and self.held_hosts is not None:
            calendars, hosts, sharers = self.held_only, self.held_hosts, self.held_sharers
            modes = self.held_modes
        masks = calendars[want.gpu_class].busy(starts, want.duration)
        pool = self.pools[want.gpu_class]
        if want.share is not None:
            masks[sharers.others(pool, want.owner, (starts, want.duration))] = WHOLE_MASK
        if want.pin:
            masks[:, ~pool.within(want.pin)] = WHOLE_MASK
        if modes.matters(want.gpu_class):
            masks[modes.others(pool, want.shape, (starts, want.duration))] = WHOLE_MASK
            for row, begin in enumerate(starts.tolist() if want.still else ()):
                masks[row, modes.turning(pool, want.shape, begin)] = WHOLE_MASK
        if not self._minds_hosts(want, pool):
            return masks, None
        return masks, hosts.free(pool, starts, want.duration)

    def left_by_held(self, want: Want, starts: int) -> Left:
        """The window from `starts` on, as if nothing were reserved."""
        pool = self.pools[want.gpu_class]
        held, beside = self.busy(want, np.array([starts], dtype=np.int64), held_only=True)
        if fits(pool, want, held, beside)[0]:
            return Left(is_enough=True, has_gpus=True)
        if fits(pool, want, held)[0]:
            return Left(is_enough=False, has_gpus=True)
        return Left(is_enough=False, has_gpus=False, together=most_together(pool, want, held[0]))

    def would_fit_in_service(self, want: Want, starts: int) -> bool:
        """The same if every GPU of the class were in service: whether those that are out of it are
        in the way."""
        pool, at = self.pools[want.gpu_class], np.array([starts], dtype=np.int64)
        held, _ = self.busy(want, at, held_only=True)
        capacity = pool.capacity_on(want.shape, held[0], pool.suits(want.shape))
        return int(pool.sums(want.level, capacity).max()) >= want.count

    def may_fit(self, want: Want, starts: Ints) -> Bools:
        """False for windows without room for whole GPUs; others may lack what else they need.

        Looks at bits instead of masks, for when there are many windows.
        """
        pool = self.pools[want.gpu_class]
        calendar = self.calendars[want.gpu_class]
        eligible = pool.eligible(None)
        if want.pin:
            eligible = eligible & pool.within(want.pin)
        idle = calendar.idle(starts, want.duration, eligible)
        able: Bools = np.bitwise_count(idle).sum(axis=1) >= want.count
        if want.level != "any":
            columns = np.unpackbits(idle[able], axis=1, count=len(pool))
            able[able] = pool.has_group(want.level, columns, want.count)
        return able

    def first_of(self, want: Want, tried: Ints) -> int | None:
        """The first of rising starts at which it fits, alone, then in ever larger bites: most
        bookings need few of them."""
        begin, size = 0, 1
        while begin < len(tried):
            starts = self._first_fit(want, tried[begin : begin + size])
            if starts is not None:
                return starts
            begin, size = begin + size, min(_CHUNK_MOST, max(_FIRST_CHUNK, size * _CHUNK_GROWTH))
        return None

    def _first_fit(self, want: Want, bite: Ints) -> int | None:
        """The first of rising starts at which it fits."""
        if want.shape is None and len(bite) > 1:
            hopeful = bite[self.may_fit(want, bite)]
            if self._is_only_room(want):
                return int(hopeful[0]) if len(hopeful) else None
            found = (self._first_fit(want, each) for each in hopeful[:, None])
            return next((starts for starts in found if starts is not None), None)
        good = fits(self.pools[want.gpu_class], want, *self.busy(want, bite))
        return int(bite[int(good.argmax())]) if good.any() else None

    def _is_only_room(self, want: Want) -> bool:
        """True when whole GPUs that are idle are all that it takes."""
        name = want.gpu_class
        is_plain = not self.calendars[name].has_shares and not self.modes.matters(name)
        return is_plain and not any(want.of_host)

    def most_beside(self, want: Want) -> int:
        """How many of the want one group could hold for its cores and memory if all were idle."""
        pool = self.pools[want.gpu_class]
        return most_together(pool, want, self._empty(want), self.hosts.whole(pool))

    def most_pinned(self, want: Want) -> int:
        """How many of the want one group could hold of what it is pinned to, if all were idle and
        in service."""
        pool = self.pools[want.gpu_class]
        capacity = pool.capacity_on(want.shape, self._empty(want), pool.suits(want.shape))
        return int(pool.sums(want.level, capacity).max())

    def _empty(self, want: Want) -> Masks:
        """Nothing is taken, but what a pin leaves out."""
        pool = self.pools[want.gpu_class]
        empty = np.zeros(len(pool), dtype=np.uint16)
        if want.pin:
            empty[~pool.within(want.pin)] = WHOLE_MASK
        return empty

    def free_of_firm(self, want: Want, starts: int) -> Free | None:
        """What nodes would have free in the window if all who may be paused had left."""
        if self.firm_hosts is None or not any(want.of_host):
            return None
        at = np.array([starts], dtype=np.int64)
        return self.firm_hosts.free(self.pools[want.gpu_class], at, want.duration).row(0)

    def firm_beside(self, node: str, window: tuple[int, int]) -> tuple[int, int]:
        """The same of one node, at every instant of any window. ValueError: nobody may leave."""
        if self.firm_hosts is None:
            raise ValueError("nobody may be paused")
        return self.firm_hosts.least(node, window)

    def starts_between(self, want: Want, first: int, last: int) -> Ints:
        """Candidate starts: `first`, then each instant up to `last` at which room changes."""
        tried = self.calendars[want.gpu_class].starts_between(first, last)
        if self.modes.matters(want.gpu_class):
            pool = self.pools[want.gpu_class]
            tried = np.union1d(tried, self.modes.instants(pool, want.shape, first, last))
        return np.union1d(tried, self.hosts.between(first, last)) if any(want.of_host) else tried

    def stretches(self, gpu_class: str, since: int, until: int) -> tuple[Ints, Ints, Masks]:
        """Begins and ends of the stretches of [since, until) in which nothing changes for whole
        GPUs, and what is taken in each; a GPU that has the other mode is."""
        calendar, pool = self.calendars[gpu_class], self.pools[gpu_class]
        begins = calendar.starts_between(since, until - 1)
        if self.modes.matters(gpu_class):
            begins = np.union1d(begins, self.modes.edges(pool, None, since, until - 1))
        busy = calendar.busy(begins, 1)
        if self.modes.matters(gpu_class):
            busy[self.modes.others(pool, None, (begins, 1))] = WHOLE_MASK
        return begins, np.append(begins[1:], until), busy

    def ground(self, want: Want, starts: int) -> Ground:
        """The want's class as it is in the window from `starts` on, for choosing places."""
        return self._look(want, starts).ground

    def _choice(self, want: Want, starts: int) -> Choice | None:
        look = self._look(want, starts)
        key = (want.shape, want.count, want.level, want.of_host)
        if key not in look.choices:
            look.choices[key] = choose(look.ground, want)
        return look.choices[key]

    def _look(self, want: Want, starts: int) -> "_Look":
        """The class in the window, as it was looked at before if nothing has changed since."""
        name, pool = want.gpu_class, self.pools[want.gpu_class]
        versions = (self.calendars[name].version, self.hosts.version[name])
        if self._versions.get(name) != versions or len(self._looks[name]) == _MOST_LOOKS:
            self._versions[name], self._looks[name] = versions, {}
        whose = want.owner if want.share is not None else None
        cut = cut_of(want.shape) if self.modes.matters(name) else None
        key = (starts, want.duration, self._minds_hosts(want, pool), whose, want.pin, cut)
        look = self._looks[name].get(key)
        if look is None:
            busy, free = self.busy(want, np.array([starts], dtype=np.int64))
            turns = None if cut is None else self.modes.turning(pool, want.shape, starts)
            look = _Look(Ground(pool, busy[0], free and free.row(0), turns), {})
            self._looks[name][key] = look
        return look

    def _minds_hosts(self, want: Want, pool: Pool) -> bool:
        """True when it matters here what nodes have beside GPUs."""
        return any(want.of_host) or (pool.values.minds_cores and self.hosts.are_known)
