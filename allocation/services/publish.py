"""Telling nodes what to make true: the whole desired state, signed, whenever it has changed."""

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from uuid import UUID

import redis
from django.conf import settings
from django.db.models import F

from allocation import wire
from allocation.models import Allocation, MigPlacement, Node, SolverState
from allocation.services.fleet import node_key

logger = logging.getLogger(__name__)

TOLD = (Allocation.State.STARTING, Allocation.State.ACTIVE, Allocation.State.RELEASING)


@cache
def agents_redis() -> "redis.Redis":
    """The connection to the server that agents read from."""
    return redis.Redis.from_url(settings.AGENTS_REDIS_URL, socket_timeout=2)


def publish_due(now: datetime) -> int:
    """Writes the assignment of every node whose generation was not published yet.

    Needs no outbox: whoever finds `published_generation < generation` writes the whole document.
    A server that is down loses nothing; the next call writes it. Returns how many were written.
    """
    nodes = list(Node.objects.filter(published_generation__lt=F("generation"), key_version__gt=1))
    if not nodes:
        return 0
    try:
        return _publish(nodes)
    except redis.RedisError as error:
        logger.warning("Assignments were not published, to be tried again: %s", error)
        return 0


def republish_all() -> int:
    """Writes every node's assignment again, e.g. after the server has lost its data."""
    return _publish(list(Node.objects.filter(key_version__gt=1)))


def _publish(nodes: list[Node]) -> int:
    epoch = SolverState.objects.values_list("epoch", flat=True).get(id=1)
    told = _allocations_by_gpu(nodes)
    link = agents_redis()
    for node in nodes:
        desired = wire.Desired(
            node=node.name,
            epoch=epoch,
            generation=node.generation,
            gpus=tuple(
                _desired_gpu(gpu.uuid, gpu.mode, told[gpu.id])
                for gpu in node.gpus.order_by("index")
            ),
        )
        envelope = wire.seal(desired, key=node_key(node), key_version=node.key_version)
        link.set(wire.desired_key(node.name), envelope.to_json())
        link.publish(wire.wake_channel(node.name), str(node.generation))
        Node.objects.filter(id=node.id, published_generation__lt=node.generation).update(
            published_generation=node.generation
        )
    return len(nodes)


def _allocations_by_gpu(nodes: Iterable[Node]) -> dict[UUID, list[wire.DesiredAllocation]]:
    keys = {
        (model, profile): number
        for model, profile, number in MigPlacement.objects.values_list(
            "model_id", "profile", "profile_id"
        )
    }
    told: dict[UUID, list[wire.DesiredAllocation]] = defaultdict(list)
    rows = (
        Allocation.objects.filter(gpu__node__in=list(nodes), state__in=TOLD)
        .select_related("booking__owner", "tenant")
        .order_by("start", "id")
    )
    for row in rows:
        told[row.gpu_id].append(
            wire.DesiredAllocation(
                id=row.id.hex,
                booking=row.booking.label,
                tenant=row.tenant.slug,
                owner=row.booking.owner.username,
                profile=row.profile,
                profile_id=keys[(row.model_id, row.profile)] if row.profile else None,
                slot=row.start,
                size=row.size,
                starts=int(row.period.lower.timestamp()),
                ends=int(row.period.upper.timestamp()),
                state="release" if row.state == Allocation.State.RELEASING else "run",
            )
        )
    return told


def _desired_gpu(
    uuid: str, mode: str, allocations: list[wire.DesiredAllocation]
) -> wire.DesiredGpu:
    running = [item for item in allocations if item.state == "run"] or allocations
    if running:
        mode = "sliced" if running[0].profile else "whole"
    return wire.DesiredGpu(
        uuid=uuid,
        mode="sliced" if mode == "sliced" else "whole",
        allocations=tuple(allocations),
    )
