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
    planned_start_improve,
    planned_starts_reserve,
    unproven_start,
)
from allocation.solver.cycle.queue import BookingQueue
from allocation.solver.cycle.relocation_orders import relocation_orders_apply
from allocation.solver.cycle.resume_in_place import original_gpus_or_found, why_original_gpus
from allocation.solver.cycle.series import all_or_none, series_of
from allocation.solver.model.inputs import Policy, Request, Snapshot
from allocation.solver.model.ordering import has_planned_start, in_order, planned_start_order
from allocation.solver.model.plan import Plan
from allocation.solver.placement.gang import Demand, demands_of
from allocation.solver.preemption.search import Preemption
from allocation.solver.reasons.blockers import why_not_at
from allocation.solver.reasons.explain import (
    possible_demands,
)
from allocation.solver.reasons.in_service import out_of_service
from allocation.solver.reasons.matching import in_time
from allocation.solver.reasons.resume import last_start
from allocation.solver.reasons.windows import why_window_impossible
from allocation.solver.rebinding.rebinding import Rebinding, may_move_others
from allocation.solver.state.working import Fit, Working


def solve(snapshot: Snapshot, policy: Policy) -> Plan:
    """Decide everything that wants room. ValueError for a snapshot that contradicts itself."""
    snapshot = in_order(snapshot)
    # 1. Lay what is live on the calendar: it is never moved.
    working = Working(snapshot, policy)
    preemption = Preemption(working, snapshot)
    # 2. Reserve every promise that still fits where it was planned.
    promised = sorted(filter(has_planned_start, snapshot.requests), key=planned_start_order)
    kept, broken = planned_starts_reserve(working, preemption, promised)
    # 3. Pauses that nobody needs any more are taken back; extensions; what operators ordered to be
    # moved. None of it may cost a promise its start.
    withdrawn = withdrawals(working, snapshot, kept)
    extensions = extensions_decide(working, snapshot, kept)
    outcome = Outcome(working, preemption, Rebinding(working, snapshot))
    done = {*withdrawn, *outcome.carry(relocation_orders_apply(working, snapshot, kept))}
    requests = [each for each in snapshot.requests if each.booking not in done]
    # 4. Promised bookings in the order of their promises: earlier if possible, never later.
    promised = [each for each in promised if each.booking not in done]
    outcome.promised.keep(
        {r.booking: kept[r.booking] for r in promised if r.booking in kept and not r.home}
    )
    for request in promised:
        before = outcome.promised.take(request.booking, kept)
        _place_planned(outcome, request, before, broken.get(request.booking))
    outcome.promised.open_to_newcomers()
    # 5. Everybody else in line: fixed windows there or not at all, the others as early as possible.
    # Here and above: within guarantee or borrowing, then with others paused if the rules allow it.
    queues = BookingQueue(working, snapshot, kept.values())
    series = series_of(filterfalse(has_planned_start, requests))
    for request in queues.order(filterfalse(has_planned_start, requests)):
        for _, found in place_in_turn(outcome, request, series):
            queues.placed(found)
    # 6. When those that are told to leave can go on.
    outcome.resume(snapshot.running)
    # 7. Who borrows, and reasons for everyone, each with its place among all that wait.
    return replace(outcome.plan(snapshot, extensions), withdrawn=withdrawn)


def _place_planned(
    outcome: Outcome, request: Request, kept: Fit | None, broken: Reason | None
) -> None:
    if kept is None:
        newcomer(outcome, request, broken)
        return
    working = outcome.working
    demands = demands_of(request)
    _, slow = in_time(working, request, demands)
    found: Fit | None
    if is_at_its_earliest(working, request, kept, demands):
        found = outcome.promised.earlier_than_planned(request, kept)
        if found is None:
            outcome.stay(request, kept, slow)
            return
    else:
        found = planned_start_improve(working, outcome.preemption, request, kept)
        if may_move_others(request):
            first = working.first_start(request.earliest)
            found = outcome.promised.earlier_with_moves((found.demand,), found, first) or found
    outcome.give(request, found, None, (*slow, *why_original_gpus(request, found)))


def place_in_turn(
    outcome: Outcome, request: Request, series: dict[str, tuple[Request, ...]]
) -> list[tuple[Request, Fit]]:
    """Who gets what, reserved already; of a series the first in line brings all others along.

    Nothing of a series is given, and nobody is told to leave for it, before all of it is found.
    """
    if request.series is None or not request.fixed:
        found = newcomer(outcome, request, None)
        return [(request, found)] if found else []
    members, before = series.pop(request.series, ()), len(outcome.refusals)
    mark = outcome.promised.movable.mark()
    got: list[tuple[Request, Fit]] = []
    for each in members:
        able = _able_demands(outcome, each)
        found = _at_fixed_start(outcome, each, able[0]) if able else None
        if found is not None:
            outcome.working.reserve(found)
            got.append((each, found))
    for _, found in reversed(got):
        outcome.working.free(found)
    refused = outcome.refusals[before:]
    if refused:
        outcome.promised.movable.back(mark)
        outcome.refusals[before:] = all_or_none(members, refused)
        return []
    for each, found in got:
        outcome.give(each, found)
    return got


