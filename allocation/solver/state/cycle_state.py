"""The mutable state of a cycle, built from a snapshot."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.model.demand import Demand, Fit
from allocation.solver.model.inputs import Gpu, Held, Place, Snapshot
from allocation.solver.model.ordering import place_order
from allocation.solver.model.policy import Policy
from allocation.solver.placement.gang import fits
from allocation.solver.quota.quota import Block, Use
from allocation.solver.state.held_space import HeldSpace
from allocation.solver.state.kept import Kept
from allocation.solver.state.space import NoRoomCache
from allocation.solver.timeline.gpu_calendar import GpuCalendar

_CHUNK = 256
"""Starts that are examined at once."""


class CycleState(HeldSpace):
    """Calendars in three layers (`all`, `firm`, `held`), quota use and pausable bookings.

    `all` has everything held and reserved, `firm` the same without pausable work (only in classes
    that have some), `held` what was held when the cycle began.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, kept: Kept | None = None) -> None:
        """Load all held work, from what is `kept` of it. KeyError: unknown model."""
        if not policy.mode_changes:
            snapshot = replace(snapshot, gpus=tuple(map(_with_current_mode, snapshot.gpus)))
        work = (kept or Kept()).held_work(snapshot.gpus, snapshot.models, snapshot.held)
        super().__init__(snapshot, policy, work)
        self.no_room = NoRoomCache(self.all.gpus)
        self._quiet = frozenset(snapshot.quiet)
        self.frees: dict[str, int] = {}
        """By class, a number that changes when room has become free."""
        self._freed_last = 0

    def end_of(self, held: Held) -> int:
        """When its room opens: overdue work stays for one more grid step."""
        return self.grid.end(self.free_from(held.ends))

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

    def is_free(self, fit: Fit) -> bool:
        """True when its places, and what comes with them, are free for the whole window."""
        parts = self.parts(fit)
        if not all(self.all.is_free(part) for part in parts):
            return False
        return len(parts) == 1 or self._has_hosts_for(parts)

    def _has_hosts_for(self, parts: Iterable[Fit]) -> bool:
        """True when the nodes have the cores and memory of all parts together."""
        with self._host_use() as take:
            for part in parts:
                has = self.all.hosts.has(part.places, part.demand.host_resources, part.window)
                if not has:
                    return False
                take(part)
        return True

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

    def reserve(self, fit: Fit) -> None:
        """Take room and quota. ValueError: the room is not free."""
        for part in self.parts(fit):
            name = part.demand.gpu_class
            layer = self.firm if fit.victims and name in self.firm.gpus else self.all
            layer.gpus[name].must_be_free(part.places, *part.window)
        self.take(fit)
        for use in self.uses(fit.demand):
            self.quota.add(use, fit.window)

    def take(self, fit: Fit) -> None:
        """Take room that is known to be free and whose quota is already counted."""
        parts = self.parts(fit)
        for part in parts:
            for calendar in self._gpu_layers(part.demand.gpu_class):
                calendar.add(part.places, *part.window)
        for booking in fit.victims:
            self._leaves(booking, self.running.add_preemptor, fit.starts)
        for part in parts:
            if fit.victims:
                self.running.add_start(part)
            self._add_resources(part, 1)

    def free(self, fit: Fit) -> None:
        """Undo `reserve`."""
        parts = self.parts(fit)
        for part in parts:
            for calendar in self._gpu_layers(part.demand.gpu_class):
                calendar.remove(part.places, *part.window)
            if fit.victims:
                self.running.remove_start(part)
        for booking in fit.victims:
            self._leaves(booking, self.running.remove_preemptor, fit.starts)
        for part in parts:
            name = part.demand.gpu_class
            if fit.victims and name in self.firm.gpus:
                self._refresh_columns(name, {place.gpu for place in part.places})
            self._freed(name, fit.starts)
            self._add_resources(part, -1)
            self.quota.add(self.use(part.demand), fit.window, -1)

    def lift(self, fit: Fit) -> None:
        """Free what a booking has; maintenance of its GPUs stays."""
        self.free(fit)
        for part in self.parts(fit):
            gpus = {place.gpu for place in part.places}
            for calendar in self._gpu_layers(part.demand.gpu_class):
                self.maintenance.add(part.demand.gpu_class, calendar, gpus)

    def put_back(self, fit: Fit) -> None:
        """Take quota, and room that is known to be free. Undoes `lift` also where its GPUs are in
        maintenance."""
        self.take(fit)
        for use in self.uses(fit.demand):
            self.quota.add(use, fit.window)

    def notify(self, booking: str, instant: int) -> None:
        """Give a running booking notice to leave at that second; its room is free from then on."""
        until = self.running.ends(self.running[booking])
        self._leaves(booking, self.running.notify, instant)
        for part in self.running.parts(booking):
            self._refresh_columns(part.use.gpu_class, {place.gpu for place in part.places})
            self._freed(part.use.gpu_class, instant)
            if instant < until:
                self.all.hosts.add(part.places, part.host_resources, (instant, until), -1)

    def _freed(self, gpu_class: str, since: int) -> None:
        self._freed_last += 1
        self.frees[gpu_class] = self._freed_last
        self.no_room.forget(gpu_class, since)

    @contextmanager
    def trial(self, gpu_class: str) -> Iterator[Callable[[], None]]:
        """Restore what is known of a class at the end, unless the yielded function was called: then
        what was freed inside has not been taken again."""
        before, kept = self.frees.get(gpu_class, 0), list[bool]()
        with self.no_room.trial(gpu_class) as keep:
            yield lambda: kept.append(True)
            if kept:
                keep()
            else:
                self.frees[gpu_class] = before

    def _gpu_layers(self, gpu_class: str) -> list[GpuCalendar]:
        layers = (self.all, self.firm)
        return [layer.gpus[gpu_class] for layer in layers if gpu_class in layer.gpus]

    def _add_resources(self, fit: Fit, sign: int) -> None:
        # Until its victims have notice both count on the host: too little is free, never too much.
        places, window, demand = fit.places, fit.window, fit.demand
        self.all.shares.add(places, demand.owner, window, sign)
        self.all.modes.add(self.pools[demand.gpu_class], places, window, sign)
        self.all.hosts.add(places, demand.host_resources, window, sign)
        if self.firm.gpus:
            self.firm.hosts.add(places, demand.host_resources, window, sign)

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

    def has_held_room(self, demand: Demand, first: int, before: int) -> bool:
        """True when held work alone leaves room for a start in [first, before)."""
        if demand.groups:
            return all(self.has_held_room(each, first, before) for each in demand.parts)
        if first >= before:
            return False
        tried = self.starts_between(demand, first, before - 1)
        pool = self.pools[demand.gpu_class]
        chunks = (tried[at : at + _CHUNK] for at in range(0, len(tried), _CHUNK))
        return any(bool(fits(pool, demand, *self.held.busy(demand, each)).any()) for each in chunks)

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
        near = hopeful[(hopeful >= starts) & (hopeful <= starts + self.policy.mode_patience)]
        calm = self.first_of(replace(demand, keeps_modes=True), near)
        return starts if calm is None else calm

    def _leaves(self, booking: str, change: Callable[[str, int], None], instant: int) -> None:
        """Update quota when `change` alters the second at which a booking leaves."""
        runner = self.running[booking]
        before = self.running.leaves(runner)
        change(booking, instant)
        after = self.running.leaves(runner)
        if before != after:
            window, sign = ((after, before), -1) if after < before else ((before, after), 1)
            for part in self.running.parts(booking):
                self.quota.add(part.use, window, sign, part.until)

    def _refresh_columns(self, gpu_class: str, gpus: Iterable[str]) -> None:
        """Redraw these GPUs: firm work, and over it the bookings that may still be paused."""
        calendar = self.all.gpus[gpu_class]
        columns = sorted(calendar.pool.column[gpu] for gpu in gpus)
        calendar.copy_columns(columns, self.firm.gpus[gpu_class])
        for runner in self.running.on(gpu_class, columns).values():
            calendar.add(runner.places, self.now, self.running.ends(runner))


def _with_current_mode(gpu: Gpu) -> Gpu:
    """The GPU as it is planned without changes of mode."""
    return gpu if gpu.stands is None else replace(gpu, mode=gpu.stands, pinned=False)
