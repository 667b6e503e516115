"""Nodes that list data sets."""

from datetime import datetime
from uuid import UUID

import wire
from allocation.models import Gpu, Node
from allocation.services.nodes.telemetry import samples_store
from tests.builders_allocation import NOW
from tests.roles import as_system


def first_node() -> Node:
    """The first node of the site."""
    with as_system():
        return Node.objects.earliest("name")


def another_node(name: str = "gpu-a1-02", gpus: int = 8) -> Node:
    """A node like the first one."""
    with as_system():
        first, model = Node.objects.earliest("name"), Gpu.objects.earliest("number")
        node = Node.objects.create(name=name, rack=first.rack, state=Node.State.READY)
        Gpu.objects.bulk_create(
            Gpu(
                number=100 + index,
                node=node,
                index=index,
                uuid=f"GPU-{name}-{index}",
                model=model.model,
                gpu_class=model.gpu_class,
                domain=index // 4,
            )
            for index in range(gpus)
        )
        return node


def node_says(node: UUID, *names: str, at: datetime = NOW, size: int | None = 150_000) -> None:
    """The node's telemetry lists these data sets."""
    data = tuple(wire.CachedData(name=name, size_mb=size, used=int(at.timestamp()) - 60) for name in names)
    with as_system():
        samples_store([(node, wire.Telemetry(sent_at=int(at.timestamp()), data=data))], at)
