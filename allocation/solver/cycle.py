"""One cycle: `solve(snapshot, policy)`, the numbered steps and nothing more.

Conservative backfill: every planned start is a reservation for those that come after it, so
nobody is ever delayed by a booking that stands behind it in line.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import filterfalse

from allocation.solver.blockers import why_not_at, why_still_waiting, why_waiting
from allocation.solver.borrowing import borrows_of, said
from allocation.solver.carrying import Carriage, orders_carry
from allocation.solver.explain import (
    Line,
    freed_by,
    placed,
    possible_wants,
    reason,
    with_totals,
)
from allocation.solver.extensions import extensions_decide, withdrawals
from allocation.solver.giving_way import makes_room
from allocation.solver.home import or_home, planned_resume, why_home
from allocation.solver.in_service import out_of_service
from allocation.solver.line import Queues
from allocation.solver.matching import in_time
from allocation.solver.moving import Promised
from allocation.solver.options import alternatives, next_free
from allocation.solver.ordering import has_promise, in_order, promise_order
from allocation.solver.placement import Want, wants_of
from allocation.solver.plan import Assign, Carried, Extend, Pause, Plan, Reason, Refuse, Waiting
from allocation.solver.preemption import Preemption
from allocation.solver.promises import is_at_its_earliest, nowhere, promise_improve, promises_lay
from allocation.solver.resume import last_start
from allocation.solver.series import all_or_none, series_of
from allocation.solver.timely import untimely
from allocation.solver.types import Policy, Request, Snapshot
from allocation.solver.working import Found, Working


def solve(snapshot: Snapshot, policy: Policy) -> Plan:
    """Decide everything that wants room. ValueError for a snapshot that contradicts itself."""
    snapshot = in_order(snapshot)
    # 1. Lay what is live on the calendar: it is never moved.
    working = Working(snapshot, policy)
    preemption = Preemption(working, snapshot)
    # 2. Reserve every promise that still fits where it was planned.
    promised = sorted(filter(has_promise, snapshot.requests), key=promise_order)
    kept, broken = promises_lay(working, preemption, promised)
    # 3. Pauses that nobody needs any more are taken back; extensions; what operators ordered to be
    # moved. None of it may cost a promise its start.
    withdrawn = withdrawals(working, snapshot, kept)
    extensions = extensions_decide(working, snapshot, kept)
    outcome = _Outcome(working, preemption)
    done = {*withdrawn, *outcome.carry(orders_carry(working, snapshot, kept))}
    requests = [each for each in snapshot.requests if each.booking not in done]
    # 4. Promised bookings in the order of their promises: earlier if possible, never later.
    for request in (each for each in promised if each.booking not in done):
        _promised(outcome, request, kept.get(request.booking), broken.get(request.booking))
    # 5. Everybody else in line: fixed windows there or not at all, the others as early as possible.
    # Here and above: within guarantee or borrowing, then with others paused if the rules allow it.
    queues = Queues(working, snapshot, kept.values())
    series = series_of(filterfalse(has_promise, requests))
    for request in queues.order(filterfalse(has_promise, requests)):
        for found in _in_turn(outcome, request, series):
            queues.placed(found)
    # 6. When those that are told to leave can go on.
    outcome.resume(snapshot.running)
    # 7. Who borrows, and reasons for everyone, each with its place among all that wait.
    return replace(outcome.plan(snapshot, extensions), withdrawn=withdrawn)


@dataclass(slots=True)
class _Outcome:
    """What the cycle has decided so far."""

    working: Working
    preemption: Preemption
    assigns: list[Assign] = field(default_factory=list)
    waits: list[Waiting] = field(default_factory=list)
    resumes: list[Waiting] = field(default_factory=list)
    standing: set[str] = field(default_factory=set)
    refusals: list[Refuse] = field(default_factory=list)
    lines: dict[str, Line] = field(default_factory=dict)
    orders: list[Carried] = field(default_factory=list)
    promised: Promised = field(init=False)

    def __post_init__(self) -> None:
        self.promised = Promised(self.working)

    def carry(self, carriages: Iterable[Carriage]) -> list[str]:
        """Notes what became of orders; who got its places that way. All is reserved already."""
        for each in carriages:
            self.orders.append(each.answer)
            self.assigns += each.assigns
            self.resumes += each.resumes
            self.preemption.pauses += each.pauses
        return [given.booking for given in self.assigns]

    def line(self, gpu_class: str) -> Line:
        return self.lines.get(gpu_class, Line())

    def refuse(self, request: Request, reasons: tuple[Reason, ...], able: tuple[Want, ...]) -> None:
        """`able` are the wants that another window would serve."""
        starts = max(request.earliest, self.working.now)
        if not request.fixed:
            starts = self.working.first_start(request.earliest)
        asked = wants_of(request) if request.duration > 0 else ()
        later = next_free(self.working, able, starts)
        instead = alternatives(self.working, asked, later, starts, dict(request.durations))
        self.refusals.append(Refuse(request.booking, freed_by(reasons, later), instead))

    def give(
        self,
        request: Request,
        found: Found,
        delayed_by: Reason | None = None,
        slow: tuple[Reason, ...] = (),
    ) -> None:
        """Reserve it: places for good if it starts within the freeze horizon or is fixed in time or
        place, else a promise.

        On the room of running work it is a promise until they have been told. `slow`: why not on
        other classes.
        """
        working, is_due = self.working, self.preemption.is_due(found)
        is_soon = found.starts <= working.now + working.policy.freeze_horizon
        is_soon = is_soon or request.fixed or request.pinned
        is_late = found.starts > working.first_start(request.earliest)
        reasons: tuple[Reason, ...] = ()
        if not (is_soon and is_due) or (request.pinned and is_late):
            reasons = why_waiting(working, request, found, self.line(found.want.gpu_class))
        if is_soon and is_due:
            self.preemption.tell(request, found)
            working.reserve(found)
            self.assign(request, found, reasons)
            return
        if is_due:
            self.preemption.tell(request, found)
        else:
            self.standing.add(request.booking)
        working.reserve(found)
        if not found.over:
            self.promised.add(request.booking, found)
        self.wait(request, found, (*_room_made(found), *reasons, *slow), delayed_by)

    def stay(self, request: Request, kept: Found, slow: tuple[Reason, ...]) -> None:
        """It keeps its promise where it is reserved, on room that is free."""
        working = self.working
        if kept.starts <= working.now + working.policy.freeze_horizon:
            self.assign(request, kept)
            return
        reasons = why_still_waiting(working, request, kept, self.line(kept.want.gpu_class))
        self.promised.add(request.booking, kept)
        self.wait(request, kept, (*reasons, *slow), None)

    def assign(self, request: Request, found: Found, late: tuple[Reason, ...] = ()) -> None:
        """The room is reserved already. `late`: why what is pinned does not start sooner."""
        why = (placed(self.working, found), *_room_made(found), *late)
        self.assigns.append(
            Assign(request.booking, found.want.gpu_class, found.places, *found.window, why)
        )

    def wait(
        self,
        request: Request,
        found: Found,
        reasons: tuple[Reason, ...],
        delayed_by: Reason | None,
    ) -> None:
        """Its room is reserved already, unless nothing proves the start: then it has none."""
        want = found.want
        units = want.count * self.working.pools[want.gpu_class].units(want.shape)
        self.lines[want.gpu_class] = self.line(want.gpu_class).longer(units)
        self.waits.append(_waiting(request, found, reasons, delayed_by))

    def resume(self, running: Iterable[Request]) -> None:
        """Plan when those that are told to leave go on; who finds no start now asks again later."""
        told = self.working.running.told
        known = {each.booking for each in self.resumes}
        for request in running:
            if request.booking in told and request.booking not in known:
                found, reasons = planned_resume(self.working, request, told[request.booking])
                if found is not None:
                    self.working.reserve(found)
                    self.resumes.append(_waiting(request, found, reasons, None))

    def plan(self, snapshot: Snapshot, extensions: tuple[Extend, ...]) -> Plan:
        given: list[Assign | Waiting] = [*self.assigns, *self.waits]
        borrows, claims = borrows_of(self.working, snapshot, given, self.standing)
        by_booking = {borrow.booking: borrow for borrow in borrows}
        waits = (
            replace(
                wait,
                places=self.promised.places(wait.booking) or wait.places,
                reasons=with_totals(wait.reasons, self.line(wait.gpu_class).bookings),
            )
            for wait in (*self.waits, *self.resumes)
        )
        return Plan(
            tuple(said(row, by_booking) for row in sorted(self.assigns, key=_booking)),
            tuple(said(row, by_booking) for row in sorted(waits, key=_booking)),
            tuple(sorted(self.refusals, key=_booking)),
            extensions,
            borrows,
            claims,
            tuple(sorted(self.preemption.pauses, key=_booking)),
            orders=tuple(self.orders),
        )


def _booking(answer: Assign | Waiting | Refuse | Pause) -> str:
    return answer.booking


def _waiting(
    request: Request, found: Found, reasons: tuple[Reason, ...], delayed_by: Reason | None
) -> Waiting:
    gpu_class = found.want.gpu_class
    return Waiting(request.booking, gpu_class, found.places, *found.window, reasons, delayed_by)


def _room_made(found: Found) -> tuple[Reason, ...]:
    return (makes_room(len(found.over), found.starts),) if found.over else ()


def _promised(
    outcome: _Outcome, request: Request, kept: Found | None, broken: Reason | None
) -> None:
    if kept is None:
        _newcomer(outcome, request, broken)
        return
    _, slow = in_time(outcome.working, request, wants_of(request))
    if is_at_its_earliest(outcome.working, request, kept):
        outcome.stay(request, kept, slow)
        return
    found = promise_improve(outcome.working, outcome.preemption, request, kept)
    outcome.give(request, found, None, (*slow, *why_home(request, found)))


def _in_turn(
    outcome: _Outcome, request: Request, series: dict[str, tuple[Request, ...]]
) -> list[Found]:
    """What the booking gets; of a series the first in line brings all the others along.

    Nothing of a series is given, and nobody is told to leave for it, before all of it is found.
    """
    if request.series is None or not request.fixed:
        found = _newcomer(outcome, request, None)
        return [found] if found else []
    members, before = series.pop(request.series, ()), len(outcome.refusals)
    got: list[tuple[Request, Found]] = []
    for each in members:
        able = _able(outcome, each)
        found = _exactly(outcome, each, able[0]) if able else None
        if found is not None:
            outcome.working.reserve(found)
            got.append((each, found))
    for _, found in reversed(got):
        outcome.working.free(found)
    refused = outcome.refusals[before:]
    if refused:
        outcome.refusals[before:] = all_or_none(members, refused)
        return []
    for each, found in got:
        outcome.give(each, found)
    return [found for _, found in got]


def _newcomer(outcome: _Outcome, request: Request, broken: Reason | None) -> Found | None:
    """A booking without a promise that holds; `broken` says what became of the one it had.

    Returns what it got, already reserved.
    """
    able = _able(outcome, request)
    if able is None:
        return None
    wants, slow = able
    if not request.fixed:
        return _flexible(outcome, request, wants, broken, slow)
    found = _exactly(outcome, request, wants)
    if found is not None:
        outcome.give(request, found)
    return found


def _able(
    outcome: _Outcome, request: Request
) -> tuple[tuple[Want, ...], tuple[Reason, ...]] | None:
    """The classes that could serve it in time, and why slower ones can't; None: it is refused."""
    wants, never = possible_wants(outcome.working, wants_of(request))
    late = untimely(outcome.working, request)
    wants, slow = in_time(outcome.working, request, wants)
    if late is None and wants:
        return wants, slow
    # What is too late as asked would still fit in a later window.
    reasons = (*never, *slow) if late is None else (late, *never, *slow)
    outcome.refuse(request, reasons, wants if request.duration > 0 else ())
    return None


