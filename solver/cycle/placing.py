"""The start of one booking: of a newcomer, of a series, or a planned start made earlier."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from solver.cycle.claims import among_planned
from solver.cycle.outcome import Outcome
from solver.cycle.planned_starts import (
    instants_if_full,
    is_as_asked,
    is_quiet,
    planned_start_improve,
    unproven_start,
)
from solver.cycle.resume_in_place import original_gpus_or_found, why_original_gpus
from solver.explanation.blockers import out_of_service, why_limited, why_not_at
from solver.explanation.explain import possible_demands, why_window_impossible
from solver.model.demand import Demand, Fit, demands_of
from solver.model.inputs import Request
from solver.model.plan import Refuse
from solver.reasons.reason import Reason, reason
from solver.rebinding.rebinding import may_move_others
from solver.state.cycle_state import CycleState
from solver.state.energy_starts import better_than_kept, energy_start, waits_for_energy
from solver.state.start_times import in_time, last_start


@dataclass(frozen=True, slots=True)
class Feasible:
    """The demands of a request that can be met in time, why its slower classes can't, and the first
    and the last second at which it may start."""

    demands: tuple[Demand, ...]
    slow: tuple[Reason, ...]
    first: int
    last: int


def place_planned(outcome: Outcome, request: Request, kept: Fit, *, is_reserved: bool = True) -> Fit:
    """Keep a planned start that has its room and quota, or make it earlier; return what is reserved.

    A guaranteed start is never exchanged for an earlier expected one, unless that is so soon that
    it is assigned at once.
    """
    if is_quiet(outcome.state, request, kept):
        _hold(outcome.state, kept, is_reserved=is_reserved)
        outcome.keep_as_before(request, kept)
        return kept
    by_energy = _place_by_energy(outcome, request, kept, is_reserved=is_reserved)
    return by_energy or _place_soonest(outcome, request, kept, is_reserved=is_reserved)


def _place_soonest(outcome: Outcome, request: Request, kept: Fit, *, is_reserved: bool) -> Fit:
    """Keep a planned start, or make it earlier."""
    state, mark = outcome.state, outcome.rebinding.movable.mark()
    demands = demands_of(request)
    _, slow = in_time(state, request, demands)
    if is_as_asked(state, request, kept):
        _hold(state, kept, is_reserved=is_reserved)
        outcome.keep_start(request, kept, slow)
        return kept
    instants, room_at = instants_if_full(
        state, outcome.preemption, request, kept, demands, is_reserved=is_reserved
    )
    if instants is not None and not instants:
        _hold(state, kept, is_reserved=is_reserved)
        moved = outcome.rebinding.earlier_than_planned(request, kept)
        if moved is None:
            outcome.keep_start(request, kept, slow, room_at)
            return kept
        return _place_improved(outcome, request, kept, (moved, mark), slow)
    with state.trial(kept.demand.gpu_class) as keep:
        found = planned_start_improve(
            state, outcome.preemption, request, kept, instants, is_reserved=is_reserved
        )
        if may_move_others(request):
            first = state.first_start(request.earliest)
            found = outcome.rebinding.earlier_with_moves((found.demand,), found, first) or found
        if found is kept and instants is not None:
            state.put_back(kept)
            outcome.keep_start(request, kept, slow, room_at)
            return kept
        found = _place_improved(outcome, request, kept, (found, mark), slow, room_at)
        if found is not kept or kept.victims:
            keep()
    return found


def _place_by_energy(outcome: Outcome, request: Request, kept: Fit, *, is_reserved: bool) -> Fit | None:
    """Keep a planned start that waits for energy, or take a better one; return what is reserved. None:
    energy is no reason to wait any more, and nothing has changed."""
    state = outcome.state
    if kept.victims or not waits_for_energy(state, request):
        return None
    able, slow = in_time(state, request, demands_of(request))
    if is_reserved:
        state.free(kept)
    possible, _ = possible_demands(state, able)
    last = last_start(state, request)
    chosen = better_than_kept(state, request, possible, kept, last) if possible else None
    if chosen is None:
        if is_reserved:
            state.put_back(kept)
        return None
    outcome.place(request, chosen.fit, None, slow, chosen.why)
    return chosen.fit


def _hold(state: CycleState, kept: Fit, *, is_reserved: bool) -> None:
    """Reserve a planned start that is known to have its room and quota, if it is not yet."""
    if not is_reserved:
        state.put_back(kept)


def _place_improved(
    outcome: Outcome,
    request: Request,
    kept: Fit,
    better: tuple[Fit, int],
    slow: tuple[Reason, ...],
    room_at: int | None = None,
) -> Fit:
    """Place what was found, with the mark before it was searched, unless the kept start is as good, before
    which there is room first at `room_at`, if that is known. Returns what is reserved."""
    found, mark = better
    is_worse = _is_no_gain(outcome, kept, found) or outcome.is_weaker(request, kept, found)
    if found.starts < kept.starts and is_worse:
        outcome.rebinding.movable.back(mark)
        found = kept
    if found is not kept:
        room_at = None
    outcome.place(request, found, None, (*slow, *why_original_gpus(request, found)), room_at=room_at)
    return found


def _is_no_gain(outcome: Outcome, kept: Fit, found: Fit) -> bool:
    """True when a planned start would be earlier by a step of the grid or less, and neither be now,
    nor save a pause, nor use what others leave: each start that moves makes others behind it move."""
    if kept.victims or found.starts <= outcome.state.now or outcome.strengths.has_room_made(found):
        return False
    return kept.starts - found.starts <= outcome.state.policy.grid


def place_in_turn(
    outcome: Outcome, request: Request, series: dict[str, tuple[Request, ...]]
) -> list[tuple[Request, Fit]]:
    """Place the request; the first of a series places all its members. Returns what is reserved.

    A series is assigned, and its victims get notice, only when all of its members fit.
    """
    if request.series is None or not request.fixed:
        found = newcomer(outcome, request, None)
        return [(request, found)] if found else []
    members, before = series.pop(request.series, ()), len(outcome.refusals)
    mark = outcome.rebinding.movable.mark()
    got: list[tuple[Request, Fit]] = []
    for each in members:
        able = feasible(outcome, each)
        found = None if able is None else _at_fixed_start(outcome, each, able)
        if found is not None:
            outcome.state.reserve(found)
            got.append((each, found))
    for _, found in reversed(got):
        outcome.state.free(found)
    refused = outcome.refusals[before:]
    if refused:
        outcome.rebinding.movable.back(mark)
        outcome.refusals[before:] = all_or_none(members, refused)
        return []
    for each, found in got:
        outcome.place(each, found)
    return got


def newcomer(outcome: Outcome, request: Request, broken: Reason | None) -> Fit | None:
    """Place a request without a planned start that holds; `broken` is the reason why it lost one.

    Returns the fit, reserved; None: it waits without a proof, or is refused.
    """
    able = feasible(outcome, request)
    if able is None:
        return None
    if not request.fixed:
        return _place_flexible(outcome, request, able, broken)
    found = _at_fixed_start(outcome, request, able)
    if found is not None:
        outcome.place(request, found)
    return found


def find(outcome: Outcome, request: Request) -> Fit | None:
    """The earliest fit for a change, not reserved; else the request is refused.

    Others may have other places then, and running work may have to be paused.
    """
    able = feasible(outcome, request)
    if able is None:
        return None
    if request.fixed:
        return _at_fixed_start(outcome, request, able)
    demands, first, last = able.demands, able.first, able.last
    found = outcome.preemption.earliest(request, demands, first, last) if first <= last else None
    if first <= last and may_move_others(request):
        found = outcome.rebinding.earlier_with_moves(demands, found, first)
    if found is None:
        outcome.refuse(request, _flexible_reasons(outcome, request, able), demands)
    return found


def _flexible_reasons(outcome: Outcome, request: Request, able: Feasible) -> tuple[Reason, ...]:
    """Reasons against a flexible request that has no start in time."""
    state, demand, slow = outcome.state, able.demands[0], able.slow
    blockers = why_not_at(state, demand, able.first, outcome.ahead(demand.gpu_class))
    if request.latest is not None and request.latest < state.now + state.policy.horizon:
        return (reason("deadline_unreachable", busy=1, duration=request.duration), *blockers, *slow)
    horizon = reason("no_room_in_horizon", horizon_seconds=state.policy.horizon)
    limit = why_limited(state, demand, able.first, able.last)
    return _limit_first(limit, (horizon, *blockers, *slow))


def _limit_first(limit: Reason | None, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """The reasons, of which a limit is the first: there is room, and it forbids to take it."""
    if limit is None:
        return reasons
    return (limit, *(each for each in reasons if each.code != limit.code))


def feasible(outcome: Outcome, request: Request) -> Feasible | None:
    """How the request can be met; None: it is refused."""
    state = outcome.state
    demands, never = possible_demands(state, demands_of(request))
    late = why_window_impossible(state, request)
    demands, slow = in_time(state, request, demands)
    if late is None and demands:
        last = last_start(state, request)
        return Feasible(demands, slow, state.first_start(request.earliest), last)
    # A window that is too late as asked would still fit later.
    reasons = (*never, *slow) if late is None else (late, *never, *slow)
    if late is not None and request.planned is not None:
        reasons = (reason("missed"), *reasons)
    outcome.refuse(request, reasons, demands if request.duration > 0 else ())
    return None


def _at_fixed_start(outcome: Outcome, request: Request, able: Feasible) -> Fit | None:
    """A fit at exactly that start, not reserved; else the request is refused.

    Of a window that has begun, or that starts too soon for its victims' notice, what is left is
    placed.
    """
    state = outcome.state
    starts = max(request.earliest, state.now)
    gone = starts - request.earliest
    demands = tuple(
        replace(each, duration=each.duration - gone) for each in able.demands if each.duration > gone
    )
    found = state.first_at(demands, starts) or outcome.rebinding.place_with_moves(demands, starts)
    if found is None:
        found = outcome.preemption.earliest(request, demands, starts, able.last)
    if found is None:
        outcome.refuse(request, _window_reasons(outcome, demands[0], starts), demands)
    return found


def _window_reasons(outcome: Outcome, demand: Demand, starts: int) -> tuple[Reason, ...]:
    """Reasons against a fixed window. It does not queue, so reservations make it busy."""
    reasons = why_not_at(outcome.state, demand, starts, outcome.ahead(demand.gpu_class))
    busy = reason("window_busy")
    return tuple(busy if each.code == "line" else each for each in reasons)


def _place_flexible(outcome: Outcome, request: Request, able: Feasible, broken: Reason | None) -> Fit | None:
    """The earliest start: assigned within the freeze horizon, else planned."""
    state, demands, first, last = outcome.state, able.demands, able.first, able.last
    found = outcome.preemption.earliest(request, demands, first, last)
    if found is not None and waits_for_energy(state, request):
        chosen = energy_start(state, request, demands, found, last)
        if chosen is not None:
            is_later = request.planned is not None and chosen.fit.starts > request.planned.starts
            outcome.place(request, chosen.fit, broken if is_later else None, able.slow, chosen.why)
            return chosen.fit
    found = original_gpus_or_found(state, request, demands, found, (first, last))
    if first <= last and (may_move_others(request) or (found is None and not request.paused)):
        # Moves delay nobody and pause nobody, so they come first. A booking that lost its place
        # tries to keep its planned second.
        before = request.planned.starts if request.planned is not None else first
        instants = sorted({first, min(max(first, before), last)})
        found = outcome.rebinding.earlier_with_moves(demands, found, *instants)
    if first <= last:
        found = among_planned(outcome, request, demands, first, found)
    if found is None:
        _without_start(outcome, request, able, broken)
        return None
    late = request.planned is not None and found.starts > request.planned.starts
    why = (*able.slow, *why_original_gpus(request, found))
    outcome.place(request, found, broken if late else None, why)
    return found


def _without_start(outcome: Outcome, request: Request, able: Feasible, broken: Reason | None) -> None:
    """Handle a request without a provable start: planned bookings wait as long as their deadline
    allows, and so does one that only lacks hardware out of service; others are refused."""
    state, demands, slow, first, last = (
        outcome.state,
        able.demands,
        able.slow,
        able.first,
        able.last,
    )
    horizon = state.now + state.policy.horizon
    out = out_of_service(state, demands, first) if first <= last else None
    if out is not None:
        found = unproven_start(state, request, demands[0])
        late = request.planned is not None and found.starts > request.planned.starts
        outcome.wait(request, found, (out, *slow), broken if late else None)
        return
    blockers = why_not_at(state, demands[0], first, outcome.ahead(demands[0].gpu_class)) + slow
    is_accepted = request.planned is not None and (broken is None or broken.code != "ask_changed")
    if last < horizon and not request.paused:
        if is_accepted:
            # Others may end early, so it waits for as long as it can still be in time.
            why = reason("deadline_at_risk", last)
            found = unproven_start(state, request, demands[0])
            outcome.wait(request, found, (why, *blockers), broken)
            return
        why = reason("deadline_unreachable", busy=1, duration=request.duration)
    else:
        why = reason("no_room_in_horizon", horizon_seconds=state.policy.horizon)
        if request.planned is not None or request.paused:
            outcome.wait(request, unproven_start(state, request, demands[0]), (why, *blockers), broken)
            return
    limit = why_limited(state, demands[0], first, last) if why.code == "no_room_in_horizon" else None
    outcome.refuse(request, _limit_first(limit, (why, *blockers)), demands)


def series_of(requests: Iterable[Request]) -> dict[str, tuple[Request, ...]]:
    """The fixed windows of each all-or-nothing series, by date."""
    found: dict[str, list[Request]] = {}
    for request in requests:
        if request.series is not None and request.fixed:
            found.setdefault(request.series, []).append(request)
    return {
        name: tuple(sorted(members, key=lambda each: (each.earliest, each.booking)))
        for name, members in found.items()
    }


def all_or_none(members: Iterable[Request], refused: Iterable[Refuse]) -> list[Refuse]:
    """Refusals of all members: failed ones keep their reasons, the others name the conflict."""
    failed = {refusal.booking: refusal for refusal in refused}
    members = tuple(members)
    first = min(each.earliest for each in members if each.booking in failed)
    because = reason("series_conflict", conflicts=len(failed), of=len(members), first_conflict=first)
    return [failed.get(each.booking) or Refuse(each.booking, (because,)) for each in members]
