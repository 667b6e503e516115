"""The fence of restores: after one, the nodes have heard newer words than the database knows."""

import logging
from datetime import datetime

from django.db import transaction
from django.db.models import F, Max

from allocation.models import Node, SolverState
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request

logger = logging.getLogger(__name__)


def epoch_raise(now: datetime, operator: User | None = None) -> int:
    """Makes what we say from now on newer than anything that any node has heard; returns the epoch.

    Unix seconds, so above every backup's; above what nodes have told of, should a clock be wrong.
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
    logger.warning("The epoch is %d now; every node is told anew", fence.epoch)
    task_request("allocation.publish")
    task_request("allocation.invariants")
    return fence.epoch


def epoch_now() -> int:
    """The fence of restores as it stands."""
    return SolverState.objects.values_list("epoch", flat=True).get(id=1)


def restore_notify(node_name: str) -> None:
    """A node follows a newer word than any we know: everybody who watches is to know at once."""
    logger.error("%s has heard newer words than this database knows of: restored?", node_name)
    task_request("allocation.invariants")
    task_request("allocation.cycle")


def nodes_ahead() -> list[str]:
    """The nodes that have heard newer words than we know of: this database was restored."""
    ahead = Node.objects.filter(ahead_epoch__isnull=False).order_by("name")
    return list(ahead.values_list("name", flat=True))
