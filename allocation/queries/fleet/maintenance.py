"""Open maintenance and the hardware that it covers."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from allocation.models import Gpu, GpuEvent, Maintenance
from tenants.platform.database.compiled import Compiled

EVENTS_SHOWN = 40


def maintenance_open(now: datetime) -> list[Maintenance]:
    """Current and planned maintenance, by start."""
    return _open(now)


def _open_rows(now: datetime, _keys: Sequence[object]) -> QuerySet[Maintenance]:
    rows = Maintenance.objects.filter(ended_at=None, ends__gt=now)
    return rows.select_related("rack", "node", "gpu__node").order_by("starts", "id")


_open = Compiled(_open_rows)


def in_scope(maintenance: Maintenance) -> Q:
    """A filter for rows whose `gpu` the maintenance covers."""
    if maintenance.gpu_id is not None:
        return Q(gpu=maintenance.gpu_id)
    if maintenance.node_id is not None:
        return Q(gpu__node=maintenance.node_id)
    return Q(gpu__node__rack=maintenance.rack_id)


def maintenance_by_gpu(rows: Iterable[Maintenance], gpus: Iterable[Gpu]) -> Iterator[tuple[Gpu, Maintenance]]:
    """Each GPU with each maintenance that covers it. The GPUs need their nodes loaded."""
    rows = list(rows)
    if not rows:
        return
    for gpu in gpus:
        for maintenance in rows:
            if maintenance.covers(gpu):
                yield gpu, maintenance


def maintenance_of_node(*, node: UUID, now: datetime) -> list[Maintenance]:
    """Open maintenance of a node, its rack, or its GPUs."""
    gpus = Gpu.objects.filter(node=node).select_related("node")
    found = {each.id: each for _, each in maintenance_by_gpu(maintenance_open(now), gpus)}
    return list(found.values())


def node_events(*, node: UUID) -> list[GpuEvent]:
    """The latest events of a node. Operators only, because events name people."""
    return list(GpuEvent.objects.filter(node=node).select_related("gpu")[:EVENTS_SHOWN])