def _exactly(outcome: _Outcome, request: Request, wants: tuple[Want, ...]) -> Found | None:
    """Exactly there, not reserved, or refused. A window that has begun, or is too near for those
    who must leave for it to be told in time, is given what is left of it."""
    working = outcome.working
    starts = max(request.earliest, working.now)
    gone = starts - request.earliest
    wants = tuple(replace(w, duration=w.duration - gone) for w in wants if w.duration > gone)
    found = working.first_at(wants, starts) or outcome.promised.make_way(wants, starts)
    if found is None:
        last = last_start(working, request)
        found = outcome.preemption.earliest(request, wants, starts, last)
    if found is None:
        outcome.refuse(request, _window_reasons(outcome, wants[0], starts), wants)
    return found


def _window_reasons(outcome: _Outcome, want: Want, starts: int) -> tuple[Reason, ...]:
    """A fixed window waits for nobody, so reservations in its way make it busy, not a line."""
    reasons = why_not_at(outcome.working, want, starts, outcome.line(want.gpu_class))
    busy = reason("window_busy", "The GPUs are booked by others for some of that window.")
    return tuple(busy if each.code == "line" else each for each in reasons)


def _flexible(
    outcome: _Outcome,
    request: Request,
    wants: tuple[Want, ...],
    broken: Reason | None,
    slow: tuple[Reason, ...],
) -> Found | None:
    """The earliest start there is; inside the freeze horizon it is given, else it is promised."""
    working = outcome.working
    first, last = working.first_start(request.earliest), last_start(working, request)
    found = outcome.preemption.earliest(request, wants, first, last)
    found = or_home(working, request, wants, found, (first, last))
    is_late = found is None or found.starts > first or bool(found.over)
    # What is chosen by its cost or its end need not start sooner.
    is_chosen = found is not None and (request.cheapest or bool(request.durations))
    if is_late and first <= last and not request.paused and not is_chosen:
        # Nobody is delayed, and nobody paused, while promises can lie elsewhere.
        found = outcome.promised.make_way(wants, first) or found
    if found is None:
        _without_place(outcome, request, wants, broken, slow)
        return None
    late = request.promise is not None and found.starts > request.promise.starts
    outcome.give(request, found, broken if late else None, (*slow, *why_home(request, found)))
    return found


