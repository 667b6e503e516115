"""An operator's order to move running work, carried out if all of it still holds.

The order is checked again against the deciding snapshot and carried out whole or not at all. All
bookings that move get notice now and leave when the longest notice is over. At that second the
beneficiary starts, and each moved booking resumes in its new place.
"""

from dataclasses import dataclass

from solver.cycle.planned_starts import is_usable
from solver.explanation.explain import placed
from solver.model.demand import Demand, Fit, demand_of, demands_of
from solver.model.inputs import Order, Place, Relocation, Request, Snapshot
from solver.model.plan import Assign, OrderAnswer, Pause, Waiting
from solver.reasons.reason import reason
from solver.state.cycle_state import CycleState
from solver.state.running import RunningBooking

GONE = "gone"
MOVED = "moved"
TAKEN = "taken"
TOO_LATE = "too_late"
LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class OrderResult:
    """The answer to an order and, if it is carried out, everything that follows from it."""

    answer: OrderAnswer
    assigns: tuple[Assign, ...] = ()
    pauses: tuple[Pause, ...] = ()
    resumes: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class _Relocating:
    """A booking that moves, and the window in which it resumes."""

    runner: RunningBooking
    move: Relocation
    rest: Fit


def relocation_orders_apply(
    state: CycleState, snapshot: Snapshot, kept: dict[str, Fit]
) -> tuple[OrderResult, ...]:
    """Carry out or reject each order. What is carried out is reserved; the beneficiary's entry in
    `kept` is removed."""
    return tuple(_applied(state, snapshot, order, kept) for order in snapshot.orders)


def _applied(state: CycleState, snapshot: Snapshot, order: Order, kept: dict[str, Fit]) -> OrderResult:
    own = kept.pop(order.beneficiary, None)
    if own is not None:
        state.free(own)
    found, moving, problem = _checked(state, snapshot, order)
    if found is None:
        if own is not None:
            state.reserve(own)
            kept[order.beneficiary] = own
        return OrderResult(OrderAnswer(order.id, (reason("order_stale", problem=problem),)))
    for each in moving:
        state.notify(each.runner.booking, found.starts)
    for window in (found, *(each.rest for each in moving)):
        state.reserve(window)
    return _done(state, order, found, moving)


def _checked(
    state: CycleState, snapshot: Snapshot, order: Order
) -> tuple[Fit | None, tuple[_Relocating, ...], str]:
    """The fits of the beneficiary and of those that move, or the problem; nothing is changed."""
    request = next((r for r in snapshot.requests if r.booking == order.beneficiary), None)
    demands = {demand.gpu_class: demand for demand in demands_of(request)} if request else {}
    demand = demands.get(order.gpu_class)
    if request is None or demand is None or request.fixed or request.paused or demand.groups:
        return None, (), GONE
    runners = [state.running[m.booking] for m in order.moves if m.booking in state.running]
    if len(runners) < len(order.moves) or not runners:
        return None, (), MOVED
    starts = state.now + max(runner.tier.grace for runner in runners)
    moving = tuple(
        _Relocating(runner, move, Fit(_rest(snapshot, runner, starts), (move.target,), starts))
        for runner, move in zip(runners, order.moves, strict=True)
    )
    if not all(_may_move(state, order, each) for each in moving):
        return None, (), MOVED
    found = Fit(demand, order.places, starts)
    column = state.pools[order.gpu_class].column
    if not all(
        place.gpu in column for each in (found, *(each.rest for each in moving)) for place in each.places
    ):
        return None, (), TAKEN  # The model of a GPU is of another class by now.
    problem = _problem(state, request, found, moving)
    return (None, (), problem) if problem else (found, moving, "")


def _rest(snapshot: Snapshot, runner: RunningBooking, starts: int) -> Demand:
    """The demand that is left when it resumes; of no length if its request is unknown or it can't
    move (pinned, or to be suspended)."""
    rest = next((r for r in snapshot.running if r.booking == runner.booking), None)
    if rest is None or rest.home or rest.ask.pin:
        return Demand(runner.use.gpu_class, None, 1, "any", 0, runner.use.owners)
    left = rest.duration - (starts - snapshot.now)
    owners = (rest.tenant, rest.project)
    return demand_of(rest.ask, runner.use.gpu_class, left, owners, rest.quota_tier, rest.owner)


def _may_move(state: CycleState, order: Order, each: _Relocating) -> bool:
    """True when it is still there, may get notice now, has no preemptor, and is worth the move."""
    runner, running = each.runner, state.running
    is_there = runner.places == (each.move.source,) and runner.use.gpu_class == order.gpu_class
    is_there &= not runner.is_mixed
    is_free_to = not running.has_preemptor(runner.booking) and runner.booking not in running.kept
    may_now = runner.protected <= state.now and runner.host_resources == (0, 0)
    may_now &= _is_reachable(state, each.move.source)
    return is_there and is_free_to and may_now and each.rest.demand.duration > 0


def _is_reachable(state: CycleState, place: Place) -> bool:
    """False on a node that does not answer: it gets no new work, and no notice reaches it."""
    gpu_class = state.class_of(place.gpu)
    if gpu_class is None:
        return False
    pool = state.pools[gpu_class]
    return not pool.silent[pool.column[place.gpu]]


def _problem(state: CycleState, request: Request, found: Fit, moving: tuple[_Relocating, ...]) -> str | None:
    demand, pool = found.demand, state.pools[found.demand.gpu_class]
    is_asked = len(found.places) == demand.count and not any(demand.host_resources) and not request.ask.pin
    if not is_asked or demand.share is not None or not pool.together(demand.level, found.places):
        return GONE
    if request.earliest > found.starts:
        return GONE
    if request.latest is not None and found.ends > request.latest:
        return TOO_LATE
    windows = [(found, found.demand.profile), *((e.rest, e.move.source.profile) for e in moving)]
    for window, shape in windows:
        able = [is_usable(state, place) and place.profile == shape for place in window.places]
        able += [_is_reachable(state, place) for place in window.places]
        if not all(able) or not pool.are_allowed(window.demand.where, window.places):
            return TAKEN
    if not _has_room(state, found, moving):
        return TAKEN
    return LIMIT if state.over(demand, found.starts) is not None else None


def _has_room(state: CycleState, found: Fit, moving: tuple[_Relocating, ...]) -> bool:
    """True when all fits are free once those that move have left."""
    calendar = state.all.gpus[found.demand.gpu_class].copy()
    for each in moving:
        calendar.remove((each.move.source,), found.starts, each.runner.ends)
    pool = calendar.pool
    for window in (found, *(each.rest for each in moving)):
        if not state.all.modes.is_free(pool, window.places, window.window):
            return False
        if not calendar.is_free(window.places, *window.window):
            return False
        calendar.put(window.places, *window.window)
    return True


def _done(state: CycleState, order: Order, found: Fit, moving: tuple[_Relocating, ...]) -> OrderResult:
    name, window = order.gpu_class, found.window
    why = (*placed(state, found), reason("makes_room", found.starts, pauses=len(moving)))
    return OrderResult(
        OrderAnswer(order.id),
        (Assign(order.beneficiary, name, found.places, *window, why),),
        tuple(
            Pause(
                each.runner.booking,
                order.beneficiary,
                found.starts,
                each.runner.lost,
                (reason("moved_together", lost=each.runner.lost),),
            )
            for each in moving
        ),
        tuple(Waiting(each.runner.booking, name, each.rest.places, *each.rest.window, ()) for each in moving),
    )
