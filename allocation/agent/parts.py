"""What each booking has on this node as a whole, and what its programs are told of it. Pure."""

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from allocation import wire
from allocation.agent.handover import full_name

_FIRST_PORT = 20_000
_PORTS = 12_000


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A booking that is active on this node: all of its devices here are handed over.

    `devices` are UUIDs in the order of GPUs and slots. `members` are the nodes of the booking in
    the order of their ranks, `rank` is this node's place among them. Times in Unix seconds.
    """

    name: str
    booking: str
    tenant: str
    owner: str
    sliced: bool
    starts: int
    ends: int
    devices: tuple[str, ...]
    members: tuple[wire.Member, ...]
    rank: int

    @property
    def port(self) -> int:
        """Where its processes meet: the same on every node, below the ports that kernels lend."""
        mark = hashlib.sha256(self.name.encode()).digest()
        return _FIRST_PORT + int.from_bytes(mark[:8], "big") % _PORTS

    @property
    def address(self) -> str:
        """The node at which its processes meet."""
        return self.members[0].node if len(self.members) > 1 else "127.0.0.1"

    @property
    def world_size(self) -> int:
        """Its devices on all nodes."""
        return sum(member.devices for member in self.members)


def parts_of(desired: wire.Desired | None, given: Mapping[str, str], now: float) -> dict[str, Part]:
    """The bookings that are whole on this node, by full name; `given` maps allocations to devices.

    One that misses a device, at its start or because its end has begun, is not there.
    """
    if desired is None:
        return {}
    wanted: dict[str, list[wire.DesiredAllocation]] = defaultdict(list)
    for gpu in desired.gpus:
        for allocation in sorted(gpu.allocations, key=lambda each: each.slot):
            if allocation.state == "run" and allocation.starts <= now < allocation.ends:
                wanted[full_name(allocation)].append(allocation)
    gangs = {f"{gang.tenant}.{gang.booking}": gang.members for gang in desired.gangs}
    return {
        name: _part(name, allocations, given, gangs.get(name), desired.node)
        for name, allocations in wanted.items()
        if all(each.id in given for each in allocations)
    }


def _part(
    name: str,
    allocations: list[wire.DesiredAllocation],
    given: Mapping[str, str],
    members: tuple[wire.Member, ...] | None,
    node: str,
) -> Part:
    first = allocations[0]
    alone = (wire.Member(node=node, devices=len(allocations)),)
    named = [member.node for member in members or ()]
    if members is None or node not in named:
        members, named = alone, [node]
    return Part(
        name=name,
        booking=first.booking,
        tenant=first.tenant,
        owner=first.owner,
        sliced=first.profile is not None,
        starts=first.starts,
        ends=first.ends,
        devices=tuple(given[each.id] for each in allocations),
        members=members,
        rank=named.index(node),
    )


def environment(part: Part) -> dict[str, str]:
    """What a program of the booking finds in its environment.

    Of several slices only the first is visible: CUDA uses one slice in one process.
    WORLD_SIZE and RANK are left to whoever starts the processes: set here, a program that is
    started alone would take itself for one of many and wait for the others.
    """
    visible = part.devices[:1] if part.sliced else part.devices
    nodes, here = str(len(part.members)), str(len(visible))
    rank, port = str(part.rank), str(part.port)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(visible),
        "NVIDIA_VISIBLE_DEVICES": ",".join(visible),
        "GPU_BOOKING": part.booking,
        "GPU_BOOKING_TENANT": part.tenant,
        "GPU_BOOKING_OWNER": part.owner,
        "GPU_BOOKING_ENDS": datetime.fromtimestamp(part.ends, UTC).isoformat(),
        "GPU_BOOKING_DEVICES": ",".join(part.devices),
        "GPU_BOOKING_NODES": ",".join(member.node for member in part.members),
        "GPU_BOOKING_WORLD_SIZE": str(part.world_size),
        "MASTER_ADDR": part.address,
        "MASTER_PORT": port,
        "NNODES": nodes,
        "NODE_RANK": rank,
        "NPROC_PER_NODE": here,
        # torchrun takes the defaults of its options from these.
        "PET_NNODES": nodes,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": here,
        "PET_MASTER_ADDR": part.address,
        "PET_MASTER_PORT": port,
    }


def description(part: Part) -> dict[str, Any]:
    """The same for programs that read `booking.json`."""
    return {
        "booking": part.booking,
        "tenant": part.tenant,
        "owner": part.owner,
        "starts": part.starts,
        "ends": part.ends,
        "sliced": part.sliced,
        "devices": list(part.devices),
        "nodes": [dataclasses.asdict(member) for member in part.members],
        "node_rank": part.rank,
        "world_size": part.world_size,
        "master": {"address": part.address, "port": part.port},
        "environment": environment(part),
    }
