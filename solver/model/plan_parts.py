"""The parts of a plan that can still be written when some of its bookings have changed meanwhile.

A part is what the plan states about one booking or order. Most parts are independent: a booking
that leaves only frees room. Some need another part that makes their room. A part that can't be
written also withholds those that need it, and no others.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from solver.model.inputs import Place, Snapshot
from solver.model.plan import Assign, Move, Plan, Refuse, Waiting

Kind = Literal["answer", "change", "extension", "pause", "withdrawal", "move", "order"]
# Its kind, and the booking or order that it is about.
Part = tuple[Kind, str]
# Its booking left: the room is free, and stays free for parts that were planned with it.
LEFT = "left"
NEEDED = "needed"
# Why other parts are withheld: the booking has changed, the database refuses the write, or what was
# refused may now be possible.
CHANGED, CONFLICT, ROOM_FREED = "changed", "conflict", "room_freed"
Group = tuple[Part, ...]
Failed = TypeVar("Failed")


@dataclass(frozen=True, slots=True)
class _Window:
    """Where and when a part places its booking."""

    part: Part
    gpu_class: str
    gpus: frozenset[str]
    starts: int
    ends: int

    def meets(self, starts: int, ends: int) -> bool:
        return self.starts < ends and starts < self.ends


class Parts:
    """The parts of a plan, and which of them needs which."""

    def __init__(self, plan: Plan, snapshot: Snapshot) -> None:
        """`plan` may be narrowed: parts that are not in it have been written."""
        self._plan, self._snapshot = plan, snapshot
        self.all = tuple(_parts(plan))
        self._there = frozenset(self.all)
        self._position = {part: at for at, part in enumerate(self.all)}
        self._windows = list(_windows(plan))
        # By needed part: the parts that need it, and whether they need it even if its booking left.
        self._needs: dict[Part, dict[Part, bool]] = defaultdict(dict)
        self._pauses()
        self._moves()
        self._orders()
        self._series()
        self._changes()

    def withheld(self, gone: Mapping[Part, str]) -> dict[Part, str]:
        """The parts that can't be written and why: `gone`, and all that need them."""
        found = {part: why for part, why in gone.items() if part in self._there}
        queue = list(found)
        while queue:
            on = queue.pop()
            for who, always in self._needs[on].items():
                if who not in found and (always or found[on] != LEFT):
                    found[who] = NEEDED
                    queue.append(who)
        return found

    def groups(self) -> list[Group]:
        """Parts that need each other, together; in the order of the plan."""
        neighbours: dict[Part, set[Part]] = defaultdict(set)
        for on, needing in self._needs.items():
            for who in needing:
                neighbours[who].add(on)
                neighbours[on].add(who)
        found, seen = [], set[Part]()
        for first in self.all:
            if first not in seen:
                group = {first}
                queue = [first]
                while queue:
                    new = neighbours[queue.pop()] - group
                    group |= new
                    queue += new
                seen |= group
                found.append(tuple(sorted(group, key=self._position.__getitem__)))
        return found

    def _need(self, who: Part, on: Part, *, always: bool = False) -> None:
        if who != on and who in self._there and on in self._there:
            self._needs[on][who] = always or self._needs[on].get(who, False)

    def _pauses(self) -> None:
        """A pause frees room and quota for others; its beneficiary has to be written with it."""
        if not self._plan.pauses:
            return
        held = defaultdict(list)
        for row in self._snapshot.held:
            held[row.booking].append(row)
        classes = {gpu.id: gpu.gpu_class for gpu in self._snapshot.gpus}
        tenants = {request.booking: request.tenant for request in self._snapshot.requests}
        borrowing = {each.booking for each in self._plan.borrows if each.borrowed}
        for pause in self._plan.pauses:
            part: Part = ("pause", pause.booking)
            self._need(part, ("answer", pause.beneficiary), always=True)
            self._need(("answer", pause.booking), part, always=True)
            for row in held[pause.booking]:
                for window in self._windows:
                    booking = window.part[1]
                    shares = tenants.get(booking) == row.tenant or booking in borrowing
                    is_near = row.place.gpu in window.gpus or (
                        shares and window.gpu_class == classes[row.place.gpu]
                    )
                    if is_near and window.meets(pause.at, row.ends):
                        self._need(window.part, part, always=True)

    def _moves(self) -> None:
        """A move frees room in its old place, also for who keeps a run without notice."""
        stays: dict[str, set[str]] = {name: set() for name in self._plan.withdrawn}
        for row in self._snapshot.held if stays and self._plan.moves else ():
            if row.booking in stays:
                stays[row.booking].add(row.place.gpu)
        for move in self._plan.moves:
            left = {place.gpu for place in move.source}
            for window in self._windows:
                if window.gpus & left and window.meets(move.starts, move.ends):
                    self._need(window.part, ("move", move.booking))
            for booking, gpus in stays.items():
                if gpus & left:
                    self._need(("withdrawal", booking), ("move", move.booking))

    def _orders(self) -> None:
        """An order and all of its pauses need each other."""
        beneficiaries = {order.id: order.beneficiary for order in self._snapshot.orders}
        for carried in self._plan.orders:
            if carried.reasons:
                continue
            order: Part = ("order", carried.order)
            beneficiary = beneficiaries.get(carried.order, "")
            own: list[Part] = [("answer", beneficiary)]
            own += [("pause", p.booking) for p in self._plan.pauses if p.beneficiary == beneficiary]
            for part in own:
                self._need(order, part, always=True)
                self._need(part, order, always=True)

    def _series(self) -> None:
        """A series is written all or none, except for dates that were cancelled."""
        dates: dict[str, list[Part]] = defaultdict(list)
        for request in self._snapshot.requests:
            if request.series is not None and ("answer", request.booking) in self._there:
                dates[request.series].append(("answer", request.booking))
        for parts in dates.values():
            for one, other in zip(parts, (*parts[1:], parts[0]), strict=True):
                self._need(one, other)
                self._need(other, one)

    def _changes(self) -> None:
        """A granted change and what its booking gets need each other. It frees room for others."""
        changed = {each.booking for each in self._plan.changes if each.granted}
        for booking in changed:
            self._need(("change", booking), ("answer", booking), always=True)
            self._need(("answer", booking), ("change", booking), always=True)
        for one, other in _neighbours(self._snapshot, changed):
            self._need(("change", one), ("change", other))
        for row in self._snapshot.held if changed else ():
            for window in self._windows if row.booking in changed else ():
                if row.place.gpu in window.gpus and window.meets(row.starts, row.ends):
                    self._need(window.part, ("change", row.booking))


