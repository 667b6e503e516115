"""Open offers that are withdrawn, because a claim inside its guarantee has no other room.

The cycle is decided with all offers where they are, then again without them, as for idle bookings.
Who would be paused or borrows takes no offer from anybody.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from allocation.solver.cycle.order.queue import INSIDE
from allocation.solver.model.inputs import Snapshot
from allocation.solver.model.plan import Assign, Plan, Waiting

MOST = 6
"""Offers that are considered in a cycle."""
NEVER = 2**62

Solve = Callable[[Snapshot], Plan]


def with_withdrawals(plan: Plan, snapshot: Snapshot, solve: Solve) -> Plan:
    """The plan of a snapshot with the bookings whose open offers are withdrawn, as few as
    possible. A window for which they are is not refused: the next cycle gives it the place."""
    late = _late(plan, snapshot)
    chosen = _offered(snapshot, late)
    if not chosen:
        return plan
    after = _starts(solve(_without(snapshot, chosen)))
    earlier = {who: after[who] for who in late if who in after and after[who] < late[who]}
    if not earlier:
        return plan
    for each in reversed(chosen):
        fewer = [other for other in chosen if other != each]
        if not fewer:
            break
        found = _starts(solve(_without(snapshot, fewer)))
        if all(found.get(who, NEVER) <= starts for who, starts in earlier.items()):
            chosen = fewer
    refusals = tuple(each for each in plan.refusals if each.booking not in earlier)
    return replace(plan, refusals=refusals, offers_withdrawn=tuple(chosen))


def _late(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """Claims inside their guarantee that don't start as requested, with their starts. A refused
    window is one if its tier is never paused: it can't be outside."""
    requests = {request.booking: request for request in snapshot.requests}
    sure = {tier.slug for tier in snapshot.tiers if tier.counts and not tier.pausable}
    found = {
        wait.booking: wait.starts
        for wait in plan.waits
        if wait.key[:1] == (INSIDE,)
        and wait.booking in requests
        and wait.starts > max(requests[wait.booking].earliest, snapshot.now)
    }
    refused = (each.booking for each in plan.refusals if each.booking in requests)
    return found | {who: NEVER for who in refused if requests[who].tier in sure}


def _offered(snapshot: Snapshot, late: Mapping[str, int]) -> list[str]:
    """Bookings with an open offer in a class for which one of these claims waits."""
    offered = [row for row in snapshot.held if row.offered] if late else []
    if not offered:
        return []
    asked = (request.ask.classes for request in snapshot.requests if request.booking in late)
    wanted = {name for classes in asked for name in classes}
    class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
    rows = (row for row in offered if class_of[row.place.gpu] in wanted)
    return sorted({row.booking for row in rows})[:MOST]


def _starts(plan: Plan) -> dict[str, int]:
    planned: tuple[Assign | Waiting, ...] = (*plan.assigns, *plan.waits)
    return {each.booking: each.starts for each in planned if each.places}


def _without(snapshot: Snapshot, chosen: Collection[str]) -> Snapshot:
    held = tuple(row for row in snapshot.held if row.booking not in chosen)
    return replace(snapshot, held=held, entries=())
