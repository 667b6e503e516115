"""Carrying out an operator's order to move running work together, if all of it still holds.

Everything is asked again of the snapshot that decides: the order is done whole, or not at all and
says why. Whoever moves is told now, and leaves when the longest notice among them is over; from
then on the room is the beneficiary's, and each goes on in its new place at the same instant.
"""

from dataclasses import dataclass

from allocation.reasons.reason import Reason, reason
from allocation.solver.cycle.planned_starts import is_usable
from allocation.solver.model.inputs import Order, Relocation, Request, Snapshot
from allocation.solver.model.plan import Assign, Carried, Pause, Waiting
from allocation.solver.placement.gang import Want, want_of, wants_of
from allocation.solver.reasons.explain import placed
from allocation.solver.reasons.preemption import makes_room
from allocation.solver.state.running import Runner
from allocation.solver.state.working import Found, Working

GONE = "gone"
MOVED = "moved"
TAKEN = "taken"
TOO_LATE = "too_late"
LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Carriage:
    """What became of an order: the answer, and if it is carried out all that follows from it."""

    answer: Carried
    assigns: tuple[Assign, ...] = ()
    pauses: tuple[Pause, ...] = ()
    resumes: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class _Moving:
    """One that moves, and the window in which it goes on."""

    runner: Runner
    move: Relocation
    rest: Found


def orders_carry(
    working: Working, snapshot: Snapshot, kept: dict[str, Found]
) -> tuple[Carriage, ...]:
    """Each order in turn. What is carried out is reserved, and those who move are told; of `kept`
    the promise of its beneficiary is gone then."""
    return tuple(_carried(working, snapshot, order, kept) for order in snapshot.orders)


def _carried(
    working: Working, snapshot: Snapshot, order: Order, kept: dict[str, Found]
) -> Carriage:
    own = kept.pop(order.beneficiary, None)
    if own is not None:
        working.free(own)
    found, moving, problem = _checked(working, snapshot, order)
    if found is None:
        if own is not None:
            working.reserve(own)
            kept[order.beneficiary] = own
        return Carriage(Carried(order.id, (reason("order_stale", problem=problem),)))
    for each in moving:
        working.tell(each.runner.booking, found.starts)
    for window in (found, *(each.rest for each in moving)):
        working.reserve(window)
    return _done(working, order, found, moving)


def _checked(
    working: Working, snapshot: Snapshot, order: Order
) -> tuple[Found | None, tuple[_Moving, ...], str]:
    """What the beneficiary and those who move get, or what is in the way; nothing is changed."""
    request = next((r for r in snapshot.requests if r.booking == order.beneficiary), None)
    wants = {want.gpu_class: want for want in wants_of(request)} if request else {}
    want = wants.get(order.gpu_class)
    if request is None or want is None or request.fixed or request.paused:
        return None, (), GONE
    runners = [working.running[m.booking] for m in order.moves if m.booking in working.running]
    if len(runners) < len(order.moves) or not runners:
        return None, (), MOVED
    starts = working.now + max(runner.tier.grace for runner in runners)
    moving = tuple(
        _Moving(runner, move, Found(_rest(snapshot, runner, starts), (move.target,), starts))
        for runner, move in zip(runners, order.moves, strict=True)
    )
    if not all(_may_move(working, order, each) for each in moving):
        return None, (), MOVED
    found = Found(want, order.places, starts)
    problem = _problem(working, request, found, moving)
    return (None, (), problem) if problem else (found, moving, "")


def _rest(snapshot: Snapshot, runner: Runner, starts: int) -> Want:
    """What it still wants when it goes on; nothing for one whose wish is not known, or that is
    bound to where it is: pinned, or to be suspended."""
    wish = next((r for r in snapshot.running if r.booking == runner.booking), None)
    if wish is None or wish.home or wish.ask.pin:
        return Want(runner.use.gpu_class, None, 1, "any", 0, runner.use.owners)
    left = wish.duration - (starts - snapshot.now)
    owners = (wish.tenant, wish.project)
    return want_of(wish.ask, runner.use.gpu_class, left, owners, wish.tier, wish.owner)


def _may_move(working: Working, order: Order, each: _Moving) -> bool:
    """It is where it was, may be told now, nobody else counts on its room, and it is worth it."""
    runner, running = each.runner, working.running
    is_there = runner.places == (each.move.source,) and runner.use.gpu_class == order.gpu_class
    is_free_to = not running.is_promised(runner.booking) and runner.booking not in running.kept
    may_now = runner.out - runner.tier.grace <= working.now and runner.of_host == (0, 0)
    return is_there and is_free_to and may_now and each.rest.want.duration > 0


def _problem(
    working: Working, request: Request, found: Found, moving: tuple[_Moving, ...]
) -> str | None:
    want, pool = found.want, working.pools[found.want.gpu_class]
    is_asked = len(found.places) == want.count and not any(want.of_host) and not request.ask.pin
    if not is_asked or want.share is not None or not pool.together(want.level, found.places):
        return GONE
    if request.earliest > found.starts:
        return GONE
    if request.latest is not None and found.ends > request.latest:
        return TOO_LATE
    windows = [(found, found.want.profile), *((e.rest, e.move.source.profile) for e in moving)]
    for window, shape in windows:
        if not all(place.profile == shape and is_usable(working, place) for place in window.places):
            return TAKEN
    if not _has_room(working, found, moving):
        return TAKEN
    return LIMIT if working.over(want, found.starts) is not None else None


def _has_room(working: Working, found: Found, moving: tuple[_Moving, ...]) -> bool:
    """Whether all of them fit beside everybody else once those who move are out."""
    calendar = working.calendars[found.want.gpu_class].copy()
    for each in moving:
        calendar.drop((each.move.source,), found.starts, each.runner.ends)
    pool = calendar.pool
    for window in (found, *(each.rest for each in moving)):
        if not working.modes.is_free(pool, window.places, window.window):
            return False
        if not calendar.is_free(window.places, *window.window):
            return False
        calendar.put(window.places, *window.window)
    return True


def _done(working: Working, order: Order, found: Found, moving: tuple[_Moving, ...]) -> Carriage:
    name, window = order.gpu_class, found.window
    why = (placed(working, found), makes_room(len(moving), found.starts))
    return Carriage(
        Carried(order.id),
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


def _why(runner: Runner) -> Reason:
    return reason("moved_together", lost=runner.lost)
