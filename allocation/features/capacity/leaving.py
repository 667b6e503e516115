"""Machines that their provider takes back: their work is saved and paused before they go."""

from datetime import datetime, timedelta

from django.db.models import QuerySet

from allocation.features.capacity.models import CapacityMachine
from allocation.features.capacity.nodes import node_drain_at
from allocation.models import Allocation, Booking
from allocation.rules.states import RUNNING, State
from allocation.services.plans.pauses import leaving_pause_begin
from allocation.services.record.history import event_add
from allocation.services.record.open_pauses import MACHINE_LEAVES
from allocation.services.runs.end import STARTED
from allocation.services.runs.transition import booking_lock
from allocation.words.events import event_text
from solver.reasons.reason import reason
from tenants.outbox import task_request

# Devices are cleared in so long after the end of a pause's grace period.
CLEARED_BEFORE = timedelta(seconds=15)
# A tier that is never paused has no grace period.
LEAST_GRACE = timedelta(seconds=60)
# A turn comes each ten seconds.
TURN = timedelta(seconds=10)


def machine_leaves(machine: CapacityMachine, leaves: datetime, now: datetime) -> None:
    """Takes a machine out of service that its provider takes back, and notifies owners of what runs
    there. In the caller's transaction."""
    machine.leaves = leaves
    machine.save(update_fields=["leaves"])
    for booking in _running_beyond(machine, leaves):
        event_add(
            booking,
            kind="leave_by",
            sentence=event_text("machine_leaves_by", node=machine.node),
            now=now,
            detail={"rule": MACHINE_LEAVES, "until": leaves.isoformat()},
        )
    node_drain_at(machine, leaves, now, notifies=False)
    task_request("allocation.cycle")


def leaving_work_pause(machine: CapacityMachine, now: datetime) -> int:
    """Gives notice of pauses to what runs on a machine that leaves soon; returns how many.

    A booking runs on as long as its grace period ends before the machine goes. What is still there then
    is interrupted, as on hardware that fails.
    """
    if machine.leaves is None:
        return 0
    paused, last = 0, machine.leaves - CLEARED_BEFORE
    for found in list(_running_beyond(machine, machine.leaves).filter(state=State.ACTIVE)):
        booking = booking_lock(found.id, "tier")
        grace = max(timedelta(seconds=booking.tier.grace_seconds), LEAST_GRACE)
        if booking.state != State.ACTIVE or now + TURN < last - grace:
            continue
        at = max(last, now + timedelta(seconds=1)).replace(microsecond=0)
        paused += (
            leaving_pause_begin(booking, reason("machine_leaves", node=machine.node), at, now) is not None
        )
    if paused:
        task_request("allocation.cycle")
    return paused


def _running_beyond(machine: CapacityMachine, at: datetime) -> QuerySet[Booking]:
    rows = Allocation.objects.filter(
        gpu__node__name=machine.node,
        state__in=STARTED,
        booking__state__in=RUNNING,
        period__endswith__gt=at,
    )
    return Booking.objects.filter(allocations__in=rows).distinct().order_by("id")
