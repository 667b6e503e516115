"""Results of `doctor` on nodes: stored, and a node that fails an essential check is quarantined."""

import dataclasses
import logging
from datetime import datetime

from allocation import wire
from allocation.models import Node, NodeExamination
from allocation.rules.nodes.examination import essential_failed
from allocation.services.nodes.inventories import differences_add
from allocation.words.fleet import fleet_text
from tenants.outbox import task_request

logger = logging.getLogger(__name__)


def examination_apply(
    *, node: Node, examination: wire.Examination, at: datetime, now: datetime
) -> bool:
    """Stores an examination that is newer than the known one. Returns whether it was.

    An essential check that newly fails quarantines the node: it takes no new work until an operator
    approves it. Callers have locked `node`.
    """
    before = NodeExamination.objects.filter(node=node).first()
    if before is not None and before.seq >= examination.seq:
        return False
    checks = [dataclasses.asdict(check) for check in examination.checks[: wire.CHECKS_MAX]]
    known = essential_failed(before.checks) if before is not None else {}
    news = [
        fleet_text("check_failed", check=name, seen=check["seen"], fix=check["do"])
        for name, check in essential_failed(checks).items()
        if name not in known
    ]
    NodeExamination.objects.update_or_create(
        node=node, defaults={"checks": checks, "seq": examination.seq, "at": at}
    )
    node.last_seen = now
    if news:
        logger.warning("%s is not fit for work: %s", node.name, "; ".join(map(str, news)))
        differences_add(node, news)
        task_request("allocation.cycle")
    node.save(update_fields=["last_seen", *Node.STATE_FIELDS, "drain_by", "differences"])
    return True
