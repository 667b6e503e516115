"""A provider whose machines are rows of a list, and machines that join as an agent would."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.utils import timezone

import wire
from allocation.features.capacity.models import CapacityMachine, CapacityPlan
from allocation.features.capacity.providers import Listed, Provider, ProviderFailed
from allocation.features.capacity.rules import Offer
from allocation.features.capacity.turn import capacity_turn
from allocation.models import Node
from allocation.services.nodes.fleet import node_enrol
from allocation.services.nodes.inventories import examination_apply
from tenants.models import Project
from tests.roles import as_system
from tests.services.reported import an_inventory

FILE = """
[[provider]]
name = "cloud"
driver = "dummy"
most_machines = 2
most_cost_a_month = "100"

[[provider.offer]]
name = "h100x4"
size = "s"
gpu_class = "h100"
gpus = 4
price = "12"
lead_seconds = 60
least_seconds = 3600
period_seconds = 600
"""


def a_capacity_plan(project: Project, owner_id: int) -> str:
    """The id of a plan that nobody has decided."""
    now = timezone.now()
    with as_system():
        plan = CapacityPlan.objects.create(
            tenant_id=project.tenant_id,
            project=project,
            gpu_class_id="h100",
            gpus=4,
            starts=now,
            until=now + timedelta(hours=8),
            most_cost=Decimal(5),
            currency="EUR",
            source=CapacityPlan.Source.PERSON,
            state=CapacityPlan.State.PROPOSED,
            created=now,
            created_by_id=owner_id,
        )
    return str(plan.id)


class FakeCloud:
    """A provider in this process. `loses`: it makes a machine, and its answer is lost."""

    def __init__(self) -> None:
        self.machines: list[Listed] = []
        self.boots: dict[str, str] = {}
        self.made = 0
        self.loses = False
        self.is_down = False
        self.keeps: set[str] = set()

    def opened(self, _: Provider) -> "FakeCloud":
        return self

    def listing(self) -> Sequence[Listed]:
        if self.is_down:
            raise ProviderFailed("cloud did not list machines")
        return list(self.machines)

    def acquire(self, name: str, offer: Offer, boot: str) -> str:
        self.made += 1
        key = f"id-{self.made}"
        self.boots[name] = boot
        self.machines.append(Listed(key, name))
        if self.loses:
            raise KeyboardInterrupt("the worker is killed here")
        return key

    def release(self, machine_id: str) -> None:
        self.machines = [each for each in self.machines if each.id != machine_id or each.id in self.keeps]


def providers_file(settings: Any, folder: Path, text: str = FILE) -> None:  # noqa: ANN401 (pytest-django's)
    path = folder / "providers.toml"
    path.write_text(text, encoding="utf-8")
    settings.PROVIDERS_FILE = str(path)


def turned(cloud: FakeCloud, now: datetime) -> None:
    """A turn of the worker."""
    with as_system():
        assert capacity_turn(now, cloud.opened)


def machines() -> list[CapacityMachine]:
    with as_system():
        return list(CapacityMachine.objects.select_related("plan").order_by("requested", "id"))


def states() -> list[str]:
    return [each.state for each in machines()]


def joined(cloud: FakeCloud, machine: CapacityMachine, now: datetime, *, failed: str = "") -> Node:
    """The agent of a machine enrols with the token of its boot script, and doctor has looked."""
    (line,) = [each for each in cloud.boots[machine.name].splitlines() if "GPU_AGENT_TOKEN=" in each]
    gpus = tuple(
        wire.InventoryGpu(
            index=index,
            uuid=f"GPU-{machine.name}-{index}",
            name="NVIDIA H100 80GB HBM3",
            memory_mb=81_559,
            mig_capable=False,
            mode="whole",
            numa=0,
            pci=f"00000000:{index:02X}:00.0",
            nvlink_domain=0,
            placements=(),
        )
        for index in range(machine.gpus)
    )
    inventory = json.loads(json.dumps(wire.inventory_to_plain(an_inventory(*gpus))))
    node_enrol(token=line.partition("=")[2], inventory=inventory, now=now)
    state: wire.CheckState = "fail" if failed else "ok"
    checks = (wire.CheckResult(name=failed or "GPUs", state=state, seen="", do="mend it"),)
    with as_system():
        node = Node.objects.get(name=machine.node)
        examination = wire.Examination(at=int(now.timestamp()), checks=checks, seq=1)
        examination_apply(node=node, examination=examination, at=now, now=now)
        node.save()
        return Node.objects.get(name=machine.node)
