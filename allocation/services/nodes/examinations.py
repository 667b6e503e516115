"""What `doctor` found on nodes: kept, and acted on where it says that a node can't be served."""

import dataclasses
import logging
from datetime import datetime

from allocation import wire
from allocation.models import Node, NodeExamination
from allocation.rules.nodes.examination import essential_failed
from allocation.services.nodes.inventory_differences import differences_add
from tenants.outbox import task_request

logger = logging.getLogger(__name__)


def examination_apply(
    *, node: Node, examination: wire.Examination, at: datetime, now: datetime
) -> bool:
    """Keeps what a node's agent found, unless that is not newer than what is known.

    A check that fails, is essential, and did not fail the last time quarantines the node: it takes
    nothing new until an operator approves it. `node` is locked. Returns whether it was news.
    """
    before = NodeExamination.objects.filter(node=node).first()
    if before is not None and before.seq >= examination.seq:
        return False
    told = [dataclasses.asdict(check) for check in examination.checks[: wire.CHECKS_MAX]]
    known = essential_failed(before.checks) if before is not None else {}
    news = [why for name, why in essential_failed(told).items() if name not in known]
    NodeExamination.objects.update_or_create(
        node=node, defaults={"checks": told, "seq": examination.seq, "at": at}
    )
    node.last_seen = now
    if news:
        logger.warning("%s is not fit for work: %s", node.name, "; ".join(news))
        differences_add(node, news)
        task_request("allocation.cycle")
    node.save(update_fields=["last_seen", "state", "state_reason", "drain_by", "differences"])
    return True
