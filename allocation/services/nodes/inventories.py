"""What agents report of their hardware: GPUs, geometry, unknown models, results of `doctor`."""

import dataclasses
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Max

import wire
from allocation.models import Gpu, GpuModel, MigPlacement, Node, NodeExamination, NodeInventory
from allocation.queries.fleet.reported import inventory_read, is_plannable, model_of, storage_of
from allocation.rules.nodes.health import essential_failed
from allocation.services.nodes.health import gpu_found, gpus_lost
from allocation.words.fleet import FleetText, fleet_sentence, fleet_text
from tenants.outbox import task_request

# Indexes from here on belong to missing GPUs whose index another GPU has taken.
_PARKED_INDEX = 1 << 14
DIFFERENCES_KEPT = 50
logger = logging.getLogger(__name__)


def inventory_apply(*, node: Node, inventory: wire.Inventory, now: datetime) -> None:
    """Stores an inventory and its GPUs, and quarantines the node if something does not fit.

    The geometry of a model comes from the first node that reports it. GPUs of unknown models are
    added when an operator adds their model. The node is saved.
    """
    unreported = _nvlinks_unreported(node)
    NodeInventory.objects.update_or_create(
        node=node, defaults={"document": wire.inventory_to_plain(inventory), "at": now}
    )
    before = _modes(node)
    changed = differences_of(node, inventory, unreported)
    linked = nvlinks_reported(inventory)
    _indexes_free(node, inventory)
    once = {item.index: item for item in reversed(inventory.gpus)}
    applied = (
        _gpu_apply(node, item, linked=linked)
        if once[item.index] is item
        else fleet_text("gpu_index_taken", index=item.index, uuid=item.uuid)
        for item in inventory.gpus
    )
    problems = [problem for problem in applied if problem]
    if _modes(node) != before:
        # The node's document contains GPUs and modes: its content changes with its generation.
        node.generation += 1
    node.cores = inventory.cores
    node.memory_mb = inventory.memory_mb
    node.host_limits, node.host_note = inventory.limits, inventory.limits_note[:200]
    _storage_apply(node, inventory.storage)
    node.driver = inventory.driver[:40]
    node.engine, node.engine_pool = inventory.engine, inventory.pool
    if node.agent_version != inventory.agent[:40]:
        # Another version may support other parts of the document.
        node.generation += 1
    node.agent_version = inventory.agent[:40]
    node.boot_id = inventory.boot[:64]
    node.last_seen = now
    reported = {item.uuid for item in inventory.gpus}
    gpus_lost([gpu for gpu in node.gpus.all() if gpu.uuid not in reported], now)
    if problems or changed:
        differences_add(node, [*problems, *changed])
    elif node.state == Node.State.EXPECTED:
        node.state_set(Node.State.READY, None)
    node.save()


def _storage_apply(node: Node, found: wire.NodeStorage | None) -> None:
    """Takes the storage that an agent found, unless an operator has set another. Not saved."""
    if found is None:
        return
    node.reported_storage, node.reported_scratch_gb = storage_of(found)
    if not node.storage_by_operator:
        node.storage, node.scratch_gb = node.reported_storage, node.reported_scratch_gb


def _modes(node: Node) -> list[tuple[str, str]]:
    return list(Gpu.objects.filter(node=node).order_by("index").values_list("uuid", "mode"))


def _indexes_free(node: Node, inventory: wire.Inventory) -> None:
    """Frees indexes that GPUs have lost by a reordering or to their replacement: an index is unique
    on its node at every moment."""
    indexes = {item.uuid: item.index for item in inventory.gpus}
    taken = set(indexes.values())
    moved = [
        gpu.id
        for gpu in Gpu.objects.filter(node=node, index__lt=_PARKED_INDEX)
        if gpu.index in taken and indexes.get(gpu.uuid) != gpu.index
    ]
    top = Gpu.objects.filter(node=node, index__gte=_PARKED_INDEX).aggregate(top=Max("index"))["top"]
    for number, each in enumerate(moved, (top or _PARKED_INDEX) + 1):
        Gpu.objects.filter(id=each).update(index=number)


def _nvlinks_unreported(node: Node) -> set[str]:
    """GPUs whose NVLinks the last inventory did not report."""
    last = NodeInventory.objects.filter(node=node).first()
    gpus = [] if last is None else last.document.get("gpus", [])
    return {item["uuid"] for item in gpus if item["mode"] != "whole"}


def _gpu_apply(node: Node, item: wire.InventoryGpu, *, linked: bool) -> FleetText | None:
    """Saves one GPU; returns a problem. Without `linked` the known NVLinks are kept."""
    model = model_of(item)
    if model is None:
        return unknown_model(item)
    known = Gpu.objects.filter(uuid=item.uuid).select_related("node").first()
    if known is not None and known.node_id != node.id:
        facts = {"index": item.index, "uuid": item.uuid, "node": known.node.name}
        return fleet_text("gpu_elsewhere", **facts)
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


def unknown_model(item: wire.InventoryGpu) -> FleetText:
    """The text for a GPU whose model is not in the catalogue."""
    return fleet_text("model_unknown", index=item.index, model=item.name)


