"""GPUs about which the driver of their node hangs: they take nothing new until it answers again."""

import logging
from datetime import datetime

from allocation import wire
from allocation.models import Gpu, GpuEvent, Node
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

REASON = "Its driver does not answer."


def hangs_apply(node: Node, report: wire.Report, now: datetime) -> None:
    """What runs there goes on to its end: whether it works, its owner knows best."""
    known = GpuEvent.objects.filter(node=node, kind=GpuEvent.Kind.HANG, until=None)
    was = set(known.values_list("gpu__uuid", flat=True))
    if not was and not report.hanging:
        return
    new = node.gpus.filter(uuid__in=set(report.hanging) - was)
    said = "The driver does not come back from a call about it."
    GpuEvent.objects.bulk_create(
        [GpuEvent(node=node, gpu=gpu, kind="hang", at=now, sentence=said) for gpu in new],
        ignore_conflicts=True,
    )
    back = was & {gpu.uuid for gpu in report.gpus}
    known.filter(gpu__uuid__in=back).update(until=now)
    marked = node.gpus.filter(uuid__in=report.hanging, health=Gpu.Health.OK).update(
        health=Gpu.Health.DRAINING, health_reason=REASON
    )
    mine = node.gpus.filter(uuid__in=back, health=Gpu.Health.DRAINING, health_reason=REASON)
    marked += mine.update(health=Gpu.Health.OK, health_reason="")
    if marked:
        logger.warning("%s: driver hangs about %s", node.name, ", ".join(report.hanging) or "none")
        task_request("allocation.cycle")
