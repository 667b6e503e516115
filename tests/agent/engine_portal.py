"""The portal's side of an engine: real web processes, and what workers do, when a test asks for it."""

import dataclasses
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.db import transaction

import wire
from agent.slurm.gpu import gpu_uuid
from allocation.models import Allocation, Booking, EngineHost, Node
from allocation.services.decide.cycle import cycle_run
from allocation.services.inbox.consumer import Reader
from allocation.services.nodes.engines import (
    engine_hosts_approve,
    engine_key_rotate,
    engine_revoke,
    engine_token_create,
)
from allocation.services.nodes.fleet import enrolment_token_create, node_enrol
from allocation.services.nodes.redis_accounts import agent_accounts_ensure
from allocation.services.publish.publish import publish_due
from tests.builders import an_operator
from tests.roles import as_role, as_system
from tests.servers.waiting import wait_until

KIND = "4 × NVIDIA H100 80GB HBM3"


def now() -> datetime:
    return datetime.now(UTC)


def slurm_host(name: str) -> wire.Inventory:
    """A host of StandInSlurm, as an agent of its own reports it."""
    gpus = tuple(
        wire.InventoryGpu(
            index=index,
            uuid=gpu_uuid("standin", name, index),
            name="NVIDIA H100 80GB HBM3",
            memory_mb=81559,
            mig_capable=False,
            mode="whole",
            numa=None,
            pci="",
            nvlink_domain=None,
        )
        for index in range(4)
    )
    return wire.Inventory(
        hostname=name, driver="Slurm 22.05.8", agent="1.0.0", boot="", cores=16, memory_mb=8000, gpus=gpus
    )


class EnginePortal:
    """A portal whose decisions and reader are the test's. `url` is its address."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._reader = Reader("the test's", clock=now)
        self._operator = an_operator()
        with as_system():
            agent_accounts_ensure()

    def token(self, name: str = "main") -> str:
        with as_role("portal_ops"):
            return engine_token_create(engine=name, rack="a1", now=now())

    def enrolled_alone(self, name: str) -> dict[str, Any]:
        """Enrols a host as version 1.0 did; returns its identity."""
        with as_role("portal_ops"):
            token = enrolment_token_create(node_name=name, rack_name="a1", now=now())
        inventory = slurm_host(name)
        plain = json.loads(json.dumps(wire.inventory_to_plain(inventory)))
        found: dict[str, Any] = node_enrol(token=token, inventory=plain, now=now())
        with as_system():
            Node.objects.filter(name=name).update(engine="slurm")
        return found

    def approve(self, *names: str, kind: str = "") -> list[str]:
        fields = {"operator": self._operator, "engine_name": "main", "now": now()}
        with as_role("portal_ops"), transaction.atomic():
            return engine_hosts_approve(names=names, kind=kind, **fields)  # type: ignore[arg-type]

    def revoke(self) -> None:
        with as_role("portal_ops"), transaction.atomic():
            engine_revoke(operator=self._operator, engine_name="main", now=now())

    def rotate(self) -> None:
        with as_role("portal_ops"), transaction.atomic():
            engine_key_rotate(operator=self._operator, engine_name="main", now=now())

    def turn(self) -> None:
        """Reads reports, decides and publishes."""
        with as_system():
            self._reader.turn(block_ms=0)
            cycle_run(now())
            publish_due(now())

    def until(self, check: Callable[[], bool], seconds: float = 60) -> None:
        """Turns until the check holds."""

        def turned() -> bool:
            self.turn()
            with as_role("portal_ops"):
                return check()

        wait_until(turned, seconds=seconds, every=0.1)

    def hosts(self) -> dict[str, bool]:
        """The hosts that are known, and whether each is gone."""
        with as_role("portal_ops"):
            return {row.name: row.gone is not None for row in EngineHost.objects.all()}

    def connected(self) -> set[str]:
        """The nodes whose agents have confirmed the newest document."""
        with as_system():
            rows = Node.objects.filter(heartbeat_seq__gt=0, observed_generation__gte=0)
            return {row.name for row in rows if row.observed_generation == row.generation}

    def state(self, booking: Booking) -> str:
        with as_system():
            return str(Booking.objects.get(id=booking.id).state)

    def nodes_of(self, booking: Booking) -> list[str]:
        with as_system():
            rows = Allocation.objects.filter(booking=booking).order_by("gpu__node__name")
            return list(rows.values_list("gpu__node__name", flat=True))


_SCONTROL = """\
#!/bin/sh
case "$*" in
  --version) echo slurm 22.05.8 ;;
  "show config") echo "ClusterName = standin" ;;
  *"show node"*) cat {root}/nodes ;;
  *"show topology"*) ;;
  *"show reservation"*) cat {root}/reservations ;;
  *) exit 1 ;;
esac
"""


@dataclasses.dataclass
class StandInSlurm:
    """Commands that print what a test says of a cluster in which nothing runs."""

    root: Path

    def __post_init__(self) -> None:
        self.root.mkdir()
        for name, text in (("scontrol", _SCONTROL.format(root=self.root)), ("squeue", "#!/bin/sh\n")):
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)

    def holds(self, *names: str, features: str = "(null)") -> None:
        """The reservation holds these nodes, of four GPUs each."""
        lines = [
            f"NodeName={name} CPUTot=16 RealMemory=8000 Gres=gpu:h100:4 GresUsed=gpu:h100:0 State=IDLE"
            f" AvailableFeatures={features}"
            for name in names
        ]
        held = f"ReservationName=portal Nodes={','.join(names)} State=ACTIVE\n"
        for file, text in (("nodes", "\n".join(lines) + "\n"), ("reservations", held)):
            fresh = self.root / f"{file}.new"
            fresh.write_text(text)
            fresh.replace(self.root / file)

    @property
    def environment(self) -> dict[str, str]:
        """What an engine needs to find the commands."""
        return {
            "PATH": f"{self.root}:{os.environ['PATH']}",
            "GPU_AGENT_ENGINE": "slurm",
            "GPU_AGENT_GPU_MODELS": "h100=NVIDIA H100 80GB HBM3:81559",
        }
