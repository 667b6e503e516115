"""What a node is made of, against what it was made of when it was last approved."""

from collections import Counter
from collections.abc import Collection, Sequence

from allocation import wire
from allocation.models import Gpu, Node

DIFFERENCES_KEPT = 50


def differences_add(node: Node, found: Sequence[str]) -> None:
    """Quarantines a node until an operator has approved what was found. Not saved."""
    news = [text for text in found if text not in node.differences]
    node.differences = [*node.differences, *news][-DIFFERENCES_KEPT:]
    node.state, node.drain_by = Node.State.QUARANTINED, None
    node.state_reason = found[0][:200]


def nvlinks_reported(inventory: wire.Inventory) -> bool:
    """Returns whether the inventory tells how the node's GPUs are joined. A GPU in MIG mode has no
    NVLinks, which also changes the groups of the others."""
    return all(item.mode == "whole" for item in inventory.gpus)


def differences_of(
    node: Node, inventory: wire.Inventory, before: Collection[str] = ()
) -> list[str]:
    """A sentence for each thing that an operator has to look at; none for a node that comes for
    the first time. A GPU that is gone is no news here: it is marked as lost. `before` are the GPUs
    whose NVLinks the last inventory could not tell, because they were in MIG mode."""
    if node.state == Node.State.EXPECTED:
        return []
    known = {gpu.uuid: gpu for gpu in Gpu.objects.filter(node=node)}
    found = [
        f"GPU {item.index} is new: {item.name}, {item.uuid}."
        for item in inventory.gpus
        if item.uuid not in known
    ]
    links = [
        f"GPU {item.index} was in {_domain(gpu.domain)}, and is in {_domain(item.nvlink_domain)}."
        for item in inventory.gpus
        if nvlinks_reported(inventory)
        and (gpu := known.get(item.uuid))
        and gpu.domain != item.nvlink_domain
        and not (gpu.domain is None and item.uuid in before)
    ]
    twice = [uuid for uuid, count in Counter(i.uuid for i in inventory.gpus).items() if count > 1]
    return [*found, *links, *(f"{uuid} is said to be there twice." for uuid in sorted(twice))]


def _domain(number: int | None) -> str:
    return "no NVLink domain" if number is None else f"NVLink domain {number}"
