"""The working state of a cycle: frozen values go in, this changes, frozen values come out."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.model.inputs import UNITS_PER_GPU, Held, Policy, Request, Snapshot
from allocation.solver.placement.gang import Demand
from allocation.solver.quota.quota import Block, Quota, Use
from allocation.solver.state.full_until import NoRoomCache
from allocation.solver.state.load_held import gangs_of, instants_of, load_held_rows
from allocation.solver.state.running import RunningBookings, running_bookings_of
from allocation.solver.state.space import Fit, Space
from allocation.solver.timeline.maintenance import MaintenanceCalendar
from allocation.solver.timeline.mig_modes import apply_mode_policy
from allocation.solver.timeline.share_calendar import ShareCalendar

__all__ = ["Fit", "Working"]


class Working(Space):
    """Pools, calendars and quota usage, filled with what is held."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Step one of every cycle: lay what is live on the calendar. KeyError: unknown model."""
        snapshot = apply_mode_policy(snapshot, policy)
        super().__init__(snapshot)
        self.policy = policy
        self.capacity = {name: len(pool) * UNITS_PER_GPU for name, pool in self.pools.items()}
        self.quota = Quota(snapshot, self.capacity)
        self.maintenance = MaintenanceCalendar(snapshot.blackouts, self._class_of)
        self.running = RunningBookings(
            running_bookings_of(snapshot, policy, self.pools, self.quota.tier)
        )
        self.sharers = ShareCalendar(self.pools.values(), alone=policy.share_owners == 1)
        gangs = gangs_of(self, snapshot.held)
        _prime(self, instants_of(self, gangs, snapshot.requests, self.free_from))
        for name, calendar in self.calendars.items():
            self.maintenance.add(name, calendar)
        # The same without what may be paused; only where somebody may be.
        self.firm = {name: self.calendars[name].copy() for name in self.running.classes}
        self.firm_hosts = self.hosts.copy() if self.firm else None
        self.held_uses = load_held_rows(self, gangs, self.free_from, self.running.__contains__)
        self.quota.add_all(
            (use, (since, self.free_from(until))) for use, (since, until) in self.held_uses
        )
        self.held_only = {name: calendar.copy() for name, calendar in self.calendars.items()}
        self.held_hosts, self.held_sharers = self.hosts.copy(), self.sharers.copy()
        self.held_modes = self.modes.copy()
        self.no_room = NoRoomCache(self.calendars)

    def end_of(self, held: Held) -> int:
        """When its room is free again: work past its end stays for one more grid step."""
        return self.free_from(held.ends)

    def free_from(self, ends: int) -> int:
        """The same for an end."""
        return ends if ends > self.now else self.now + self.policy.grid

    def frozen_until(self, gpu_class: str) -> int:
        """What begins by then is given for good: there is the freeze, and a mode takes its time."""
        return self.now + self.policy.freeze_horizon + self.modes.lead(gpu_class)

    def first_start(self, earliest: int) -> int:
        """First second a booking may start: now, or its own wish on the grid."""
        if earliest <= self.now:
            return self.now
        return -(-earliest // self.policy.grid) * self.policy.grid

    def last_start(self, request: Request) -> int:
        """Last second a flexible booking may start: its deadline's, or the horizon's."""
        horizon = self.now + self.policy.horizon
        latest = horizon if request.latest is None else request.latest - request.duration
        return min(horizon, latest)

    def reserve(self, found: Fit) -> None:
        """Take room and quota for it. ValueError when the room is not free."""
        calendars = self.firm if found.over else self.calendars
        calendars[found.demand.gpu_class].must_be_free(found.places, *found.window)
        self.take(found)
        self.quota.add(self.use(found.demand), found.window)

    def take(self, found: Fit) -> None:
        """The same for room that is known to be free, without quota, which has it already."""
        name, window = found.demand.gpu_class, found.window
        firm = self.firm.get(name)
        if found.over:
            self.firm[name].add(found.places, *window)
            self.calendars[name].add(found.places, *window)
            for booking in found.over:
                self._leaves(booking, self.running.promise, found.starts)
        else:
            self.calendars[name].add(found.places, *window)
            if firm is not None:
                firm.add(found.places, *window)
        self._add_resources(found, 1)

    def free(self, found: Fit) -> None:
        """Undo of `reserve`."""
        name = found.demand.gpu_class
        firm = self.firm.get(name)
        if firm is not None:
            firm.remove(found.places, *found.window)
        if found.over:
            for booking in found.over:
                self._leaves(booking, self.running.forget, found.starts)
            self._refresh_columns(name, {place.gpu for place in found.places})
        else:
            self.calendars[name].remove(found.places, *found.window)
        self.no_room.forget(name, found.starts)
        self._add_resources(found, -1)
        self.quota.add(self.use(found.demand), found.window, -1)

    def notify(self, booking: str, instant: int) -> None:
        """A running booking is told to leave by then: its room is free for everybody."""
        runner = self.running[booking]
        until = self.running.ends(runner)
        self._leaves(booking, self.running.notify, instant)
        self._refresh_columns(runner.use.gpu_class, {place.gpu for place in runner.places})
        self.no_room.forget(runner.use.gpu_class, instant)
        if instant < until:
            self.hosts.add(runner.places, runner.of_host, (instant, until), -1)

    def _add_resources(self, found: Fit, sign: int) -> None:
        # Who stands on others' room counts beside them until they are told: too little is free.
        places, window, of_host = found.places, found.window, found.demand.of_host
        self.sharers.add(places, found.demand.owner, window, sign)
        self.modes.add(self.pools[found.demand.gpu_class], places, window, sign)
        self.hosts.add(places, of_host, window, sign)
        if self.firm_hosts is not None:
            self.firm_hosts.add(places, of_host, window, sign)

    def use(self, demand: Demand) -> Use:
        """What the want takes of its owners' quota."""
        units = demand.count * self.pools[demand.gpu_class].units(demand.shape)
        return Use(demand.owners, demand.tier, demand.gpu_class, units)

    def over(self, demand: Demand, starts: int) -> Block | None:
        """What of quota forbids the window that begins at `starts`."""
        return self.quota.over(self.use(demand), (starts, starts + demand.duration))

    def at(self, demand: Demand, starts: int) -> Fit | None:
        """Places for exactly this start; None when room or quota says no."""
        return self.first_at((demand,), starts)

    def first_at(self, demands: Iterable[Demand], starts: int) -> Fit | None:
        """Places for exactly this start on the first class that has room and quota.

        If the classes are all the same to the asker, on the one where it costs later asks least.
        """
        allowed = ((n, each) for n, each in enumerate(demands) if self.over(each, starts) is None)
        return self._placed(allowed, starts)

    def has_room_unpinned(self, demand: Demand, starts: int) -> bool:
        """Whether a pinned want would have room then on other places, whatever its quota."""
        return self._placed([(0, replace(demand, pin=()))], starts) is not None

    def _placed(self, demands: Iterable[tuple[int, Demand]], starts: int) -> Fit | None:
        """The same for wants, each with its rank, that quota allows."""
        best: tuple[tuple[int, int], Fit] | None = None
        for class_rank, demand in demands:
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

    def earliest(
        self, demands: Iterable[Demand], first: int, last: int, latest: int | None = None
    ) -> Fit | None:
        """The earliest end over the classes, ties as in `first_at`.

        It starts in [first, last] and ends by `latest`. Where all classes take equally long, the
        earliest end is the earliest start.
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

    def _earliest(self, demand: Demand, first: int, last: int) -> int | None:
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
        starts = self.first_of(demand, hopeful)
        if first <= self.now and starts is not None and (allowed is None or allowed.all()):
            self.no_room.record_search(demand, starts)
        return None if starts is None else self._with_patience(demand, starts, hopeful)

    def _with_patience(self, demand: Demand, starts: int, hopeful: Ints) -> int:
        """That start, or one so little later for which no GPU changes its mode."""
        if not self.modes.may_switch(demand.gpu_class):
            return starts
        near = hopeful[(hopeful >= starts) & (hopeful <= starts + self.policy.mode_patience)]
        calm = self.first_of(replace(demand, keeps_modes=True), near)
        return starts if calm is None else calm

    def _leaves(self, booking: str, change: Callable[[str, int], None], instant: int) -> None:
        """Its use ends when somebody else is to have its room, which `change` changes."""
        runner = self.running[booking]
        before = self.running.leaves(runner)
        change(booking, instant)
        after = self.running.leaves(runner)
        if before != after:
            window, sign = ((after, before), -1) if after < before else ((before, after), 1)
            self.quota.add(runner.use, window, sign)

    def _refresh_columns(self, gpu_class: str, gpus: Iterable[str]) -> None:
        """What is firm on these GPUs, and over it who may still be paused."""
        calendar = self.calendars[gpu_class]
        columns = sorted(calendar.pool.column[gpu] for gpu in gpus)
        calendar.copy_columns(columns, self.firm[gpu_class])
        for runner in self.running.on(gpu_class, columns).values():
            calendar.add(runner.places, self.now, self.running.ends(runner))


def _prime(working: Working, found: dict[str, set[int]]) -> None:
    """Everything that is laid over time begins with rows at these instants by class."""
    rising = {name: sorted(found[name].union(working.maintenance.instants(name))) for name in found}
    for name, calendar in working.calendars.items():
        calendar.preallocate(rising[name])
    working.quota.preallocate(rising)
    working.hosts.preallocate(set().union(*rising.values()))
