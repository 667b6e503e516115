"""The depth of planning: how many bookings of the queue get a planned start.

Behind them a booking that borrows starts at once where there is room, else it waits without a
planned start until it is among them. So a cycle costs as much as its depth and its fleet, however
long the queue is.
"""

from collections.abc import Callable, Iterable

from allocation.reasons.reason import Reason, reason
from allocation.solver.cycle.order.queue import Turn
from allocation.solver.cycle.outcome import Outcome
from allocation.solver.cycle.placing import able_demands
from allocation.solver.cycle.planned_starts import unproven_start
from allocation.solver.model.demand import Demand, Fit
from allocation.solver.model.inputs import Request


def behind_the_depth(
    turns: Iterable[Turn], depth: int, part_of: Callable[[Request], str]
) -> set[str]:
    """The bookings behind the first `depth` of their connected classes that may wait unplanned.

    A booking inside its guarantee, a fixed window, one with a deadline and a paused one are planned
    wherever they stand. With depth 0 all are planned.
    """
    found, passed = set[str](), dict[str, int]()
    for turn in turns if depth else ():
        request, part = turn.request, part_of(turn.request)
        passed[part] = passed.get(part, 0) + 1
        has_claim = turn.inside or request.fixed or request.paused or bool(request.home)
        if passed[part] > depth and not has_claim and request.latest is None:
            found.add(request.booking)
    return found


def start_or_wait(outcome: Outcome, request: Request, broken: Reason | None) -> Fit | None:
    """Start a booking behind the depth if it has room now; `broken` is the reason why it lost its
    start. Returns what is reserved; None: it waits without a planned start, or is refused."""
    state, able = outcome.state, able_demands(outcome, request)
    if able is None:
        return None
    demands, slow = able
    found = _free_now(outcome, demands) if request.earliest <= state.now else None
    if found is not None:
        outcome.place(request, found, None, slow)
        return found
    why = reason("behind_the_plan", depth=state.policy.plan_depth)
    late = broken if request.promise is not None and request.promise.places else None
    outcome.wait(request, unproven_start(state, request, demands[0]), (why, *slow), late)
    return None


def _free_now(outcome: Outcome, demands: Iterable[Demand]) -> Fit | None:
    """Free room at this second. What one kind of demand did not find, longer ones do not either."""
    state, no_room = outcome.state, outcome.state.no_room
    hopeful = [each for each in demands if no_room.first_possible(each) <= state.now]
    for each in hopeful:
        if not state.has_room(each, state.now):
            no_room.record_search(each, state.now + 1)
    return state.first_at(hopeful, state.now) if hopeful else None
