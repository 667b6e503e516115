"""How the GPUs of a node are joined, as its agent found it."""

from dataclasses import dataclass
from uuid import UUID

from allocation.models import Gpu

PATHS = {
    "board": "same board",
    "switch": "same PCIe switch",
    "switches": "PCIe switches",
    "bridge": "host bridge",
    "numa": "NUMA node",
    "system": "across the machine",
}


@dataclass(frozen=True, slots=True)
class GpuLink:
    """Between two GPUs: so many NVLinks, and where their PCIe paths meet ("" when not known)."""

    nvlinks: int
    path: str


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """One GPU and its way to each GPU of the node, in their order; None is itself or unknown."""

    index: int
    links: tuple[GpuLink | None, ...]


def gpu_links_of(node_id: UUID) -> list[GpuLinks]:
    """The matrix of a node; empty when its agent told none."""
    found = dict(Gpu.objects.filter(node_id=node_id).values_list("index", "peers"))
    if not any(found.values()):
        return []
    return [
        GpuLinks(
            index,
            tuple(
                next((GpuLink(n, PATHS.get(path, "")) for i, n, path in peers if i == other), None)
                for other in sorted(found)
            ),
        )
        for index, peers in sorted(found.items())
    ]
