"""Idle bookings that end or pause: only those by which somebody in the queue starts earlier, or
somebody on the waiting list gets an offer of an earlier start.

The cycle is decided with all idle bookings where they are, then again without them. Comparing the
two plans answers the question for room, quota and guarantees alike.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from solver.model.inputs import Snapshot
from solver.model.leaving import Idle
from solver.model.plan import Assign, IdleRelease, Plan, Waiting
from solver.reasons.reason import reason

MOST = 6
"""Idle bookings that are considered in a cycle, those that are idle longest first."""
CLEARING = 5
"""Seconds until the device of a booking without a grace period is clear."""
SOON = 600
"""A start that is later than this after the GPUs are clear needs nobody's GPUs yet."""

Solve = Callable[[Snapshot], Plan]


def idle_releases(plan: Plan, snapshot: Snapshot, solve: Solve, grid: int) -> tuple[IdleRelease, ...]:
    """The idle bookings to end or pause now; `plan` is that of the snapshot with all of them.

    As few as possible: the bookings that are idle for the shortest time keep their GPUs first. A
    start must be earlier by more than a step of the `grid`, because a planned start does not move
    for less, unless it is when the GPUs are clear.
    """
    chosen = _candidates(plan, snapshot)
    if not chosen or not (snapshot.requests or snapshot.entries):
        return ()
    before = _starts(plan, snapshot)
    # The plan itself makes these offers, so a better one would come too late.
    offered = {each.booking for each in plan.offers}
    clear = {snapshot.now + max(CLEARING, each.grace) for each in chosen}
    latest = max(clear) + SOON
    after = _starts(solve(_without(snapshot, chosen)), snapshot)
    earlier = {
        booking: starts
        for booking, starts in after.items()
        if starts <= latest and booking not in offered
        if _is_earlier(starts, before.get(booking), clear, grid)
    }
    if not earlier:
        return ()
    for each in reversed(chosen):
        fewer = [other for other in chosen if other != each]
        if not fewer:
            break
        found = _starts(solve(_without(snapshot, fewer)), snapshot)
        if _is_as_early(found, earlier):
            chosen = fewer
    beneficiary = min(earlier, key=lambda booking: (earlier[booking], booking))
    starts = earlier[beneficiary]
    releases = [
        IdleRelease(
            each.booking,
            each.gpus,
            beneficiary,
            starts,
            (reason("idle", idle=snapshot.now - each.since),),
        )
        for each in chosen
    ]
    return tuple(sorted(releases, key=lambda each: each.booking))


def _candidates(plan: Plan, snapshot: Snapshot) -> list[Idle]:
    """Bookings whose owners had their time to answer; none that leave or move already."""
    if not snapshot.idle:
        return []
    leaving = {pause.booking for pause in plan.pauses}
    leaving |= {row.booking for row in snapshot.held if row.pausing}
    leaving |= {move.booking for order in snapshot.orders for move in order.moves}
    due = (each for each in snapshot.idle if each.veto_until <= snapshot.now and each.booking not in leaving)
    return sorted(due, key=lambda each: (each.since, each.booking))[:MOST]


def _starts(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """The starts of those in the queue that have one with places, and of offers to the waiting list."""
    asked = {request.booking for request in snapshot.requests}
    planned: tuple[Assign | Waiting, ...] = (*plan.assigns, *plan.waits)
    found = {each.booking: each.starts for each in planned if each.places and each.booking in asked}
    return {each.booking: each.starts for each in plan.offers} | found


def _is_earlier(starts: int, before: int | None, clear: Container[int], grid: int) -> bool:
    if before is None:
        return True
    return starts < before if starts in clear else starts + grid < before


def _is_as_early(found: Mapping[str, int], earlier: Mapping[str, int]) -> bool:
    return all(booking in found and found[booking] <= starts for booking, starts in earlier.items())


def _without(snapshot: Snapshot, chosen: Sequence[Idle]) -> Snapshot:
    """The snapshot with notice given to these bookings, which nobody else can pause then."""
    ends = {each.booking: snapshot.now + max(CLEARING, each.grace) for each in chosen}
    held = tuple(
        replace(row, ends=min(row.ends, ends[row.booking]), pausing=True) if row.booking in ends else row
        for row in snapshot.held
    )
    return replace(
        snapshot,
        held=held,
        running=tuple(each for each in snapshot.running if each.booking not in ends),
        extensions=tuple(each for each in snapshot.extensions if each.booking not in ends),
        idle=(),
    )
