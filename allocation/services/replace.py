"""Beginning bookings anew elsewhere when their node is silent, or has ended them by itself.

The device stays occupied until its node proves it empty; only the booking goes on without it.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from allocation.models import Allocation, Booking, Node
from allocation.rules.catalogue import BY_CODE
from allocation.rules.states import State
from allocation.services.costs import run_seconds
from allocation.services.history import event_add
from allocation.services.leases import HELD
from allocation.services.lifecycle import STARTED, run_break_off
from allocation.services.pause_breaks import pause_break
from tenants.outbox import nudge

logger = logging.getLogger(__name__)

WORTH_SECONDS = 60
LOSABLE = (State.STARTING, State.ACTIVE, State.PAUSING)


def node_replace(*, node_id: UUID, seq: int, now: datetime) -> int:
    """Begins anew whatever the node holds on lease, unless a heartbeat after `seq` was heard.

    Returns how many bookings. For the process that has counted the node's silence.
    """
    with transaction.atomic():
        # Bookings before nodes, as everywhere.
        held = Allocation.objects.filter(HELD, gpu__node=node_id)
        bookings = list(
            Booking.objects.select_for_update(of=("self",))
            .filter(id__in=held.values("booking_id"), state__in=LOSABLE)
            .order_by("id")
        )
        node = Node.objects.select_for_update().get(id=node_id)
        if node.heartbeat_seq != seq:
            return 0
        seen = node.heartbeat_at or now
        why = f"{node.name} has fallen silent."
        Node.objects.filter(id=node_id).update(cut_off=True)
        done = sum(_lost(booking, until=seen, why=why, now=now) for booking in bookings)
    if done:
        logger.warning("%d bookings of %s are begun anew elsewhere", done, node.name)
        nudge("allocation.cycle")
    return done


def lease_ran_out(allocation_id: UUID, *, since: datetime, now: datetime) -> None:
    """The agent says that it has ended an allocation because its lease ran out: nothing of it has
    been left there `since` then."""
    with transaction.atomic():
        booking = (
            Booking.objects.select_for_update(of=("self",))
            .filter(allocations__id=allocation_id, state__in=LOSABLE)
            .first()
        )
        row = Allocation.objects.select_related("gpu__node").get(id=allocation_id)
        if booking is None or row.state not in STARTED:
            return
        node = row.gpu.node
        Node.objects.filter(id=node.id).update(cut_off=True)
        why = f"{node.name} was cut off from the portal and ended it."
        if _lost(booking, until=min(now, since), why=why, now=now):
            nudge("allocation.cycle")


def _lost(booking: Booking, *, until: datetime, why: str, now: datetime) -> bool:
    """What is told to pause is paused when its grace is over, and goes on elsewhere: its node will
    not prove it empty. Safe to call twice."""
    if booking.state == State.PAUSING:
        return pause_break(booking, BY_CODE["node_silent"].id, why, now)
    return booking_replace(booking, until=until, why=why, now=now)


def booking_replace(booking: Booking, *, until: datetime, why: str, now: datetime) -> bool:
    """Puts a locked booking that runs back into the line for the time it has left, as a whole.

    It is charged in the end for what it had until `until`. False when less than a minute is left:
    then it ends where it is.
    """
    kept = run_seconds(booking, until)
    booking.used_seconds = used = booking.used_seconds + kept
    if time_left(booking, now)[0] < WORTH_SECONDS:
        return False
    run_break_off(booking, now, kept)
    booking.state, booking.replaced = State.QUEUED, booking.replaced + 1
    booking.planned_starts = booking.planned_ends = None
    booking.extension_until = None
    rule = BY_CODE["node_silent"]
    booking.planned_places, booking.reasons = [], [_reason(rule.id, rule.check, why)]
    booking.version += 1
    booking.save()
    event_add(
        booking,
        kind="replaced",
        sentence=f"{why} It waits for another place, for the time it has left.",
        now=now,
        detail={"rule": rule.id, "used_seconds": used},
    )
    return True


def is_rest(booking: Booking) -> bool:
    """Whether an earlier run of it counts, so that only the rest of its time is wanted."""
    return booking.replaced > 0 or booking.used_seconds > 0


def time_left(booking: Booking, now: datetime) -> tuple[int, datetime | None]:
    """The seconds a booking that begins anew still has, and when it must be over at the latest."""
    left = booking.duration_seconds - booking.used_seconds
    if booking.starts is None:
        return left, booking.deadline
    ends = booking.starts + timedelta(seconds=booking.duration_seconds)
    return min(left, int((ends - now).total_seconds())), ends


def _reason(rule: str, check: str, sentence: str) -> dict[str, object]:
    return {
        "rule": rule,
        "code": "node_silent",
        "check": check,
        "sentence": sentence,
        "numbers": {},
        "frees_at": None,
    }
