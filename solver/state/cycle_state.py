"""The mutable state of a cycle, built from a snapshot."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from solver.model.demand import Fit, demands_of
from solver.model.inputs import Gpu, Held, Request, Snapshot
from solver.model.policy import Policy
from solver.state.kept import Kept
from solver.state.room_search import RoomSearch
from solver.timeline.gpu_calendar import GpuCalendar

_ALL_CLASSES = ("unneeded", "notices", "orders", "pending", "entries", "idle")
"""Sections that may concern held work of any class."""


class CycleState(RoomSearch):
    """Calendars in three layers (`all`, `firm`, `held`), quota use and pausable bookings.

    `all` has everything held and reserved, `firm` the same without pausable work (only in classes
    that have some), `held` what was held when the cycle began.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        kept: Kept | None = None,
        asked: frozenset[str] | None = None,
    ) -> None:
        """Load all held work, from what is `kept` of it. Room and quota are those of the classes that are
        `asked` for (None: of all). KeyError: unknown model."""
        if not all(each.mode_changes for each in policy.variants):
            gpus = (
                gpu if policy.of(gpu.gpu_class).mode_changes else _with_current_mode(gpu)
                for gpu in snapshot.gpus
            )
            snapshot = replace(snapshot, gpus=tuple(gpus))
        snapshot = replace(snapshot, tiers=policy.with_borrow_windows(snapshot.tiers))
        work = (kept or Kept()).held_work(snapshot.gpus, snapshot.models, snapshot.held)
        super().__init__(snapshot, policy, work, asked)
        self.frees: dict[str, int] = {}
        """By class, a number that changes when room has become free."""
        self._freed_last = 0

    def end_of(self, held: Held) -> int:
        """When its room opens: overdue work stays for one more grid step."""
        return self.grid.end(self.free_from(held.ends))

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
        self.bounds.freed(gpu_class, since)

    @contextmanager
    def trial(self, gpu_class: str) -> Iterator[Callable[[], None]]:
        """Restore what is known of a class at the end, unless the yielded function was called: then
        what was freed inside has not been taken again."""
        before, kept = self.frees.get(gpu_class, 0), list[bool]()
        with self.bounds.trial(gpu_class) as keep:
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


def asked_classes(snapshot: Snapshot) -> frozenset[str] | None:
    """The classes in which a plan may change something; None: any.

    These are what requests, changes and later ends ask for, and classes that are connected with one of
    these: by a node, by a mixed booking, or by work that may resume there when it is paused.
    """
    if any(getattr(snapshot, section) for section in _ALL_CLASSES):
        return None
    class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
    asked = set(_asked(snapshot, class_of))
    links = _links(snapshot, class_of)
    reached: set[str] = set()
    while asked - reached:
        name = (asked - reached).pop()
        reached.add(name)
        asked |= links.get(name, set())
    return frozenset(reached)


def _asked(snapshot: Snapshot, class_of: dict[str, str]) -> Iterator[str]:
    longer = (each.request for each in snapshot.extensions if each.request is not None)
    targets = (each.target for each in snapshot.changes)
    for request in (*snapshot.requests, *targets, *longer):
        yield from _classes_of(request, class_of)
    bookings = {each.booking for each in snapshot.changes} | {each.booking for each in snapshot.extensions}
    for row in snapshot.held if bookings else ():
        if row.booking in bookings and row.place.gpu in class_of:
            yield class_of[row.place.gpu]


def _classes_of(request: Request, class_of: dict[str, str]) -> Iterator[str]:
    yield from request.ask.all_classes
    places = () if request.planned is None else request.planned.places
    yield from (class_of[place.gpu] for place in (*places, *request.home) if place.gpu in class_of)


def _links(snapshot: Snapshot, class_of: dict[str, str]) -> dict[str, set[str]]:
    """By class, those that are connected with it."""
    found: dict[str, set[str]] = {}
    by_node: dict[str, set[str]] = {}
    for gpu in snapshot.gpus:
        by_node.setdefault(gpu.node, set()).add(gpu.gpu_class)
    _join(found, by_node.values())
    mixed: dict[str, set[str]] = {}
    for row in snapshot.held:
        if row.mixed and row.place.gpu in class_of:
            mixed.setdefault(row.booking, set()).add(class_of[row.place.gpu])
    _join(found, mixed.values())
    several = {each.booking: set(_classes_of(each, class_of)) for each in snapshot.running}
    _join(found, _with_held(several, snapshot.held, class_of))
    return found


def _with_held(
    several: dict[str, set[str]], held: Iterable[Held], class_of: dict[str, str]
) -> Iterable[set[str]]:
    """The classes that may-be-paused bookings have and may resume in."""
    for row in held:
        if row.booking in several and row.place.gpu in class_of:
            several[row.booking].add(class_of[row.place.gpu])
    return several.values()


def _join(found: dict[str, set[str]], groups: Iterable[set[str]]) -> None:
    for group in groups:
        if len(group) > 1:
            for name in group:
                found.setdefault(name, set()).update(group)


def as_begun(state: CycleState, request: Request) -> Request:
    """Returns the request of paused work, which may borrow as it did at its start if its guarantees can
    never hold it.

    Else paused work whose tier was made never pausable would be refused for what it had.
    """
    if request.within:
        return request
    tier, quota = request.quota_tier, state.quota
    for demand in demands_of(request):
        if demand.gpu_class not in state.pools:
            continue
        block = quota.never(state.use(demand), demand.duration)
        if block is None or block.kind != "guarantee" or not quota.stays_inside(tier, demand.duration):
            return request
    return replace(request, begun=True)
