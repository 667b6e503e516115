"""The fence after restores: nodes then follow newer documents than the database knows."""

import logging
from datetime import datetime

from django.db import transaction
from django.db.models import F, Max

from allocation.models import Node, SolverState
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

logger = logging.getLogger(__name__)


def epoch_raise(now: datetime, operator: User | None = None) -> int:
    """Raises the epoch above every document that a node has received; returns it.

    Epochs are Unix seconds, so above every backup's; also above the epochs that nodes have
    reported, in case a clock is wrong.
    """
    with transaction.atomic():
        fence, _ = SolverState.objects.get_or_create(id=1)
        fence = SolverState.objects.select_for_update().get(id=fence.id)
        ahead = Node.objects.aggregate(top=Max("ahead_epoch"))["top"] or 0
        before = fence.epoch
        fence.epoch = max(fence.epoch + 1, ahead + 1, int(now.timestamp()))
        fence.save(update_fields=["epoch"])
        Node.objects.update(generation=F("generation") + 1, ahead_epoch=None)
        platform_record(
            operator_id=operator.id if operator else None,
            action="epoch.raised",
            target=("epoch", fence.epoch),
            now=now,
            before={"epoch": before},
            after={"epoch": fence.epoch},
        )
    logger.warning("The epoch is %d now; every node gets a new document", fence.epoch)
    task_request("allocation.publish")
    task_request("allocation.invariants")
    return fence.epoch


_epoch = Compiled(
    lambda _now, _keys: SolverState.objects.filter(id=1).values_list("epoch", flat=True)
)


def epoch_now() -> int:
    """The current epoch."""
    (epoch,) = _epoch(ASKED_AT)
    return epoch


def restore_notify(node_name: str) -> None:
    """Logs that a node follows a newer document than the database knows, and wakes the checks."""
    logger.error("%s follows a newer document than this database knows: restored?", node_name)
    task_request("allocation.invariants")
    task_request("allocation.cycle")


def nodes_ahead() -> list[str]:
    """Nodes that follow newer documents than the database knows: it was restored."""
    ahead = Node.objects.filter(ahead_epoch__isnull=False).order_by("name")
    return list(ahead.values_list("name", flat=True))