def newcomer(outcome: Outcome, request: Request, broken: Reason | None) -> Fit | None:
    """A booking without a promise that holds; `broken` says what became of the one it had.

    Returns what it got, already reserved.
    """
    able = _able_demands(outcome, request)
    if able is None:
        return None
    demands, slow = able
    if not request.fixed:
        return _place_flexible(outcome, request, demands, broken, slow)
    found = _at_fixed_start(outcome, request, demands)
    if found is not None:
        outcome.give(request, found)
    return found


def _able_demands(
    outcome: Outcome, request: Request
) -> tuple[tuple[Demand, ...], tuple[Reason, ...]] | None:
    """The classes that could serve it in time, and why slower ones can't; None: it is refused."""
    demands, never = possible_demands(outcome.working, demands_of(request))
    late = why_window_impossible(outcome.working, request)
    demands, slow = in_time(outcome.working, request, demands)
    if late is None and demands:
        return demands, slow
    # What is too late as asked would still fit in a later window.
    reasons = (*never, *slow) if late is None else (late, *never, *slow)
    outcome.refuse(request, reasons, demands if request.duration > 0 else ())
    return None


def _at_fixed_start(outcome: Outcome, request: Request, demands: tuple[Demand, ...]) -> Fit | None:
    """Exactly there, not reserved, or refused. A window that has begun, or is too near for those
    who must leave for it to be told in time, is given what is left of it."""
    working = outcome.working
    starts = max(request.earliest, working.now)
    gone = starts - request.earliest
    demands = tuple(replace(w, duration=w.duration - gone) for w in demands if w.duration > gone)
    found = working.first_at(demands, starts) or outcome.promised.place_with_moves(demands, starts)
    if found is None:
        last = last_start(working, request)
        found = outcome.preemption.earliest(request, demands, starts, last)
    if found is None:
        outcome.refuse(request, _window_reasons(outcome, demands[0], starts), demands)
    return found


def _window_reasons(outcome: Outcome, demand: Demand, starts: int) -> tuple[Reason, ...]:
    """A fixed window waits for nobody, so reservations in its way make it busy, not a line."""
    reasons = why_not_at(outcome.working, demand, starts, outcome.line(demand.gpu_class))
    busy = reason("window_busy")
    return tuple(busy if each.code == "line" else each for each in reasons)


def _place_flexible(
    outcome: Outcome,
    request: Request,
    demands: tuple[Demand, ...],
    broken: Reason | None,
    slow: tuple[Reason, ...],
) -> Fit | None:
    """The earliest start there is; inside the freeze horizon it is given, else it is promised."""
    working = outcome.working
    first, last = working.first_start(request.earliest), last_start(working, request)
    found = outcome.preemption.earliest(request, demands, first, last)
    found = original_gpus_or_found(working, request, demands, found, (first, last))
    if first <= last and (may_move_others(request) or (found is None and not request.paused)):
        # Nobody is delayed, and nobody paused, while others can lie elsewhere; what was promised
        # and has lost its place is to keep its start.
        before = request.promise.starts if request.promise is not None else first
        wished = sorted({first, min(max(first, before), last)})
        found = outcome.promised.earlier_with_moves(demands, found, *wished)
    if found is None:
        _without_start(outcome, request, demands, broken, slow)
        return None
    late = request.promise is not None and found.starts > request.promise.starts
    outcome.give(
        request, found, broken if late else None, (*slow, *why_original_gpus(request, found))
    )
    return found


def _without_start(
    outcome: Outcome,
    request: Request,
    demands: tuple[Demand, ...],
    broken: Reason | None,
    slow: tuple[Reason, ...],
) -> None:
    """No start can be proven. While its deadline lets it wait, a promised booking is kept, and one
    that only lacks hardware which is out of service."""
    working = outcome.working
    first, horizon = working.first_start(request.earliest), working.now + working.policy.horizon
    last = last_start(working, request)
    out = out_of_service(working, demands, first) if first <= last else None
    if out is not None:
        found = unproven_start(working, request, demands[0])
        late = request.promise is not None and found.starts > request.promise.starts
        outcome.wait(request, found, (out, *slow), broken if late else None)
        return
    blockers = why_not_at(working, demands[0], first, outcome.line(demands[0].gpu_class)) + slow
    if last < horizon and not request.paused:
        why = reason("deadline_unreachable", busy=1, duration=request.duration)
    else:
        why = reason("no_room_in_horizon", horizon_seconds=working.policy.horizon)
        if request.promise is not None or request.paused:
            outcome.wait(
                request, unproven_start(working, request, demands[0]), (why, *blockers), broken
            )
            return
    outcome.refuse(request, (why, *blockers), demands)
