"""What nodes say against the portal's own record of a run, written down for operators.

The record decides what is charged; see `replace.run_disputed`. A node whose owner would gain by
such words shows here, and its GPU takes no new work before an operator has looked.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F

from allocation.models import Allocation, Booking, Gpu, GpuEvent, Node
from allocation.reasons.catalogue import BY_CODE
from allocation.services.record.counters import counter_add
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

RULE = BY_CODE["node_conflict"]
# A GPU of which this is said so often in so long waits for an operator.
MOST = 3
WITHIN = timedelta(days=1)
# Devices that were not handed over in this time are a contradiction when their booking is over.
READY_WITHIN = timedelta(minutes=10)


def conflict_note(row: Allocation, sentence: str, now: datetime) -> None:
    """Writes a contradiction down; a GPU with several a day takes no new work."""
    gpu = row.gpu
    GpuEvent.objects.create(
        node_id=gpu.node_id, gpu=gpu, kind=GpuEvent.Kind.CONFLICT, at=now,
        instance=row.id.hex, sentence=sentence[:300],
    )  # fmt: skip
    Node.objects.filter(id=gpu.node_id).update(conflicts=F("conflicts") + 1)
    counter_add("node_conflicts")
    logger.warning("%s contradicts the portal (%s): %s", gpu.node.name, RULE.id, sentence)
    late = GpuEvent.objects.filter(gpu=gpu, kind=GpuEvent.Kind.CONFLICT, at__gt=now - WITHIN)
    times = late.count()
    if times >= MOST:
        Gpu.objects.filter(id=gpu.id, health=Gpu.Health.OK).update(
            health=Gpu.Health.DRAINING,
            health_reason=f"Its node contradicted the portal {times} times in a day.",
            needs_operator=True,
        )
    task_request("allocation.cycle")


def unready_note(booking: Booking, now: datetime) -> None:
    """A booking is over and was never handed over, though its nodes answer and were told long ago:
    nothing is charged, and whether nothing was had is the nodes' word alone."""
    told = Allocation.objects.filter(
        booking=booking,
        state=Allocation.State.STARTING,
        occupancy__opened__lte=now - READY_WITHIN,
        gpu__node__unreachable_since=None,
    )
    for row in told.select_related("gpu__node").order_by("id"):
        said = f"{booking.label} ended without a word that its devices were ready; it paid nothing."
        conflict_note(row, said, now)


def refund_note(node_id: UUID, seconds: int) -> None:
    """Adds GPU time for which nothing is charged because the node said that its hardware failed."""
    row = Node.objects.filter(id=node_id)
    row.update(refunded_seconds=F("refunded_seconds") + seconds)
