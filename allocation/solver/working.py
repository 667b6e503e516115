"""The working state of a cycle: frozen values go in, this changes, frozen values come out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from allocation.solver.calendar import Calendar
from allocation.solver.demand import mixes_of
from allocation.solver.fragmentation import Ints
from allocation.solver.geometry import Masks
from allocation.solver.hosts import Free, Hosts
from allocation.solver.placement import Choice, Ground, Want, choose, fits, most_together
from allocation.solver.quota import Block, Quota, Use
from allocation.solver.running import Running, runners_of
from allocation.solver.topology import Pool, pools_of
from allocation.solver.types import UNITS_PER_GPU, Held, Place, Policy, Request, Snapshot

_FIRST_CHUNK = 8
_CHUNK_GROWTH = 4


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
class _Seen:
    """A class in one window, and what was chosen there; void when its key has changed."""

    key: tuple[int, ...]
    ground: Ground
    choices: dict[tuple[object, ...], Choice | None]


class Working:
    """Pools, calendars and quota usage, filled with what is held."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Step one of every cycle: lay what is live on the calendar. KeyError: unknown model."""
        self.now = snapshot.now
        self.policy = policy
        self.pools: dict[str, Pool] = pools_of(
            snapshot.gpus,
            snapshot.models,
            mixes_of(snapshot.gpus, snapshot.held, snapshot.requests),
        )
        self.calendars = {name: Calendar(pool, self.now) for name, pool in self.pools.items()}
        self.capacity = {name: len(pool) * UNITS_PER_GPU for name, pool in self.pools.items()}
        self.quota = Quota(snapshot, self.capacity)
        self.hosts = Hosts(snapshot.hosts, self.pools.values(), self.now)
        self._last: dict[str, _Seen] = {}
        self._class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
        self.running = Running(runners_of(snapshot, policy, self.pools, self.quota.tier))
        self._prime(snapshot)
        # The same without what may be paused; only where somebody may be.
        self.firm = {name: self.calendars[name].copy() for name in self.running.classes}
        self.firm_hosts = self.hosts.copy() if self.firm else None
        for held in snapshot.held:
            self._lay(held)
        self.held_only = {name: calendar.copy() for name, calendar in self.calendars.items()}
        self.held_hosts = self.hosts.copy()

    def class_of(self, gpu: str) -> str | None:
        """Class of a GPU; None when the fleet does not have it."""
        return self._class_of.get(gpu)

    def is_usable(self, gpu: str) -> bool:
        """True when the GPU is in the fleet and takes new work."""
        name = self.class_of(gpu)
        return name is not None and bool(self.pools[name].usable[self.pools[name].column[gpu]])

    def end_of(self, held: Held) -> int:
        """When its room is free again: work past its end stays for one more grid step."""
        return held.ends if held.ends > self.now else self.now + self.policy.grid

    def units(self, gpu_class: str, places: Iterable[Place]) -> int:
        """Quota units of the places."""
        pool = self.pools[gpu_class]
        return sum(pool.geometry(place.gpu).units_taken(place) for place in places)

    def first_start(self, earliest: int) -> int:
        """First second a booking may start: now, or its own wish on the grid."""
        if earliest <= self.now:
            return self.now
        return -(-earliest // self.policy.grid) * self.policy.grid

    def last_start(self, request: Request) -> int:
        """Last second a flexible booking may start: its deadline's, or the horizon's."""
        horizon = self.now + self.policy.horizon
        return (
            horizon if request.latest is None else min(horizon, request.latest - request.duration)
        )

    def reserve(self, found: Found) -> None:
        """Take room and quota for it. ValueError when the room is not free."""
        name = found.want.gpu_class
        firm = self.firm.get(name)
        if found.over:
            self.firm[name].put(found.places, *found.window)
            self.calendars[name].lay(found.places, *found.window)
            for booking in found.over:
                self._leaves(booking, self.running.promise, found.starts)
        else:
            self.calendars[name].put(found.places, *found.window)
            if firm is not None:
                firm.lay(found.places, *found.window)
        self._lay_hosts(found, 1)
        self.quota.add(self.use(found.want), found.window)

    def free(self, found: Found) -> None:
        """Undo of `reserve`."""
        name = found.want.gpu_class
        firm = self.firm.get(name)
        if firm is not None:
            firm.drop(found.places, *found.window)
        if found.over:
            for booking in found.over:
                self._leaves(booking, self.running.forget, found.starts)
            self._redraw(name, {place.gpu for place in found.places})
        else:
            self.calendars[name].drop(found.places, *found.window)
        self._lay_hosts(found, -1)
        self.quota.add(self.use(found.want), found.window, -1)

    def tell(self, booking: str, instant: int) -> None:
        """A running booking is told to leave by then: its room is free for everybody."""
        runner = self.running[booking]
        until = self.running.ends(runner)
        self._leaves(booking, self.running.tell, instant)
        self._redraw(runner.use.gpu_class, {place.gpu for place in runner.places})
        if instant < until:
            self.hosts.lay(runner.places, runner.of_host, (instant, until), -1)

    def _lay_hosts(self, found: Found, sign: int) -> None:
        # What stands on the room of somebody who is not told yet counts beside that one: others
        # see too little free until then, never too much.
        self.hosts.lay(found.places, found.want.of_host, found.window, sign)
        if self.firm_hosts is not None:
            self.firm_hosts.lay(found.places, found.want.of_host, found.window, sign)

    def use(self, want: Want) -> Use:
        """What the want takes of its owners' quota."""
        units = want.count * self.pools[want.gpu_class].units(want.shape)
        return Use(want.owners, want.tier, want.gpu_class, units)

    def over(self, want: Want, starts: int) -> Block | None:
        """What of quota forbids the window that begins at `starts`."""
        return self.quota.over(self.use(want), (starts, starts + want.duration))

    def is_free(self, found: Found) -> bool:
        """True when its places, and what comes with them, are free for the whole window."""
        want = found.want
        if not self.calendars[want.gpu_class].is_free(found.places, *found.window):
            return False
        return self.hosts.has(found.places, want.of_host, found.window)

    def busy(
        self, want: Want, starts: Ints, *, held_only: bool = False
    ) -> tuple[Masks, Free | None]:
        """What is taken in windows of the want's length, and what nodes have free in them."""
        calendars, hosts = self.calendars, self.hosts
        if held_only:
            calendars, hosts = self.held_only, self.held_hosts
        masks = calendars[want.gpu_class].busy(starts, want.duration)
        pool = self.pools[want.gpu_class]
        if not (any(want.of_host) or (pool.values.minds_cores and hosts.are_known)):
            return masks, None
        return masks, hosts.free(pool, starts, want.duration)

    def most_beside(self, want: Want) -> int:
        """How many of the want one group could hold for its cores and memory if all were idle."""
        pool = self.pools[want.gpu_class]
        empty = np.zeros(len(pool), dtype=np.uint16)
        return most_together(pool, want, empty, self.hosts.whole(pool))

    def at(self, want: Want, starts: int) -> Found | None:
        """Places for exactly this start; None when room or quota says no."""
        return self.first_at((want,), starts)

    def free_of_firm(self, want: Want, starts: int) -> Free | None:
        """What nodes would have free in the window if all who may be paused had left."""
        if self.firm_hosts is None or not any(want.of_host):
            return None
        at = np.array([starts], dtype=np.int64)
        return self.firm_hosts.free(self.pools[want.gpu_class], at, want.duration).row(0)

    def starts_between(self, want: Want, first: int, last: int) -> Ints:
        """Candidate starts: `first`, then each instant up to `last` at which room changes."""
        tried = self.calendars[want.gpu_class].starts_between(first, last)
        return np.union1d(tried, self.hosts.between(first, last)) if any(want.of_host) else tried

    def first_at(self, wants: Iterable[Want], starts: int) -> Found | None:
        """Places for exactly this start on the first class that has room and quota.

        If the classes are all the same to the asker, on the one where it costs later asks least.
        """
        best: tuple[tuple[int, int], Found] | None = None
        for taste, want in enumerate(wants):
            if self.over(want, starts) is not None:
                continue
            choice = self._choice(want, starts)
            if choice is None:
                continue
            found = Found(want, choice.places, starts, taste)
            if not want.any_class:
                return found
            cost = (choice.apart, choice.loss)
            if best is None or cost < best[0]:
                best = (cost, found)
        return best and best[1]

    def earliest(self, wants: Iterable[Want], first: int, last: int) -> Found | None:
        """The earliest start in [first, last] over the classes, ties as in `first_at`."""
        best: int | None = None
        tied: list[tuple[int, Want]] = []
        for taste, want in enumerate(wants):
            least = last if best is None else best - (not want.any_class)
            starts = self._earliest(want, first, least)
            if starts is not None:
                tied = [*tied, (taste, want)] if starts == best else [(taste, want)]
                best = starts
        if best is None:
            return None
        found = self.first_at((want for _, want in tied), best)
        return found and replace(found, taste=tied[found.taste][0])

    def _earliest(self, want: Want, first: int, last: int) -> int | None:
        pool = self.pools[want.gpu_class]
        if first > last:
            return None
        tried = self.starts_between(want, first, last)
        use = self.use(want)
        days = self.quota.instants(use)
        if len(days):
            tried = np.union1d(tried, days[(days > first) & (days <= last)])
        allowed = self.quota.allows(use, tried, want.duration)
        if allowed is not None:
            tried = tried[allowed]
        # The first candidate alone, then ever larger bites: most bookings need few of them.
        begin, size = 0, 1
        while begin < len(tried):
            bite: Ints = tried[begin : begin + size]
            good = fits(pool, want, *self.busy(want, bite))
            if good.any():
                return int(bite[int(good.argmax())])
            begin, size = begin + size, max(_FIRST_CHUNK, size * _CHUNK_GROWTH)
        return None

    def ground(self, want: Want, starts: int) -> Ground:
        """The want's class as it is in the window from `starts` on, for choosing places."""
        return self._seen(want, starts).ground

    def _choice(self, want: Want, starts: int) -> Choice | None:
        seen = self._seen(want, starts)
        key = (want.shape, want.count, want.level, want.of_host)
        if key not in seen.choices:
            seen.choices[key] = choose(seen.ground, want)
        return seen.choices[key]

    def _seen(self, want: Want, starts: int) -> "_Seen":
        """The last look at the class, when nothing has changed since."""
        name = want.gpu_class
        versions = (self.calendars[name].version, self.hosts.version[name])
        key = (starts, want.duration, any(want.of_host), *versions)
        seen = self._last.get(name)
        if seen is None or seen.key != key:
            busy, free = self.busy(want, np.array([starts], dtype=np.int64))
            ground = Ground(self.pools[name], busy[0], free and free.row(0))
            seen = self._last[name] = _Seen(key, ground, {})
        return seen

    def _prime(self, snapshot: Snapshot) -> None:
        instants: dict[str, list[int]] = {name: [] for name in self.pools}
        for held in snapshot.held:
            name = self.class_of(held.place.gpu)
            if name is not None:
                instants[name] += (held.starts, self.end_of(held))
        for request in snapshot.requests:
            if request.promise is not None and request.promise.places:
                name = self.class_of(request.promise.places[0].gpu)
                if name is not None:
                    starts = max(request.promise.starts, self.now)
                    instants[name] += (starts, starts + request.duration)
        for name, calendar in self.calendars.items():
            calendar.prime(instants[name])
        self.quota.prime(instants)
        self.hosts.prime(each for rows in instants.values() for each in rows)

    def _leaves(self, booking: str, change: Callable[[str, int], None], instant: int) -> None:
        """Its use ends when somebody else is to have its room, which `change` changes."""
        runner = self.running[booking]
        before = self.running.leaves(runner)
        change(booking, instant)
        after = self.running.leaves(runner)
        if before != after:
            window, sign = ((after, before), -1) if after < before else ((before, after), 1)
            self.quota.add(runner.use, window, sign)

    def _redraw(self, gpu_class: str, gpus: Iterable[str]) -> None:
        """What is firm on these GPUs, and over it who may still be paused."""
        calendar = self.calendars[gpu_class]
        columns = sorted(calendar.pool.column[gpu] for gpu in gpus)
        calendar.redraw(columns, self.firm[gpu_class])
        for runner in self.running.on(gpu_class, columns).values():
            calendar.lay(runner.places, self.now, self.running.ends(runner))

    def _lay(self, held: Held) -> None:
        name = self.class_of(held.place.gpu)
        if name is None:
            return
        window = (held.starts, self.end_of(held))
        self.calendars[name].lay((held.place,), *window)
        of_host = (held.cores, held.memory)
        self.hosts.lay((held.place,), of_host, window)
        if held.booking not in self.running:
            if self.firm_hosts is not None:
                self.firm_hosts.lay((held.place,), of_host, window)
            if name in self.firm:
                self.firm[name].lay((held.place,), *window)
        units = self.units(name, (held.place,))
        self.quota.add(Use((held.tenant, held.project), held.tier, name, units), window)
