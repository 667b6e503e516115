"""The working state of a cycle: frozen values go in, this changes, frozen values come out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from allocation.solver.calendar import Calendar
from allocation.solver.demand import mixes_of
from allocation.solver.fragmentation import Ints
from allocation.solver.placement import Want, fits, place
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
        self._class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
        self.running = Running(runners_of(snapshot, policy, self.pools, self.quota.tier))
        self._prime(snapshot)
        # The same without what may be paused; only where somebody may be.
        self.firm = {name: self.calendars[name].copy() for name in self.running.classes}
        for held in snapshot.held:
            self._lay(held)
        self.held_only = {name: calendar.copy() for name, calendar in self.calendars.items()}

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
        self.quota.add(self.use(found.want), found.window, -1)

    def tell(self, booking: str, instant: int) -> None:
        """A running booking is told to leave by then: its room is free for everybody."""
        runner = self.running[booking]
        self._leaves(booking, self.running.tell, instant)
        self._redraw(runner.use.gpu_class, {place.gpu for place in runner.places})

    def use(self, want: Want) -> Use:
        """What the want takes of its owners' quota."""
        units = want.count * self.pools[want.gpu_class].units(want.profile)
        return Use(want.owners, want.tier, want.gpu_class, units)

    def over(self, want: Want, starts: int) -> Block | None:
        """What of quota forbids the window that begins at `starts`."""
        return self.quota.over(self.use(want), (starts, starts + want.duration))

    def at(self, want: Want, starts: int) -> Found | None:
        """Places for exactly this start; None when room or quota says no."""
        if self.over(want, starts) is not None:
            return None
        return self._placed(want, starts)

    def earliest(self, wants: Iterable[Want], first: int, last: int) -> Found | None:
        """The earliest start in [first, last] over the classes, ties to the first in taste."""
        best: tuple[int, int, Want] | None = None
        for taste, want in enumerate(wants):
            starts = self._earliest(want, first, last if best is None else best[0] - 1)
            if starts is not None:
                best = (starts, taste, want)
        if best is None:
            return None
        found = self._placed(best[2], best[0])
        return found and Found(found.want, found.places, found.starts, best[1])

    def _earliest(self, want: Want, first: int, last: int) -> int | None:
        pool = self.pools[want.gpu_class]
        calendar = self.calendars[want.gpu_class]
        if first > last:
            return None
        tried = calendar.starts_between(first, last)
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
            good = fits(pool, want, calendar.busy(bite, want.duration))
            if good.any():
                return int(bite[int(good.argmax())])
            begin, size = begin + size, max(_FIRST_CHUNK, size * _CHUNK_GROWTH)
        return None

    def _placed(self, want: Want, starts: int) -> Found | None:
        calendar = self.calendars[want.gpu_class]
        busy = calendar.busy(np.array([starts], dtype=np.int64), want.duration)[0]
        places = place(self.pools[want.gpu_class], want, busy)
        return None if places is None else Found(want, places, starts)

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
        if name in self.firm and held.booking not in self.running:
            self.firm[name].lay((held.place,), *window)
        units = self.units(name, (held.place,))
        self.quota.add(Use((held.tenant, held.project), held.tier, name, units), window)
