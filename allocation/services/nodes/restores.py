"""Restores of older backups: the bookings that they have lost, and the fence of the nodes.

Nodes then follow newer documents than the database knows, and these still name lost bookings.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max

import wire
from allocation.models import Allocation, Node, SolverState
from allocation.services.nodes.redis_accounts import agents_redis
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

logger = logging.getLogger(__name__)
FATE_RUN = "runs until its node reads its next document, then it is ended there; book it again"
FATE_CLEARED = "was being released; its node clears it"
FATE_NOT_ENROLLED = "the restored database does not know its node: enrol the node again"


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


_epoch = Compiled(lambda _now, _keys: SolverState.objects.filter(id=1).values_list("epoch", flat=True))


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


@dataclass(frozen=True, slots=True)
class LostBooking:
    """A booking in a node's document that the database does not know, and its fate."""

    booking: str
    tenant: str
    owner: str
    node: str
    starts: datetime
    ends: datetime
    fate: str


def bookings_lost() -> list[LostBooking]:
    """Bookings in the nodes' last signed documents that the restored database does not know.

    Must run before the epoch is raised, because that overwrites the documents.

    Raises:
        redis.RedisError: the agents' server does not answer.
    """
    known = set(Node.objects.values_list("name", flat=True))
    found: dict[tuple[str, str, str], LostBooking] = {}
    for desired in _documents():
        named = {a.id: a for gpu in desired.gpus for a in gpu.allocations}
        rows = Allocation.objects.filter(id__in=list(named)).values_list("id", flat=True)
        for name in named.keys() - {row.hex for row in rows}:
            each = named[name]
            fate = FATE_CLEARED if each.state == "release" else FATE_RUN
            found[each.tenant, each.booking, desired.node] = LostBooking(
                booking=each.booking,
                tenant=each.tenant,
                owner=each.owner,
                node=desired.node,
                starts=datetime.fromtimestamp(each.starts, UTC),
                ends=datetime.fromtimestamp(each.ends, UTC),
                fate=fate if desired.node in known else FATE_NOT_ENROLLED,
            )
    return [found[key] for key in sorted(found)]


def _documents() -> Iterator[wire.Desired]:
    link: Any = agents_redis()
    pattern, name_of = wire.desired_key("*"), len("agent:")
    for key in sorted(link.scan_iter(match=pattern, count=1000)):
        name = key.decode()[name_of : -len(":desired")]
        raw = link.get(key) or b""
        try:
            envelope = wire.Envelope.from_json(raw)
            # The key may be newer than the backup: every version derives from the master key.
            version = envelope.key_version
            master = settings.AGENTS_MASTER_KEY.encode()
            yield wire.open_desired(envelope, {version: wire.node_key(master, name, version)})
        except wire.WireError as error:
            logger.warning("The last document of %s can't be read: %s", name, error)
