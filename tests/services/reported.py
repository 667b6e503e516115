"""Nodes by what their agents report, without an agent: inventories, sent through the door."""

import json
from typing import Any

import wire
from allocation.models import Node
from allocation.services.nodes.fleet import enrolment_token_create, node_enrol
from tests.builders_allocation import NOW
from tests.roles import as_system


def a_gpu(index: int, name: str, *profiles: tuple[str, int, int, int, int]) -> wire.InventoryGpu:
    """Profiles are (name, start, size, compute, most)."""
    return wire.InventoryGpu(
        index=index,
        uuid=f"GPU-reported-{index}",
        name=name,
        memory_mb=81_559,
        mig_capable=bool(profiles),
        mode="whole",
        numa=0,
        pci=f"00000000:{index:02X}:00.0",
        nvlink_domain=None,
        placements=tuple(
            wire.Placement(profile=p, profile_id=n, start=start, size=size, compute=c, max=most)
            for n, (p, start, size, c, most) in enumerate(profiles)
        ),
    )


def an_inventory(*gpus: wire.InventoryGpu) -> wire.Inventory:
    return wire.Inventory(
        hostname="gpu-a1-01",
        driver="570.1",
        agent="0.4.0",
        boot="b",
        cores=8,
        memory_mb=65_536,
        gpus=gpus,
    )


def enrolled(inventory: wire.Inventory, name: str = "gpu-a1-01") -> Node:
    with as_system():
        token = enrolment_token_create(node_name=name, rack_name="a1", now=NOW)
    sent: Any = json.loads(json.dumps(wire.inventory_to_plain(inventory)))
    node_enrol(token=token, inventory=sent, now=NOW)
    return there(name)


def there(name: str = "gpu-a1-01") -> Node:
    with as_system():
        return Node.objects.get(name=name)
