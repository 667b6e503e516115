"""Starts of claims inside a guarantee that planned starts of others stand in the way of.

A planned start owns its second, not its GPU. Where a claim may have somebody paused, or finds a GPU
free, and a planned start later in its window is the only obstacle, that one moves.
"""

from collections.abc import Iterable, Mapping

from allocation.solver.cycle.outcome import Outcome
from allocation.solver.model.demand import Demand, Fit
from allocation.solver.model.inputs import Request
from allocation.solver.state.cycle_state import CycleState

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
        outs = outcome.preemption.first_outs(demand.gpu_class)
        last = max((first, *outs[-1:]))
        is_late = outs and (found is None or found.starts > last)
        if is_late and outcome.preemption.is_inside(demand, first):
            return _with_planned_moved(outcome, request, demand, (first, last)) or found
    return found


def _with_planned_moved(
    outcome: Outcome, request: Request, demand: Demand, between: tuple[int, int]
) -> Fit | None:
    state, movable = outcome.state, outcome.rebinding.movable
    name, (first, last) = demand.gpu_class, between
    near = movable.near(name, (first, last + demand.duration))
    rows = {booking: found for booking, found in near.items() if not found.victims}
    kind = (demand.owners[0], demand.tier, name, demand.shape, demand.count, demand.level, first)
    if not rows or demand.duration >= outcome.failed_claims.get(kind, demand.duration + 1):
        return None
    if outcome.lifted_in_vain > _MOST_LIFTED:
        return None
    with state.trial(name) as keep:
        for row in rows.values():
            state.free(row)
        found = outcome.preemption.earliest(request, (demand,), first, last)
        again = None if found is None else _again_beside(state, found, rows)
        if found is None or again is None:
            for row in rows.values():
                state.reserve(row)
            if found is not None and not found.victims:
                # Room only gets less: the same for a longer time would fail, too.
                outcome.failed_claims[kind] = demand.duration
            outcome.lifted_in_vain += len(rows)
            return None
        keep()
    movable.move(name, again)
    return found


def _again_beside(state: CycleState, claim: Fit, rows: Mapping[str, Fit]) -> dict[str, Fit] | None:
    """Reserve all of them again for their seconds with the claim's room taken; None, with nothing
    reserved: one of them has no place."""
    state.reserve(claim)
    again: dict[str, Fit] = {}
    for booking, row in sorted(rows.items(), key=lambda each: (each[1].starts, each[0])):
        is_free = state.is_free(row) and state.over(row.demand, row.starts) is None
        there = row if is_free else state.at(row.demand, row.starts)
        if there is None:
            break
        state.reserve(there)
        again[booking] = there
    state.free(claim)
    if len(again) == len(rows):
        return again
    for there in again.values():
        state.free(there)
    return None
