"""Reports of nodes that contradict the portal's own record of a run, kept for operators.

The portal's record decides what is charged; see `runs.lost_runs.run_disputed`. A false report can
save the owner of a booking money, so a GPU with several conflicts takes no new work until an
operator has looked.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F

from allocation.models import Allocation, Booking, Gpu, GpuEvent, Node
from allocation.services.record.counters import counter_add
from allocation.words.fleet import FleetText, fleet_text
from solver.reasons.catalogue import BY_CODE
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

RULE = BY_CODE["node_conflict"]
# A GPU with this many conflicts within this time waits for an operator.
MAX_CONFLICTS = 3
CONFLICTS_WITHIN = timedelta(days=1)
# Devices that were not ready after this time are a conflict when their booking ends.
READY_WITHIN = timedelta(minutes=10)


def conflict_note(row: Allocation, text: FleetText, now: datetime) -> None:
    """Records a conflict; a GPU with several a day takes no new work."""
    gpu = row.gpu
    GpuEvent.objects.create(
        node_id=gpu.node_id,
        gpu=gpu,
        kind=GpuEvent.Kind.CONFLICT,
        at=now,
        instance=row.id.hex,
        **GpuEvent.text_columns(text),
    )
    Node.objects.filter(id=gpu.node_id).update(conflicts=F("conflicts") + 1)
    counter_add("node_conflicts")
    logger.warning("%s contradicts the portal (%s): %s", gpu.node.name, RULE.id, text)
    recent = GpuEvent.objects.filter(gpu=gpu, kind=GpuEvent.Kind.CONFLICT, at__gt=now - CONFLICTS_WITHIN)
    times = recent.count()
    if times >= MAX_CONFLICTS:
        Gpu.objects.filter(id=gpu.id, health=Gpu.Health.OK).update(
            **Gpu.health_columns(Gpu.Health.DRAINING, fleet_text("conflicts", times=times)),
            needs_operator=True,
        )
    task_request("allocation.cycle")


def unready_note(booking: Booking, now: datetime) -> None:
    """Records a conflict for each device of an ended booking that was never ready.

    Such a booking is not charged, and only its node says that nothing ran there. Devices of
    unreachable nodes and of recent starts don't count.
    """
    unready = Allocation.objects.filter(
        booking=booking,
        state=Allocation.State.STARTING,
        occupancy__opened__lte=now - READY_WITHIN,
        gpu__node__unreachable_since=None,
    )
    for row in unready.select_related("gpu__node").order_by("id"):
        conflict_note(row, fleet_text("unready", booking=booking.label), now)


def refund_note(node_id: UUID, seconds: int) -> None:
    """Adds GPU time that is not charged because the node reported a hardware failure."""
    row = Node.objects.filter(id=node_id)
    row.update(refunded_seconds=F("refunded_seconds") + seconds)
