"""What agents find on their nodes: rows for GPUs, geometry, and what waits for a model's name."""

from datetime import datetime

from django.db.models import Max

from allocation import wire
from allocation.models import Gpu, GpuModel, MigPlacement, Node, NodeInventory
from allocation.queries.fleet.reported import inventory_read, is_plannable, model_of
from allocation.services.nodes.health import gpu_found, gpus_lost
from allocation.services.nodes.inventory_differences import (
    differences_add,
    differences_of,
    nvlinks_reported,
)
from tenants.outbox import task_request

# Where GPUs are numbered that are no longer there and whose index another one has.
_PARKED_INDEX = 1 << 14


def inventory_apply(*, node: Node, inventory: wire.Inventory, now: datetime) -> None:
    """Makes rows for what the agent found, and says why when something does not fit.

    Geometry of a model is taken from the first node that shows it. The node is saved, and so is
    the inventory: GPUs of unknown models are taken in when an operator adds their model.
    """
    unreported = _nvlinks_unreported(node)
    NodeInventory.objects.update_or_create(
        node=node, defaults={"document": wire.inventory_to_plain(inventory), "at": now}
    )
    told = _modes(node)
    changed = differences_of(node, inventory, unreported)
    linked = nvlinks_reported(inventory)
    _indexes_free(node, inventory)
    once = {item.index: item for item in reversed(inventory.gpus)}
    applied = (
        _gpu_apply(node, item, linked=linked)
        if once[item.index] is item
        else f"GPU {item.index} ({item.uuid}) has the index of another."
        for item in inventory.gpus
    )
    problems = [problem for problem in applied if problem]
    if _modes(node) != told:
        # GPUs and their modes stand in the node's document: other words need another generation.
        node.generation += 1
    node.cores = inventory.cores
    node.memory_mb = inventory.memory_mb
    node.host_limits, node.host_note = inventory.limits, inventory.limits_note[:200]
    node.driver = inventory.driver[:40]
    if node.agent_version != inventory.agent[:40]:
        # What it is told may be more, or less, than what its last version could read.
        node.generation += 1
    node.agent_version = inventory.agent[:40]
    node.boot_id = inventory.boot[:64]
    node.last_seen = now
    reported = {item.uuid for item in inventory.gpus}
    gpus_lost([gpu for gpu in node.gpus.all() if gpu.uuid not in reported], now)
    if problems or changed:
        differences_add(node, [*problems, *changed])
    elif node.state == Node.State.EXPECTED:
        node.state, node.state_reason = Node.State.READY, ""
    node.save()


def _modes(node: Node) -> list[tuple[str, str]]:
    return list(Gpu.objects.filter(node=node).order_by("index").values_list("uuid", "mode"))


def _indexes_free(node: Node, inventory: wire.Inventory) -> None:
    """Frees the indexes that GPUs have given up, by a reordering or to their replacement: an index
    is unique on its node at every moment."""
    told = {item.uuid: item.index for item in inventory.gpus}
    taken = set(told.values())
    moved = [
        gpu.id
        for gpu in Gpu.objects.filter(node=node, index__lt=_PARKED_INDEX)
        if gpu.index in taken and told.get(gpu.uuid) != gpu.index
    ]
    top = Gpu.objects.filter(node=node, index__gte=_PARKED_INDEX).aggregate(top=Max("index"))["top"]
    for number, each in enumerate(moved, (top or _PARKED_INDEX) + 1):
        Gpu.objects.filter(id=each).update(index=number)


def _nvlinks_unreported(node: Node) -> set[str]:
    """GPUs whose NVLinks the last inventory did not tell."""
    last = NodeInventory.objects.filter(node=node).first()
    told = [] if last is None else last.document.get("gpus", [])
    return {item["uuid"] for item in told if item["mode"] != "whole"}


def _gpu_apply(node: Node, item: wire.InventoryGpu, *, linked: bool) -> str | None:
    """`linked`: the inventory tells how GPUs are joined; else what is known of that is kept."""
    model = model_of(item)
    if model is None:
        return unknown_model(item)
    known = Gpu.objects.filter(uuid=item.uuid).select_related("node").first()
    if known is not None and known.node_id != node.id:
        return f"GPU {item.index} ({item.uuid}) is already known on {known.node.name}."
    _placements_apply(model, item)
    if known is None:
        highest = Gpu.objects.aggregate(top=Max("number"))["top"]
        known = Gpu(
            number=0 if highest is None else highest + 1,
            node=node,
            uuid=item.uuid,
            model=model,
            gpu_class=model.gpu_class,
        )
    known.index = item.index
    known.numa = item.numa
    if linked or known._state.adding:
        known.domain = item.nvlink_domain
        known.peers = [[peer.index, peer.nvlinks, peer.path] for peer in item.peers]
    known.mode = item.mode
    gpu_found(known)
    known.save()
    return None


def unknown_model(item: wire.InventoryGpu) -> str:
    """The sentence for a GPU whose model nobody has named."""
    return f"GPU {item.index} is a {item.name}, and no model of that name is in the catalogue."


def _placements_apply(model: GpuModel, item: wire.InventoryGpu) -> None:
    """Takes memory and geometry from the first GPU of the model; no expectation outlives it."""
    if not model.gpu_set.exists() and model.memory_mb != item.memory_mb:
        model.memory_mb = item.memory_mb
        model.save(update_fields=["memory_mb"])
    if model.placements.exists() or not is_plannable(item.placements):
        return
    model.memory_slots = max(place.start + place.size for place in item.placements)
    model.compute_slices = max(place.compute for place in item.placements)
    model.save(update_fields=["memory_slots", "compute_slices"])
    MigPlacement.objects.bulk_create(
        [
            MigPlacement(
                model=model,
                profile=place.profile,
                profile_id=place.profile_id,
                start=place.start,
                size=place.size,
                compute=place.compute,
                limit=place.max,
            )
            for place in item.placements
        ],
        ignore_conflicts=True,
    )


def inventory_of(node: Node) -> wire.Inventory | None:
    """What the node's agent reported last; None for a node that never did."""
    stored = NodeInventory.objects.filter(node=node).first()
    if stored is None:
        return None
    return inventory_read(stored)


def waiting_gpus_add(now: datetime) -> list[str]:
    """Takes in the GPUs of all nodes whose models have been added since they were reported.

    Returns the names of the nodes that changed. A quarantined node stays so until it is approved.
    """
    changed = []
    waiting = Node.objects.select_for_update().filter(inventory__isnull=False).order_by("name")
    for node in waiting:
        inventory = inventory_of(node)
        known = set(Gpu.objects.filter(node=node).values_list("uuid", flat=True))
        if inventory is not None and _node_gpus_add(node, inventory, known):
            changed.append(node.name)
    if changed:
        task_request("allocation.publish")
        task_request("allocation.cycle")
    return changed


def _node_gpus_add(node: Node, inventory: wire.Inventory, known: set[str]) -> bool:
    named = [item for item in inventory.gpus if item.uuid not in known and model_of(item)]
    settled = {unknown_model(item) for item in named}
    problems = [problem for item in named if (problem := _gpu_apply(node, item, linked=True))]
    news = [problem for problem in problems if problem not in node.differences]
    if len(problems) == len(named) and not news:
        return False
    node.differences = [*(text for text in node.differences if text not in settled), *news]
    node.generation += 1
    if node.state == Node.State.QUARANTINED and node.state_reason in settled:
        waits = "Its GPUs are in the catalogue now. Approve the node to plan work on it."
        node.state_reason = (node.differences or [waits])[0][:200]
    node.save(update_fields=["differences", "generation", "state_reason"])
    return True