def _neighbours(snapshot: Snapshot, changed: Collection[str]) -> Iterator[tuple[str, str]]:
    """Pairs of granted changes of one group, in a ring: all are needed if each needs the next."""
    groups: dict[str, list[str]] = defaultdict(list)
    for each in snapshot.changes:
        if each.group and each.booking in changed:
            groups[each.group].append(each.booking)
    for names in groups.values():
        yield from zip(names, (*names[1:], names[0]), strict=True)


def narrowed(plan: Plan, parts: Collection[Part]) -> Plan:
    """Only these parts of the plan."""

    def is_included(kind: Kind, name: str) -> bool:
        return (kind, name) in parts

    return replace(
        plan,
        assigns=tuple(each for each in plan.assigns if is_included("answer", each.booking)),
        waits=tuple(each for each in plan.waits if is_included("answer", each.booking)),
        refusals=tuple(each for each in plan.refusals if is_included("answer", each.booking)),
        extensions=tuple(each for each in plan.extensions if is_included("extension", each.booking)),
        pauses=tuple(each for each in plan.pauses if is_included("pause", each.booking)),
        moves=tuple(each for each in plan.moves if is_included("move", each.booking)),
        withdrawn=tuple(each for each in plan.withdrawn if is_included("withdrawal", each)),
        orders=tuple(each for each in plan.orders if is_included("order", each.order)),
        changes=tuple(each for each in plan.changes if is_included("change", each.booking)),
    )


def in_halves(
    groups: Sequence[Group], attempt: Callable[[Sequence[Group]], Failed | None], most: int
) -> tuple[list[Group], Failed | None]:
    """Attempts all groups together and, after a failure, each half separately, so that a failing
    group blocks no other.

    Returns the groups that failed, and the last failure if nothing succeeded. After `most` attempts
    groups are not halved any more.
    """
    failed: list[Group] = []
    queue, last, is_done = [list(groups)], None, False
    for tries in itertools.count(1):
        if not queue:
            break
        some = queue.pop()
        failure = attempt(some)
        is_done |= failure is None
        if failure is None:
            continue
        last = failure
        if len(some) > 1 and tries < most:
            middle = len(some) // 2
            queue += [some[middle:], some[:middle]]
        else:
            failed += some
    return failed, None if is_done else last


