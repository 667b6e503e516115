"""Beginning bookings anew elsewhere when their node is silent, or says that it has ended them.

The device stays occupied until its node proves it empty; only the booking goes on without it.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from allocation.models import Allocation, Booking, Node
from allocation.reasons.catalogue import BY_CODE, Rule
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.nodes.leases import LEASE_EXPIRY_SECONDS
from allocation.rules.states import State
from allocation.services.nodes.leases import ON_LEASE
from allocation.services.record.conflicts import RULE, conflict_note
from allocation.services.record.costs import granted_seconds, run_seconds
from allocation.services.record.history import Event
from allocation.services.runs.end import CLOCK_TOLERANCE, STARTED, run_abandon
from allocation.services.runs.pause_breaks import pausing_run_interrupt
from allocation.services.runs.transition import booking_move
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

REQUEUEABLE = (State.STARTING, State.ACTIVE, State.PAUSING)
UNREACHABLE = BY_CODE["node_silent"]
LEASE_SILENCE = timedelta(seconds=LEASE_EXPIRY_SECONDS)


def node_bookings_requeue(*, node_id: UUID, seq: int, now: datetime) -> int:
    """Begins anew whatever the node holds on lease, unless a heartbeat after `seq` was heard.

    Returns how many bookings. For the process that has counted the node's silence.
    """
    with transaction.atomic():
        # Bookings before nodes, as everywhere.
        held = Allocation.objects.filter(ON_LEASE, gpu__node=node_id)
        bookings = list(
            Booking.objects.select_for_update(of=("self",))
            .filter(id__in=held.values("booking_id"), state__in=REQUEUEABLE)
            .order_by("id")
        )
        node = Node.objects.select_for_update().get(id=node_id)
        if node.heartbeat_seq != seq:
            return 0
        seen = node.heartbeat_at or now
        why = f"{node.name} has fallen silent."
        Node.objects.filter(id=node_id).update(partitioned=True)
        done = sum(_lost(booking, until=seen, why=why, now=now) for booking in bookings)
    if done:
        logger.warning("%d bookings of %s are begun anew elsewhere", done, node.name)
        task_request("allocation.cycle")
    return done


def lease_expired(allocation_id: UUID, *, since: datetime, now: datetime) -> None:
    """The agent says that it has ended an allocation because its lease ran out: nothing of it has
    been left there `since` then.

    That is a time of the node's clock. Leases are renewed by heartbeats, and a lease that ran out
    long before the last one that was heard is charged until its last could have run out.
    """
    with transaction.atomic():
        booking = (
            Booking.objects.select_for_update(of=("self",))
            .filter(allocations__id=allocation_id, state__in=REQUEUEABLE)
            .first()
        )
        row = Allocation.objects.select_related("gpu__node").get(id=allocation_id)
        if booking is None or row.state not in STARTED:
            return
        node = row.gpu.node
        Node.objects.filter(id=node.id).update(partitioned=True)
        why = f"{node.name} was cut off from the portal and ended it."
        heard = (node.heartbeat_at or since) - LEASE_SILENCE
        if since < heard and booking.ready_at is not None and booking.ready_at < heard:
            said = f"A lease of {booking.label} is said to have run out while the node was heard."
            conflict_note(row, said, now)
        if _lost(booking, until=min(now, max(since, heard)), why=why, now=now):
            task_request("allocation.cycle")


def run_disputed(allocation_id: UUID, said: str, now: datetime) -> bool:
    """A node says that a run is over which the portal has not ended, and has the devices back.

    The run is charged until now, and the booking goes on elsewhere for the rest of its time. False
    for what is no run, or is as good as over.
    """
    with transaction.atomic():
        booking = (
            Booking.objects.select_for_update(of=("self",))
            .filter(allocations__id=allocation_id, state__in=[State.ACTIVE, State.PAUSING])
            .first()
        )
        row = Allocation.objects.select_related("gpu__node").get(id=allocation_id)
        if booking is None or row.state not in STARTED or row.period.upper <= now + CLOCK_TOLERANCE:
            return False
        where = f"GPU {row.gpu.index} of {row.gpu.node.name}"
        why = f"{row.gpu.node.name} says that it is over before its time: {said.rstrip('.')}."
        if booking.state == State.PAUSING:
            is_change = pausing_run_interrupt(booking, RULE.id, why, now, is_hardware=False)
        else:
            is_change = booking_requeue(booking, until=now, why=why, now=now, rule=RULE)
        if is_change:
            conflict_note(row, f"{where}: {booking.label} is said to be over early ({said}).", now)
        return is_change


def _lost(booking: Booking, *, until: datetime, why: str, now: datetime) -> bool:
    """What is told to pause is paused when its grace is over, and goes on elsewhere: its node will
    not prove it empty. Safe to call twice."""
    if booking.state == State.PAUSING:
        return pausing_run_interrupt(booking, UNREACHABLE.id, why, now, is_hardware=False)
    return booking_requeue(booking, until=until, why=why, now=now)


def booking_requeue(
    booking: Booking, *, until: datetime, why: str, now: datetime, rule: Rule = UNREACHABLE
) -> bool:
    """Puts a locked booking that runs back into the line for the time it has left, as a whole.

    It is charged in the end for what it had until `until`. False when less than a minute is left:
    then it ends where it is.
    """
    # As long as it was granted by now, extensions included.
    length, kept = granted_seconds(booking), run_seconds(booking, until)
    used = booking.used_seconds + kept
    if _left(booking.starts, length, used, now) < MIN_DURATION_SECONDS:
        return False
    run_abandon(booking, now, kept)
    event = Event(
        "replacement_count",
        f"{why} It waits for another place, for the time it has left.",
        detail={"rule": rule.id, "used_seconds": used},
    )
    booking_move(
        booking,
        State.QUEUED,
        event=event,
        now=now,
        duration_seconds=length,
        used_seconds=used,
        replacement_count=booking.replacement_count + 1,
        planned_starts=None,
        planned_ends=None,
        planned_places=[],
        reasons=[_reason(rule, why)],
    )
    return True


def has_earlier_run(booking: Booking) -> bool:
    """Whether an earlier run of it counts, so that only the rest of its time is wanted."""
    return booking.replacement_count > 0 or booking.used_seconds > 0


def time_remaining(booking: Booking, now: datetime) -> tuple[int, datetime | None]:
    """The seconds a booking that begins anew still has, and when it must be over at the latest."""
    left = _left(booking.starts, booking.duration_seconds, booking.used_seconds, now)
    if booking.starts is None:
        return left, booking.deadline
    return left, booking.starts + timedelta(seconds=booking.duration_seconds)


def _left(starts: datetime | None, length: int, used: int, now: datetime) -> int:
    if starts is None:
        return length - used
    ends = starts + timedelta(seconds=length)
    return min(length - used, int((ends - now).total_seconds()))


def _reason(rule: Rule, sentence: str) -> dict[str, object]:
    return {
        "rule": rule.id,
        "code": rule.code,
        "check": rule.check,
        "sentence": sentence,
        "numbers": {},
        "frees_at": None,
    }
