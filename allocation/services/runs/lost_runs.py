"""Runs that are lost with their node: it does not answer, or reports that it has ended them.

The device stays occupied until its node proves it empty; only the booking goes back to the queue.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from allocation.models import Allocation, Booking, Node
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.nodes.leases import LEASE_EXPIRY_SECONDS
from allocation.rules.states import State
from allocation.services.nodes.leases import ON_LEASE
from allocation.services.record.conflicts import RULE, conflict_note
from allocation.services.record.costs import granted_seconds, run_time, used_facts, used_time
from allocation.services.record.history import Event
from allocation.services.runs.end import CLOCK_TOLERANCE, STARTED, run_abandon
from allocation.services.runs.interrupt import Interruption, pausing_run_interrupt
from allocation.services.runs.resume import seconds_remaining
from allocation.services.runs.transition import (
    allocation_booking_lock,
    allocation_read,
    booking_move,
)
from allocation.words.events import event_text
from allocation.words.fleet import fleet_text
from allocation.words.reasons import reason_data
from solver.reasons.catalogue import BY_CODE, BY_ID
from solver.reasons.reason import reason
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

REQUEUEABLE = (State.STARTING, State.ACTIVE, State.PAUSING)
UNREACHABLE = BY_CODE["node_silent"].id
LEASE_TIME = timedelta(seconds=LEASE_EXPIRY_SECONDS)


def node_bookings_requeue(*, node_id: UUID, seq: int, now: datetime) -> int:
    """Requeues the bookings that a node holds on lease, unless a heartbeat after `seq` arrived.

    Returns how many. The caller is the reader, which measures how long the node has not answered.
    """
    with transaction.atomic():
        # Bookings are locked before nodes, as everywhere.
        leased = Allocation.objects.filter(ON_LEASE, gpu__node=node_id)
        bookings = list(
            Booking.objects.select_for_update(of=("self",))
            .filter(id__in=leased.values("booking_id"), state__in=REQUEUEABLE)
            .order_by("id")
        )
        node = Node.objects.select_for_update().get(id=node_id)
        if node.heartbeat_seq != seq:
            return 0
        seen = node.heartbeat_at or now
        cause = Interruption(UNREACHABLE, event_text("node_unreachable", node=node.name))
        Node.objects.filter(id=node_id).update(partitioned=True)
        done = sum(_lost(each, cause, until=seen, now=now) for each in bookings)
    if done:
        logger.warning("%d bookings of %s are requeued", done, node.name)
        task_request("allocation.cycle")
    return done


def lease_expired(allocation_id: UUID, *, since: datetime, now: datetime) -> None:
    """Requeues a booking whose agent ended an allocation at `since` because its lease expired.

    `since` is a time of the node's clock. Heartbeats renew leases, so a lease that expired long
    before the last heartbeat is charged until it could have expired at the earliest.
    """
    with transaction.atomic():
        booking = allocation_booking_lock(allocation_id, *REQUEUEABLE)
        row = Allocation.objects.select_related("gpu__node").get(id=allocation_id)
        if booking is None or row.state not in STARTED:
            return
        node = row.gpu.node
        Node.objects.filter(id=node.id).update(partitioned=True)
        earliest = (node.heartbeat_at or since) - LEASE_TIME
        if since < earliest and booking.ready_at is not None and booking.ready_at < earliest:
            note = fleet_text("lease_contradicted", node=node.name, booking=booking.label)
            conflict_note(row, note, now)
        cause = Interruption(UNREACHABLE, event_text("lease_expired", node=node.name))
        if _lost(booking, cause, until=min(now, max(since, earliest)), now=now):
            task_request("allocation.cycle")


def run_disputed(allocation_id: UUID, error: str, now: datetime) -> bool:
    """Requeues a booking whose node reports a run as over that the portal has not ended.

    The run is charged until now. Returns False for anything that does not run, or is nearly over.
    """
    with transaction.atomic():
        booking = allocation_booking_lock(allocation_id, State.ACTIVE, State.PAUSING)
        if booking is None:
            return False
        row = allocation_read(allocation_id)
        if row.state not in STARTED or row.period.upper <= now + CLOCK_TOLERANCE:
            return False
        node = row.gpu.node.name
        cause = Interruption(RULE.id, event_text("run_disputed", node=node, why=error.rstrip(".")))
        is_new = _lost(booking, cause, until=now, now=now)
        if is_new:
            facts = {"index": row.gpu.index, "booking": booking.label, "error": error}
            note = fleet_text("run_over_early", node=node, **facts)
            conflict_note(row, note, now)
        return is_new


def _lost(booking: Booking, cause: Interruption, *, until: datetime, now: datetime) -> bool:
    """Requeues a booking, or lets its pause end without its node. Safe to call twice."""
    if booking.state == State.PAUSING:
        return pausing_run_interrupt(booking, cause, now, is_hardware=False)
    return booking_requeue(booking, cause, until=until, now=now)


def booking_requeue(booking: Booking, cause: Interruption, *, until: datetime, now: datetime) -> bool:
    """Returns a locked running booking to the queue, for its remaining time and on all of its GPUs.

    The run until `until` is charged when the booking ends. Returns False when less than the
    shortest duration is left: the booking then ends where it is.
    """
    # The granted length includes extensions.
    length, kept = granted_seconds(booking), run_time(booking, until)
    used = used_time(booking) + kept
    if seconds_remaining(booking, length, used.seconds, now) < MIN_DURATION_SECONDS:
        return False
    run_abandon(booking, now, kept.seconds)
    why = reason(BY_ID[cause.rule].code, node=cause.text.facts["node"])
    event = Event(
        "replaced",
        event_text("requeued", cause=cause.text),
        detail={"rule": cause.rule, "used_seconds": used.seconds},
    )
    booking_move(
        booking,
        State.QUEUED,
        event=event,
        now=now,
        duration_seconds=length,
        **used_facts(used),
        replacement_count=booking.replacement_count + 1,
        planned_starts=None,
        planned_ends=None,
        planned_places=[],
        reasons=[reason_data(why)],
    )
    return True