def _without_place(
    outcome: _Outcome,
    request: Request,
    wants: tuple[Want, ...],
    broken: Reason | None,
    slow: tuple[Reason, ...],
) -> None:
    """No start can be proven. While its deadline lets it wait, a promised booking is kept, and one
    that only lacks hardware which is out of service."""
    working = outcome.working
    first, horizon = working.first_start(request.earliest), working.now + working.policy.horizon
    last = last_start(working, request)
    out = out_of_service(working, wants, first) if first <= last else None
    if out is not None:
        found = nowhere(working, request, wants[0])
        late = request.promise is not None and found.starts > request.promise.starts
        outcome.wait(request, found, (out, *slow), broken if late else None)
        return
    blockers = why_not_at(working, wants[0], first, outcome.line(wants[0].gpu_class)) + slow
    if last < horizon and not request.paused:
        sentence = "It cannot be finished before its deadline."
        why = reason("deadline_unreachable", sentence, duration=request.duration)
    else:
        sentence = "There is no room for it as far ahead as bookings are planned."
        why = reason("no_room_in_horizon", sentence, horizon_seconds=working.policy.horizon)
        if request.promise is not None or request.paused:
            outcome.wait(request, nowhere(working, request, wants[0]), (why, *blockers), broken)
            return
    outcome.refuse(request, (why, *blockers), wants)
