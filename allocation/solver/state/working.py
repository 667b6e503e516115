"""The working state of a cycle: frozen values go in, this changes, frozen values come out."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.model.inputs import UNITS_PER_GPU, Held, Policy, Request, Snapshot
from allocation.solver.placement.gang import Want
from allocation.solver.quota.quota import Block, Quota, Use
from allocation.solver.state.full_until import Outlook
from allocation.solver.state.load_held import gangs_of, instants_of, lay_held
from allocation.solver.state.running import Running, runners_of
from allocation.solver.state.space import Found, Space
from allocation.solver.timeline.maintenance import Upkeep
from allocation.solver.timeline.mig_modes import under_policy
from allocation.solver.timeline.share_calendar import Sharers

__all__ = ["Found", "Working"]


class Working(Space):
    """Pools, calendars and quota usage, filled with what is held."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Step one of every cycle: lay what is live on the calendar. KeyError: unknown model."""
        snapshot = under_policy(snapshot, policy)
        super().__init__(snapshot)
        self.policy = policy
        self.capacity = {name: len(pool) * UNITS_PER_GPU for name, pool in self.pools.items()}
        self.quota = Quota(snapshot, self.capacity)
        self.upkeep = Upkeep(snapshot.blackouts, self._class_of)
        self.running = Running(runners_of(snapshot, policy, self.pools, self.quota.tier))
        self.sharers = Sharers(self.pools.values(), alone=policy.share_owners == 1)
        gangs = gangs_of(self, snapshot.held)
        _prime(self, instants_of(self, gangs, snapshot.requests, self.free_from))
        for name, calendar in self.calendars.items():
            self.upkeep.lay(name, calendar)
        # The same without what may be paused; only where somebody may be.
        self.firm = {name: self.calendars[name].copy() for name in self.running.classes}
        self.firm_hosts = self.hosts.copy() if self.firm else None
        self.held_uses = lay_held(self, gangs, self.free_from, self.running.__contains__)
        self.quota.add_all(
            (use, (since, self.free_from(until))) for use, (since, until) in self.held_uses
        )
        self.held_only = {name: calendar.copy() for name, calendar in self.calendars.items()}
        self.held_hosts, self.held_sharers = self.hosts.copy(), self.sharers.copy()
        self.held_modes = self.modes.copy()
        self.outlook = Outlook(self.calendars)

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

    def reserve(self, found: Found) -> None:
        """Take room and quota for it. ValueError when the room is not free."""
        calendars = self.firm if found.over else self.calendars
        calendars[found.want.gpu_class].must_be_free(found.places, *found.window)
        self.take(found)
        self.quota.add(self.use(found.want), found.window)

    def take(self, found: Found) -> None:
        """The same for room that is known to be free, without quota, which has it already."""
        name, window = found.want.gpu_class, found.window
        firm = self.firm.get(name)
        if found.over:
            self.firm[name].lay(found.places, *window)
            self.calendars[name].lay(found.places, *window)
            for booking in found.over:
                self._leaves(booking, self.running.promise, found.starts)
        else:
            self.calendars[name].lay(found.places, *window)
            if firm is not None:
                firm.lay(found.places, *window)
        self._lay_beside(found, 1)

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
        self.outlook.freed(name, found.starts)
        self._lay_beside(found, -1)
        self.quota.add(self.use(found.want), found.window, -1)

    def tell(self, booking: str, instant: int) -> None:
        """A running booking is told to leave by then: its room is free for everybody."""
        runner = self.running[booking]
        until = self.running.ends(runner)
        self._leaves(booking, self.running.tell, instant)
        self._redraw(runner.use.gpu_class, {place.gpu for place in runner.places})
        self.outlook.freed(runner.use.gpu_class, instant)
        if instant < until:
            self.hosts.lay(runner.places, runner.of_host, (instant, until), -1)

    def _lay_beside(self, found: Found, sign: int) -> None:
        # Who stands on others' room counts beside them until they are told: too little is free.
        places, window, of_host = found.places, found.window, found.want.of_host
        self.sharers.lay(places, found.want.owner, window, sign)
        self.modes.lay(self.pools[found.want.gpu_class], places, window, sign)
        self.hosts.lay(places, of_host, window, sign)
        if self.firm_hosts is not None:
            self.firm_hosts.lay(places, of_host, window, sign)

    def use(self, want: Want) -> Use:
        """What the want takes of its owners' quota."""
        units = want.count * self.pools[want.gpu_class].units(want.shape)
        return Use(want.owners, want.tier, want.gpu_class, units)

    def over(self, want: Want, starts: int) -> Block | None:
        """What of quota forbids the window that begins at `starts`."""
        return self.quota.over(self.use(want), (starts, starts + want.duration))

    def at(self, want: Want, starts: int) -> Found | None:
        """Places for exactly this start; None when room or quota says no."""
        return self.first_at((want,), starts)

    def first_at(self, wants: Iterable[Want], starts: int) -> Found | None:
        """Places for exactly this start on the first class that has room and quota.

        If the classes are all the same to the asker, on the one where it costs later asks least.
        """
        allowed = ((n, each) for n, each in enumerate(wants) if self.over(each, starts) is None)
        return self._placed(allowed, starts)

    def has_room_unpinned(self, want: Want, starts: int) -> bool:
        """Whether a pinned want would have room then on other places, whatever its quota."""
        return self._placed([(0, replace(want, pin=()))], starts) is not None

    def _placed(self, wants: Iterable[tuple[int, Want]], starts: int) -> Found | None:
        """The same for wants, each with its rank, that quota allows."""
        best: tuple[tuple[int, int], Found] | None = None
        for taste, want in wants:
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

    def earliest(
        self, wants: Iterable[Want], first: int, last: int, latest: int | None = None
    ) -> Found | None:
        """The earliest end over the classes, ties as in `first_at`.

        It starts in [first, last] and ends by `latest`. Where all classes take equally long, the
        earliest end is the earliest start.
        """
        best: tuple[int, int] | None = None
        tied: list[tuple[int, Want]] = []
        for taste, want in enumerate(wants):
            until = last if latest is None else min(last, latest - want.duration)
            if best is not None:
                until = min(until, best[0] - want.duration - (not want.any_class))
            starts = self._earliest(want, first, until)
            if starts is None:
                continue
            when = (starts + want.duration, starts)
            if when == best:
                tied.append((taste, want))
            elif best is None or when[0] < best[0]:
                best, tied = when, [(taste, want)]
        return best and self._placed(tied, best[1])

    def _earliest(self, want: Want, first: int, last: int) -> int | None:
        sooner = max(first, self.outlook.none_before(want))
        if sooner > last:
            return None
        tried = self.starts_between(want, sooner, last)
        use = self.use(want)
        days = self.quota.instants(use)
        if len(days):
            tried = np.union1d(tried, days[(days > sooner) & (days <= last)])
        allowed = self.quota.allows(use, tried, want.duration)
        hopeful = tried if allowed is None else tried[allowed]
        starts = self.first_of(want, hopeful)
        if first <= self.now and starts is not None and (allowed is None or allowed.all()):
            self.outlook.searched(want, starts)
        return None if starts is None else self._with_patience(want, starts, hopeful)

    def _with_patience(self, want: Want, starts: int, hopeful: Ints) -> int:
        """That start, or one so little later for which no GPU changes its mode."""
        if not self.modes.matters(want.gpu_class):
            return starts
        near = hopeful[(hopeful >= starts) & (hopeful <= starts + self.policy.mode_patience)]
        calm = self.first_of(replace(want, still=True), near)
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

    def _redraw(self, gpu_class: str, gpus: Iterable[str]) -> None:
        """What is firm on these GPUs, and over it who may still be paused."""
        calendar = self.calendars[gpu_class]
        columns = sorted(calendar.pool.column[gpu] for gpu in gpus)
        calendar.redraw(columns, self.firm[gpu_class])
        for runner in self.running.on(gpu_class, columns).values():
            calendar.lay(runner.places, self.now, self.running.ends(runner))


def _prime(working: Working, found: dict[str, set[int]]) -> None:
    """Everything that is laid over time begins with rows at these instants by class."""
    rising = {name: sorted(found[name].union(working.upkeep.instants(name))) for name in found}
    for name, calendar in working.calendars.items():
        calendar.prime(rising[name])
    working.quota.prime(rising)
    working.hosts.prime(set().union(*rising.values()))