def turns_of_tenants(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """For each booking that gets an answer, its place among those of its tenant, from 1 on: GPUs in
    the order of the queue, then first planned starts, refusals, changes and later ends.

    In the order of these numbers nobody waits for all answers of another tenant. Planned starts
    that moved have none.
    """
    new = {each.booking: each.tenant for each in snapshot.requests if each.planned is None}
    tenants = {each.booking: each.tenant for each in snapshot.requests}
    tenants |= {each.booking: each.target.tenant for each in snapshot.changes}
    tenants |= {row.booking: row.tenant for row in snapshot.held if plan.extensions}
    answered = [each.booking for each in sorted(plan.assigns, key=lambda each: each.position)]
    answered += [each.booking for each in plan.waits if each.booking in new]
    for others in (plan.refusals, plan.changes, plan.extensions):
        answered += [each.booking for each in others]
    passed = dict[str, int]()
    found = dict[str, int]()
    for booking in answered:
        if booking not in found:
            tenant = tenants.get(booking, "")
            found[booking] = passed[tenant] = passed.get(tenant, 0) + 1
    return found


def in_pieces(
    groups: Sequence[Group], positions: Mapping[str, int], others: Collection[str], most: int
) -> list[tuple[tuple[Group, ...], frozenset[str]]]:
    """Groups in pieces of at most `most` bookings, with the bookings of each piece.

    Groups are in the order of `positions`, those without one last; a larger group is a
    piece by itself. Bookings of `others` that are in no group come last.
    """

    def order(group: Group) -> float:
        return min(positions.get(name) or math.inf for _, name in group)

    queue: list[tuple[tuple[Group, ...], set[str]]]
    queue = [((group,), {name for _, name in group}) for group in sorted(groups, key=order)]
    named = {name for _, names in queue for name in names}
    queue += [((), {name}) for name in sorted(others) if name not in named]
    pieces: list[tuple[tuple[Group, ...], frozenset[str]]] = []
    for some, names in queue:
        if pieces and len(pieces[-1][1] | names) <= most:
            pieces[-1] = (pieces[-1][0] + some, pieces[-1][1] | names)
        else:
            pieces.append((some, frozenset(names)))
    return pieces


def refused_too_early(plan: Plan, snapshot: Snapshot, left: Collection[str]) -> list[Part]:
    """Refusals that may be wrong now that these bookings have left: they wanted or had room of a
    refused class."""
    if not left:
        return []
    free = {gpu_class for name, found in _classes(snapshot) if name in left for gpu_class in found}
    wanted: dict[str, set[str]] = defaultdict(set)
    for name, found in _classes(snapshot):
        wanted[name].update(found)
    refused: list[Part] = [("answer", each.booking) for each in plan.refusals]
    refused += [("extension", each.booking) for each in plan.extensions if not each.granted]
    refused += [("change", each.booking) for each in plan.changes if not each.granted]
    return [part for part in refused if wanted[part[1]] & free]


def _classes(snapshot: Snapshot) -> Iterator[tuple[str, Sequence[str]]]:
    """Bookings with the classes that they request or use."""
    by_gpu = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
    for request in snapshot.requests:
        yield request.booking, request.ask.classes
    for change in snapshot.changes:
        yield change.booking, change.target.ask.classes
    for row in snapshot.held:
        yield row.booking, (by_gpu[row.place.gpu],)


def _parts(plan: Plan) -> Iterator[Part]:
    answers: tuple[Assign | Waiting | Refuse, ...] = (*plan.assigns, *plan.waits, *plan.refusals)
    yield from (("pause", each.booking) for each in plan.pauses)
    yield from (("withdrawal", name) for name in plan.withdrawn)
    yield from (("move", each.booking) for each in plan.moves)
    yield from (("answer", each.booking) for each in answers)
    yield from (("extension", each.booking) for each in plan.extensions)
    yield from (("change", each.booking) for each in plan.changes)
    yield from (("order", each.order) for each in plan.orders)


def _windows(plan: Plan) -> Iterator[_Window]:
    placed: tuple[Assign | Waiting, ...] = (*plan.assigns, *plan.waits)
    for each in placed:
        yield _window(("answer", each.booking), each, each.places)
    for move in plan.moves:
        yield _window(("move", move.booking), move, move.places)


def _window(part: Part, given: Assign | Waiting | Move, places: Sequence[Place]) -> _Window:
    gpus = frozenset(place.gpu for place in places)
    return _Window(part, given.gpu_class, gpus, given.starts, given.ends)
