"""Starts of claims inside a guarantee that planned starts of others stand in the way of.

A planned start owns its second, not its GPU. Where a claim may have somebody paused, or finds a GPU
free, and a planned start later in its window is the only obstacle, that one moves.
"""

from collections.abc import Iterable, Mapping

from solver.cycle.outcome import Outcome
from solver.model.demand import Demand, Fit
from solver.model.inputs import Request
from solver.state.cycle_state import CycleState

_TRIES = 2
_MOST_LIFTED = 5_000
"""Planned starts that one cycle may lift in vain: at a large site each attempt lifts many."""


def among_planned(
    outcome: Outcome, request: Request, demands: Iterable[Demand], first: int, found: Fit | None
) -> Fit | None:
    """A start as soon as running work can be out, with the planned starts in its way at other
    places for the same seconds; else `found`. Nothing is reserved but those places."""
    is_mixed = bool(request.ask.groups)
    if request.fixed or request.paused or request.pinned or request.durations or is_mixed:
        return found
    for demand in demands:
        if demand.gpu_class not in outcome.state.firm.gpus:
            continue  # Nobody runs there who may be paused.
        outs = outcome.preemption.victim_rules.departures.first_outs(demand.gpu_class)
        last = max((first, *outs[-1:]))
        is_late = outs and (found is None or found.starts > last)
        if is_late and outcome.preemption.places.is_inside(demand, first):
            return _with_planned_moved(outcome, request, demand, (first, last)) or found
    return found


def _with_planned_moved(
    outcome: Outcome, request: Request, demand: Demand, between: tuple[int, int]
) -> Fit | None:
    state, movable = outcome.state, outcome.rebinding.movable
    name, (first, last) = demand.gpu_class, between
    kind = (demand.owners[0], demand.tier, name, demand.shape, demand.count, demand.level, first)
    if outcome.lifted_in_vain > _MOST_LIFTED:
        return None
    if demand.duration >= outcome.failed_claims.get(kind, demand.duration + 1):
        return None
    rows = outcome.rebinding.near(name, (first, last + demand.duration))
    if not rows:
        return None
    with state.trial(name) as keep:
        found, again = _with_lifted(outcome, request, demand, between, rows)
        if found is None or again is None:
            if found is not None and not found.victims:
                # Room only gets less: the same for a longer time would fail, too.
                outcome.failed_claims[kind] = demand.duration
            return None
        keep()
    movable.move(name, again)
    outcome.awaiting_pauses.update(booking for booking, row in again.items() if row.victims)
    return found


def _with_lifted(
    outcome: Outcome,
    request: Request,
    demand: Demand,
    between: tuple[int, int],
    rows: Mapping[str, Fit],
) -> tuple[Fit | None, dict[str, Fit] | None]:
    """What the claim gets without these planned starts, and their new places, reserved; without new
    places they are reserved where they were."""
    for row in rows.values():
        outcome.state.free(row)
    found, again = _searched(outcome, request, demand, between, rows)
    if found is not None and again is None:
        # Then a planned start may have somebody paused as well.
        found, again = _searched(outcome, request, demand, between, rows, pausing=True)
    for row in rows.values() if again is None else ():
        outcome.state.reserve(row)
    return found, again


def _searched(
    outcome: Outcome,
    request: Request,
    demand: Demand,
    between: tuple[int, int],
    rows: Mapping[str, Fit],
    *,
    pausing: bool = False,
) -> tuple[Fit | None, dict[str, Fit] | None]:
    """What the claim gets with these planned starts, which are free on entry, and their new places,
    reserved. A start that has no other place stays where it is, and the claim is searched once more
    next to it. With `pausing` it may have another place where somebody is paused for it. Without
    new places all are free again."""
    lifted, stays = dict(rows), list[Fit]()
    found: Fit | None = None
    for _ in range(_TRIES):
        for row in stays:
            outcome.state.reserve(row)
        found = outcome.preemption.earliest(request, (demand,), *between)
        again, stuck = ({}, "") if found is None else _again_beside(outcome, found, lifted, pausing=pausing)
        if found is not None and not stuck:
            return found, again
        for row in stays:
            outcome.state.free(row)
        outcome.lifted_in_vain += len(lifted)
        stays = [lifted.pop(stuck)] if stuck else []
        if found is None or not lifted:
            break
    return found, None


def _has_quota(state: CycleState, claim: Fit) -> bool:
    """True when a reserved claim is within its quota next to all others."""
    uses = state.uses(claim.demand)
    for use in uses:
        state.quota.add(use, claim.window, -1)
    are_over = [state.quota.over(use, claim.window) is not None for use in uses]
    for use in uses:
        state.quota.add(use, claim.window)
    return not any(are_over)


def _with_victims(outcome: Outcome, booking: str, row: Fit) -> Fit | None:
    """Other places for a planned start with somebody paused for it; for a guaranteed one, somebody
    of its own tenant."""
    found = outcome.preemption.at_its_second(booking, row)
    if found is None or not outcome.strengths.use.is_counted(booking):
        return found
    return None if outcome.preemption.notices.depends_on_others(found) else found


def _again_beside(
    outcome: Outcome, claim: Fit, rows: Mapping[str, Fit], *, pausing: bool
) -> tuple[dict[str, Fit], str]:
    """Reserve all of them again for their seconds with the claim's room taken, or none and return
    the first that has no place."""
    state = outcome.state
    state.reserve(claim)
    again: dict[str, Fit] = {}
    stuck = ""
    for booking, row in sorted(rows.items(), key=lambda each: (each[1].starts, each[0])):
        is_free = state.is_free(row) and state.over(row.demand, row.starts) is None
        there = row if is_free else state.at(row.demand, row.starts)
        if there is None and pausing and not outcome.is_written(booking):
            there = _with_victims(outcome, booking, row)
        if there is None:
            stuck = booking
            break
        state.reserve(there)
        again[booking] = there
    if not stuck and again and not _has_quota(state, claim):
        # Only without the quota of those that were lifted it was within its own.
        stuck = next(iter(again))
    state.free(claim)
    for there in again.values() if stuck else ():
        state.free(there)
    return ({} if stuck else again), stuck
