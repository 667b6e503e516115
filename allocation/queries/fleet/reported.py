"""GPU models that agents have reported, with the slices that their drivers list."""

from collections.abc import Sequence
from dataclasses import dataclass

import wire
from allocation.models import GpuModel, Node, NodeInventory
from allocation.rules.site.known_models import KnownModel, known_catalogue
from solver.fleet.mig_geometry import is_expressible
from solver.model.inputs import SLOTS_PER_GPU, Placement

MOST_SCRATCH_GB = 1_000_000


@dataclass(frozen=True, slots=True)
class ReportedModel:
    """A reported model. `profiles` are (name, number that fits on one GPU) from the driver;
    `device_id` is the PCI id, empty if no agent has reported it; `model` is its row in the
    catalogue, or None."""

    name: str
    memory_mb: int
    gpus: int
    nodes: tuple[str, ...]
    profiles: tuple[tuple[str, int], ...]
    is_sliceable: bool
    known: KnownModel | None
    model: GpuModel | None
    device_id: str

    @property
    def unexpected(self) -> tuple[str, ...]:
        """Names of slices in which the driver and the shipped catalogue differ."""
        if self.known is None:
            return ()
        expected = {(profile.name, profile.limit) for profile in self.known.profiles}
        return tuple(sorted({name for name, _ in expected ^ set(self.profiles)}))


def reported_models() -> list[ReportedModel]:
    """All reported models, by name."""
    found: dict[str, list[tuple[str, wire.InventoryGpu]]] = {}
    stored = NodeInventory.objects.select_related("node").order_by("node__name")
    for row in stored:
        inventory = inventory_read(row)
        for item in inventory.gpus if inventory else ():
            found.setdefault(item.name, []).append((row.node.name, item))
    return [_reported(name, items) for name, items in sorted(found.items())]


def inventory_read(stored: NodeInventory) -> wire.Inventory | None:
    """The stored inventory, or None if an agent of another version wrote it. The agent's next
    report replaces it."""
    try:
        return wire.inventory_from_plain(stored.document)
    except wire.WireError:
        return None


def storage_of(found: wire.NodeStorage) -> tuple[Node.Storage, int]:
    """What kind of storage a report means, and its local space in GB. Where both are, it is local."""
    if found.local_gb > 0:
        return Node.Storage.LOCAL, min(found.local_gb, MOST_SCRATCH_GB)
    return (Node.Storage.SHARED if found.shared else Node.Storage.NONE), 0


def storage_contradicts(node: Node) -> bool:
    """Whether an operator has set storage that the agent did not find. Less local space than there is may be
    set."""
    if not node.storage_by_operator or node.reported_storage == Node.Storage.UNKNOWN:
        return False
    return node.storage != node.reported_storage or node.scratch_gb > node.reported_scratch_gb


def known_model_of(item: wire.InventoryGpu) -> KnownModel | None:
    """The shipped model of a GPU, by PCI id or else by NVML's name."""
    shipped = known_catalogue()
    return shipped.by_device(item.device_id, item.memory_mb) or shipped.by_name(item.name)


def model_of(item: wire.InventoryGpu) -> GpuModel | None:
    """The site's model of a GPU, by PCI id or else by NVML's name. Driver versions use different
    names for some models, and the site has a model under one of them."""
    known = known_catalogue().by_device(item.device_id, item.memory_mb)
    found = _named(known.names, item.name) if known else None
    if found is not None:
        return found
    known = known_catalogue().by_name(item.name)
    return _named((item.name, *known.names) if known else (item.name,), item.name)


def _named(names: Sequence[str], first: str) -> GpuModel | None:
    """The site's model with the name `first`, or else with one of `names`."""
    rows = {row.product_name: row for row in GpuModel.objects.filter(product_name__in=names)}
    return rows.get(first) or next((rows[name] for name in names if name in rows), None)


def is_plannable(placements: Sequence[wire.Placement]) -> bool:
    """Whether the solver can plan the slices: all are within the eight memory slots, and their
    limits are expressible. Other GPUs are only offered whole."""
    return (
        bool(placements)
        and all(
            min(place.size, place.compute) >= 1 and 0 <= place.start <= SLOTS_PER_GPU - place.size
            for place in placements
        )
        and is_expressible(
            Placement(p.profile, p.start, p.size, p.compute, p.profile_id, p.max) for p in placements
        )
    )


def _reported(name: str, items: Sequence[tuple[str, wire.InventoryGpu]]) -> ReportedModel:
    first = items[0][1]
    profiles = {place.profile: place.max for place in first.placements}
    return ReportedModel(
        name=name,
        memory_mb=first.memory_mb,
        gpus=len(items),
        nodes=tuple(dict.fromkeys(node for node, _ in items)),
        profiles=tuple(profiles.items()),
        is_sliceable=is_plannable(first.placements),
        known=known_model_of(first),
        model=model_of(first),
        device_id=first.device_id,
    )
