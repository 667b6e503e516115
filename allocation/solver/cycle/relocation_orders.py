"""Carrying out an operator's order to move running work together, if all of it still holds.

Everything is asked again of the snapshot that decides: the order is done whole, or not at all and
says why. Whoever moves is told now, and leaves when the longest notice among them is over; from
then on the room is the beneficiary's, and each goes on in its new place at the same instant.
"""

from dataclasses import dataclass

from allocation.reasons.reason import Reason, reason
from allocation.solver.cycle.planned_starts import is_usable
from allocation.solver.model.inputs import Order, Relocation, Request, Snapshot
from allocation.solver.model.plan import Assign, OrderAnswer, Pause, Waiting
from allocation.solver.placement.gang import Demand, demand_of, demands_of
from allocation.solver.reasons.explain import placed
from allocation.solver.reasons.preemption import makes_room
from allocation.solver.state.running import RunningBooking
from allocation.solver.state.working import Fit, Working

GONE = "gone"
MOVED = "moved"
TAKEN = "taken"
TOO_LATE = "too_late"
LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class OrderResult:
    """What became of an order: the answer, and if it is carried out all that follows from it."""

    answer: OrderAnswer
    assigns: tuple[Assign, ...] = ()
    pauses: tuple[Pause, ...] = ()
    resumes: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class _Relocating:
    """One that moves, and the window in which it goes on."""

    runner: RunningBooking
    move: Relocation
    rest: Fit


def relocation_orders_apply(
    working: Working, snapshot: Snapshot, kept: dict[str, Fit]
) -> tuple[OrderResult, ...]:
    """Each order in turn. What is carried out is reserved, and those who move are told; of `kept`
    the promise of its beneficiary is gone then."""
    return tuple(_applied(working, snapshot, order, kept) for order in snapshot.orders)


def _applied(
    working: Working, snapshot: Snapshot, order: Order, kept: dict[str, Fit]
) -> OrderResult:
    own = kept.pop(order.beneficiary, None)
    if own is not None:
        working.free(own)
    found, moving, problem = _checked(working, snapshot, order)
    if found is None:
        if own is not None:
            working.reserve(own)
            kept[order.beneficiary] = own
        return OrderResult(OrderAnswer(order.id, (reason("order_stale", problem=problem),)))
    for each in moving:
        working.notify(each.runner.booking, found.starts)
    for window in (found, *(each.rest for each in moving)):
        working.reserve(window)
    return _done(working, order, found, moving)


def _checked(
    working: Working, snapshot: Snapshot, order: Order
) -> tuple[Fit | None, tuple[_Relocating, ...], str]:
    """What the beneficiary and those who move get, or what is in the way; nothing is changed."""
    request = next((r for r in snapshot.requests if r.booking == order.beneficiary), None)
    demands = {demand.gpu_class: demand for demand in demands_of(request)} if request else {}
    demand = demands.get(order.gpu_class)
    if request is None or demand is None or request.fixed or request.paused:
        return None, (), GONE
    runners = [working.running[m.booking] for m in order.moves if m.booking in working.running]
    if len(runners) < len(order.moves) or not runners:
        return None, (), MOVED
    starts = working.now + max(runner.tier.grace for runner in runners)
    moving = tuple(
        _Relocating(runner, move, Fit(_rest(snapshot, runner, starts), (move.target,), starts))
        for runner, move in zip(runners, order.moves, strict=True)
    )
    if not all(_may_move(working, order, each) for each in moving):
        return None, (), MOVED
    found = Fit(demand, order.places, starts)
    problem = _problem(working, request, found, moving)
    return (None, (), problem) if problem else (found, moving, "")


def _rest(snapshot: Snapshot, runner: RunningBooking, starts: int) -> Demand:
    """What it still wants when it goes on; nothing for one whose wish is not known, or that is
    bound to where it is: pinned, or to be suspended."""
    wish = next((r for r in snapshot.running if r.booking == runner.booking), None)
    if wish is None or wish.home or wish.ask.pin:
        return Demand(runner.use.gpu_class, None, 1, "any", 0, runner.use.owners)
    left = wish.duration - (starts - snapshot.now)
    owners = (wish.tenant, wish.project)
    return demand_of(wish.ask, runner.use.gpu_class, left, owners, wish.tier, wish.owner)


def _may_move(working: Working, order: Order, each: _Relocating) -> bool:
    """It is where it was, may be told now, nobody else counts on its room, and it is worth it."""
    runner, running = each.runner, working.running
    is_there = runner.places == (each.move.source,) and runner.use.gpu_class == order.gpu_class
    is_free_to = not running.has_preemptor(runner.booking) and runner.booking not in running.kept
    may_now = runner.out - runner.tier.grace <= working.now and runner.of_host == (0, 0)
    return is_there and is_free_to and may_now and each.rest.demand.duration > 0


def _problem(
    working: Working, request: Request, found: Fit, moving: tuple[_Relocating, ...]
) -> str | None:
    demand, pool = found.demand, working.pools[found.demand.gpu_class]
    is_asked = len(found.places) == demand.count and not any(demand.of_host) and not request.ask.pin
    if not is_asked or demand.share is not None or not pool.together(demand.level, found.places):
        return GONE
    if request.earliest > found.starts:
        return GONE
    if request.latest is not None and found.ends > request.latest:
        return TOO_LATE
    windows = [(found, found.demand.profile), *((e.rest, e.move.source.profile) for e in moving)]
    for window, shape in windows:
        if not all(place.profile == shape and is_usable(working, place) for place in window.places):
            return TAKEN
    if not _has_room(working, found, moving):
        return TAKEN
    return LIMIT if working.over(demand, found.starts) is not None else None


def _has_room(working: Working, found: Fit, moving: tuple[_Relocating, ...]) -> bool:
    """Whether all of them fit beside everybody else once those who move are out."""
    calendar = working.calendars[found.demand.gpu_class].copy()
    for each in moving:
        calendar.remove((each.move.source,), found.starts, each.runner.ends)
    pool = calendar.pool
    for window in (found, *(each.rest for each in moving)):
        if not working.modes.is_free(pool, window.places, window.window):
            return False
        if not calendar.is_free(window.places, *window.window):
            return False
        calendar.put(window.places, *window.window)
    return True


def _done(
    working: Working, order: Order, found: Fit, moving: tuple[_Relocating, ...]
) -> OrderResult:
    name, window = order.gpu_class, found.window
    why = (placed(working, found), makes_room(len(moving), found.starts))
    return OrderResult(
        OrderAnswer(order.id),
        (Assign(order.beneficiary, name, found.places, *window, why),),
        tuple(
            Pause(
                each.runner.booking, order.beneficiary, found.starts, each.runner.lost,
                (_why(each.runner),),
            )
            for each in moving
        ),
        tuple(
            Waiting(each.runner.booking, name, each.rest.places, *each.rest.window, ())
            for each in moving
        ),
    )  # fmt: skip


def _why(runner: RunningBooking) -> Reason:
    return reason("moved_together", lost=runner.lost)
