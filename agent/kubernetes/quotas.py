"""The quota of a booking: what its queue admits on each node. Pure."""

from collections.abc import Iterable, Mapping
from decimal import ROUND_DOWN, Decimal

from agent.kubernetes.api import Object
from agent.kubernetes.objects import HOST, SeenNode, quantity
from wire import DesiredAllocation

Quotas = Mapping[str, str]
"""The quantity of each resource."""


def quotas_of(parts: Iterable[tuple[DesiredAllocation, str]], node: SeenNode) -> dict[str, str]:
    """Returns the quotas of allocations with the resources of their places: exactly the GPUs that are
    booked, with their host cores and memory, or the GPUs' share of the node where none were booked."""
    parts = tuple(parts)
    found: dict[str, str] = {}
    for _, resource in parts:
        found[resource] = str(int(found.get(resource, "0")) + 1)
    total = sum(node.capacity.values())
    cores = sum(each.cores for each, _ in parts)
    memory = sum(each.memory_mb for each, _ in parts) << 20
    asked = {"cpu": Decimal(cores), "memory": Decimal(memory)}
    for name in HOST:
        share = node.host.get(name, Decimal(0)) * len(parts) / max(1, total)
        found[name] = _text(asked.get(name) or share, name)
    return found


def _text(amount: Decimal, name: str) -> str:
    if name == "cpu":
        milli = int((amount * 1000).to_integral_value(ROUND_DOWN))
        return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
    return str(int(amount.to_integral_value(ROUND_DOWN)))


def resource_groups(entries: Mapping[str, Quotas]) -> list[Object]:
    """Returns `resourceGroups` of a ClusterQueue: each flavor needs a quota of each resource."""
    if not entries:
        return []
    covered = sorted({name for quotas in entries.values() for name in quotas})
    flavors = [
        {
            "name": flavor,
            "resources": [{"name": name, "nominalQuota": quotas.get(name, "0")} for name in covered],
        }
        for flavor, quotas in sorted(entries.items())
    ]
    return [{"coveredResources": covered, "flavors": flavors}]


def is_same(one: Quotas, other: Quotas) -> bool:
    """Returns whether two quotas are the same, however they are written; a resource without one has 0."""
    return all(quantity(one.get(name, "0")) == quantity(other.get(name, "0")) for name in {*one, *other})
