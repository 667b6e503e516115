"""One cycle: `solve(snapshot, policy)`, the numbered steps and nothing more.

Conservative backfill: every planned start is a reservation for those that come after it, so
nobody is ever delayed by a booking that stands behind it in line.
"""

from dataclasses import replace
from itertools import filterfalse

from allocation.reasons.reason import Reason, reason
from allocation.solver.cycle.extensions import extensions_decide, withdrawals
from allocation.solver.cycle.outcome import Outcome
from allocation.solver.cycle.planned_starts import (
    is_at_its_earliest,
    nowhere,
    promise_improve,
    promises_lay,
)
from allocation.solver.cycle.queue import Queues
from allocation.solver.cycle.relocation_orders import orders_carry
from allocation.solver.cycle.resume_in_place import or_home, why_home
from allocation.solver.cycle.series import all_or_none, series_of
from allocation.solver.model.inputs import Policy, Request, Snapshot
from allocation.solver.model.ordering import has_promise, in_order, promise_order
from allocation.solver.model.plan import Plan
from allocation.solver.placement.gang import Want, wants_of
from allocation.solver.preemption.search import Preemption
from allocation.solver.reasons.blockers import why_not_at
from allocation.solver.reasons.explain import (
    possible_wants,
)
from allocation.solver.reasons.in_service import out_of_service
from allocation.solver.reasons.matching import in_time
from allocation.solver.reasons.resume import last_start
from allocation.solver.reasons.windows import why_untimely
from allocation.solver.rebinding.rebinding import Promised, may_give_way_to
from allocation.solver.state.working import Found, Working


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
    outcome = Outcome(working, preemption, Promised(working, snapshot))
    done = {*withdrawn, *outcome.carry(orders_carry(working, snapshot, kept))}
    requests = [each for each in snapshot.requests if each.booking not in done]
    # 4. Promised bookings in the order of their promises: earlier if possible, never later.
    promised = [each for each in promised if each.booking not in done]
    outcome.promised.keep(
        {r.booking: kept[r.booking] for r in promised if r.booking in kept and not r.home}
    )
    for request in promised:
        before = outcome.promised.take(request.booking, kept)
        _promised(outcome, request, before, broken.get(request.booking))
    outcome.promised.open_to_newcomers()
    # 5. Everybody else in line: fixed windows there or not at all, the others as early as possible.
    # Here and above: within guarantee or borrowing, then with others paused if the rules allow it.
    queues = Queues(working, snapshot, kept.values())
    series = series_of(filterfalse(has_promise, requests))
    for request in queues.order(filterfalse(has_promise, requests)):
        for _, found in in_turn(outcome, request, series):
            queues.placed(found)
    # 6. When those that are told to leave can go on.
    outcome.resume(snapshot.running)
    # 7. Who borrows, and reasons for everyone, each with its place among all that wait.
    return replace(outcome.plan(snapshot, extensions), withdrawn=withdrawn)


def _promised(
    outcome: Outcome, request: Request, kept: Found | None, broken: Reason | None
) -> None:
    if kept is None:
        newcomer(outcome, request, broken)
        return
    working = outcome.working
    wants = wants_of(request)
    _, slow = in_time(working, request, wants)
    found: Found | None
    if is_at_its_earliest(working, request, kept, wants):
        found = outcome.promised.sooner_than(request, kept)
        if found is None:
            outcome.stay(request, kept, slow)
            return
    else:
        found = promise_improve(working, outcome.preemption, request, kept)
        if may_give_way_to(request):
            first = working.first_start(request.earliest)
            found = outcome.promised.sooner((found.want,), found, first) or found
    outcome.give(request, found, None, (*slow, *why_home(request, found)))


def in_turn(
    outcome: Outcome, request: Request, series: dict[str, tuple[Request, ...]]
) -> list[tuple[Request, Found]]:
    """Who gets what, reserved already; of a series the first in line brings all others along.

    Nothing of a series is given, and nobody is told to leave for it, before all of it is found.
    """
    if request.series is None or not request.fixed:
        found = newcomer(outcome, request, None)
        return [(request, found)] if found else []
    members, before = series.pop(request.series, ()), len(outcome.refusals)
    mark = outcome.promised.lying.mark()
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
        outcome.promised.lying.back(mark)
        outcome.refusals[before:] = all_or_none(members, refused)
        return []
    for each, found in got:
        outcome.give(each, found)
    return got


def newcomer(outcome: Outcome, request: Request, broken: Reason | None) -> Found | None:
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


def _able(outcome: Outcome, request: Request) -> tuple[tuple[Want, ...], tuple[Reason, ...]] | None:
    """The classes that could serve it in time, and why slower ones can't; None: it is refused."""
    wants, never = possible_wants(outcome.working, wants_of(request))
    late = why_untimely(outcome.working, request)
    wants, slow = in_time(outcome.working, request, wants)
    if late is None and wants:
        return wants, slow
    # What is too late as asked would still fit in a later window.
    reasons = (*never, *slow) if late is None else (late, *never, *slow)
    outcome.refuse(request, reasons, wants if request.duration > 0 else ())
    return None


def _exactly(outcome: Outcome, request: Request, wants: tuple[Want, ...]) -> Found | None:
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


def _window_reasons(outcome: Outcome, want: Want, starts: int) -> tuple[Reason, ...]:
    """A fixed window waits for nobody, so reservations in its way make it busy, not a line."""
    reasons = why_not_at(outcome.working, want, starts, outcome.line(want.gpu_class))
    busy = reason("window_busy")
    return tuple(busy if each.code == "line" else each for each in reasons)


def _flexible(
    outcome: Outcome,
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
    if first <= last and (may_give_way_to(request) or (found is None and not request.paused)):
        # Nobody is delayed, and nobody paused, while others can lie elsewhere; what was promised
        # and has lost its place is to keep its start.
        before = request.promise.starts if request.promise is not None else first
        wished = sorted({first, min(max(first, before), last)})
        found = outcome.promised.sooner(wants, found, *wished)
    if found is None:
        _without_place(outcome, request, wants, broken, slow)
        return None
    late = request.promise is not None and found.starts > request.promise.starts
    outcome.give(request, found, broken if late else None, (*slow, *why_home(request, found)))
    return found


def _without_place(
    outcome: Outcome,
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
        why = reason("deadline_unreachable", busy=1, duration=request.duration)
    else:
        why = reason("no_room_in_horizon", horizon_seconds=working.policy.horizon)
        if request.promise is not None or request.paused:
            outcome.wait(request, nowhere(working, request, wants[0]), (why, *blockers), broken)
            return
    outcome.refuse(request, (why, *blockers), wants)