def _placements_apply(model: GpuModel, item: wire.InventoryGpu) -> None:
    """Takes memory and geometry from the first GPU of the model."""
    if not model.gpu_set.exists() and model.memory_mb != item.memory_mb:
        model.memory_mb = item.memory_mb
        model.save(update_fields=["memory_mb"])
    if model.placements.exists() or not is_plannable(item.placements):
        return
    model.memory_slots = max(place.start + place.size for place in item.placements)
    # Not every GPU has a slice that is all of it: of AMD's partitions only all together are the GPU.
    model.compute_slices = max(place.compute * max(1, place.max) for place in item.placements)
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
    """The inventory that the node's agent reported last; None if there is none."""
    stored = NodeInventory.objects.filter(node=node).first()
    if stored is None:
        return None
    return inventory_read(stored)


def waiting_gpus_add(now: datetime) -> list[str]:
    """Adds the reported GPUs of all nodes whose models are in the catalogue now.

    Returns the names of the nodes that changed. Quarantined nodes stay so until approved.
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
    settled = {str(unknown_model(item)) for item in named}
    problems = [problem for item in named if (problem := _gpu_apply(node, item, linked=True))]
    news = _news(node, problems)
    if len(problems) == len(named) and not news:
        return False
    left = [text for text in node.differences if fleet_sentence(text) not in settled]
    node.differences = [*left, *(text.data() for text in news)]
    node.generation += 1
    if node.state == Node.State.QUARANTINED and node.state_words in settled:
        first = (node.differences or [fleet_text("models_known").data()])[0]
        node.state_reason = fleet_sentence(first)[:200]
        node.state_text = None if isinstance(first, str) else first
    node.save(update_fields=["differences", "generation", *Node.STATE_FIELDS])
    return True


def differences_add(node: Node, found: Sequence[FleetText]) -> None:
    """Quarantines a node until an operator approves the differences. Not saved."""
    news = [text.data() for text in _news(node, found)]
    node.differences = [*node.differences, *news][-DIFFERENCES_KEPT:]
    node.state_set(Node.State.QUARANTINED, found[0])
    node.drain_by = None


def _news(node: Node, found: Sequence[FleetText]) -> list[FleetText]:
    """The texts that the node's differences do not have."""
    known = {fleet_sentence(text) for text in node.differences}
    return [text for text in found if str(text) not in known]


def nvlinks_reported(inventory: wire.Inventory) -> bool:
    """Whether the inventory reports the NVLinks of all GPUs. A GPU in MIG mode reports none, which
    also changes the domains of the others."""
    return all(item.mode == "whole" for item in inventory.gpus)


def differences_of(node: Node, inventory: wire.Inventory, before: Collection[str] = ()) -> list[FleetText]:
    """A text for each difference that an operator has to approve; none for a new node. Missing
    GPUs are marked as lost instead. `before` are the GPUs whose NVLinks the last inventory did not
    report because they were in MIG mode."""
    if node.state == Node.State.EXPECTED:
        return []
    known = {gpu.uuid: gpu for gpu in Gpu.objects.filter(node=node)}
    found = [
        fleet_text("gpu_new", index=item.index, model=item.name, uuid=item.uuid)
        for item in inventory.gpus
        if item.uuid not in known
    ]
    links = [
        _moved(item.index, gpu.domain, item.nvlink_domain)
        for item in inventory.gpus
        if nvlinks_reported(inventory)
        and (gpu := known.get(item.uuid))
        and gpu.domain != item.nvlink_domain
        and not (gpu.domain is None and item.uuid in before)
    ]
    twice = [uuid for uuid, count in Counter(i.uuid for i in inventory.gpus).items() if count > 1]
    return [*found, *links, *(fleet_text("gpu_twice", uuid=uuid) for uuid in sorted(twice))]


def _moved(index: int, *domains: int | None) -> FleetText:
    before, after = (
        fleet_text("no_domain") if number is None else fleet_text("domain", number=number)
        for number in domains
    )
    return fleet_text("gpu_moved", index=index, before=before, after=after)


def examination_apply(*, node: Node, examination: wire.Examination, at: datetime, now: datetime) -> bool:
    """Stores an examination that is newer than the known one. Returns whether it was.

    An essential check that newly fails quarantines the node: it takes no new work until an operator
    approves it. Callers have locked `node`.
    """
    before = NodeExamination.objects.filter(node=node).first()
    if before is not None and before.seq >= examination.seq:
        return False
    checks = [_stored(check) for check in examination.checks[: wire.CHECKS_MAX]]
    known = essential_failed(before.checks) if before is not None else {}
    news = [
        fleet_text("check_failed", check=name, seen=check["seen"], fix=check["do"])
        for name, check in essential_failed(checks).items()
        if name not in known
    ]
    NodeExamination.objects.update_or_create(
        node=node, defaults={"checks": checks, "seq": examination.seq, "at": at}
    )
    node.last_seen = now
    if news:
        logger.warning("%s is not fit for work: %s", node.name, "; ".join(map(str, news)))
        differences_add(node, news)
        task_request("allocation.cycle")
    node.save(update_fields=["last_seen", *Node.STATE_FIELDS, "drain_by", "differences"])
    return True


def _stored(check: wire.CheckResult) -> dict[str, Any]:
    facts = check.facts[: wire.CHECK_FACTS_MAX]
    return {**dataclasses.asdict(check), "facts": {each.name: each.value for each in facts}}
