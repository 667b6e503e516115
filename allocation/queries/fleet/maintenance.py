"""Planned maintenance that still counts, and the hardware that it covers."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from allocation.models import Blackout, Gpu, GpuEvent

EVENTS_SHOWN = 40


def blackouts_open(now: datetime) -> list[Blackout]:
    """Those that run or are planned, by start."""
    found = Blackout.objects.filter(ended_at=None, ends__gt=now)
    return list(found.select_related("rack", "node", "gpu__node").order_by("starts", "id"))


def in_scope(blackout: Blackout, gpu: str = "gpu") -> Q:
    """A filter for rows whose GPU, reached by the lookup `gpu`, the blackout covers."""
    if blackout.gpu_id is not None:
        return Q(**{f"{gpu}": blackout.gpu_id})
    if blackout.node_id is not None:
        return Q(**{f"{gpu}__node": blackout.node_id})
    return Q(**{f"{gpu}__node__rack": blackout.rack_id})


def blackouts_by_gpu(
    blackouts: Iterable[Blackout], gpus: Iterable[Gpu]
) -> Iterator[tuple[Gpu, Blackout]]:
    """Each GPU with each blackout that covers it; GPUs with their nodes loaded."""
    blackouts = list(blackouts)
    if not blackouts:
        return
    for gpu in gpus:
        for blackout in blackouts:
            if blackout.covers(gpu):
                yield gpu, blackout


def away_now(*, node: UUID, now: datetime) -> list[Blackout]:
    """Maintenance that runs or is planned for a node, its rack, or GPUs of it."""
    gpus = Gpu.objects.filter(node=node).select_related("node")
    found = {each.id: each for _, each in blackouts_by_gpu(blackouts_open(now), gpus)}
    return list(found.values())


def node_events(*, node: UUID) -> list[GpuEvent]:
    """The latest of a node's history. Operators only: it names people."""
    return list(GpuEvent.objects.filter(node=node).select_related("gpu")[:EVENTS_SHOWN])
