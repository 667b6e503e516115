"""Access to a running site: its database and Redis, added nodes, and processor use by program."""

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import django

from agent import VERSION
from tests.bench.site import Site

if TYPE_CHECKING:
    from allocation.models import Node, Rack

MODEL, CLASS = "h100-80gb", "h100"


@dataclass(frozen=True)
class Member:
    """A node enrolled without an agent: its name, its key, and its GPUs' UUIDs by index."""

    name: str
    key: bytes
    gpus: tuple[str, ...]


def site_enter(site: Site) -> None:
    """Connects this process to the site with the reader's rights.

    Reads the environment of the reader process, which needs the rights of the site's user.
    """
    said = Path(f"/proc/{program_pid(site, 'reader')}/environ").read_bytes().decode()
    os.environ.update(dict(item.split("=", 1) for item in said.split("\0") if "=" in item))
    django.setup()


def as_owner(site: Site) -> str:
    """The alias of a connection as the owner of the tables, who makes accounts without a person."""
    from django.db import connections  # noqa: PLC0415 (Django is there only now)

    password = json.loads((site.var / "secrets.json").read_text("utf-8"))["owner"]
    own = {"USER": "portal_owner", "PASSWORD": password}
    connections.databases["owner"] = connections.databases["default"] | own
    return "owner"


def nodes_add(prefix: str, count: int, gpus: int) -> list[Member]:
    """Adds enrolled nodes with `gpus` whole H100 each, numbered from 0."""
    from django.conf import settings  # noqa: PLC0415 (Django is there only now)
    from django.db import transaction  # noqa: PLC0415
    from django.db.models import Max  # noqa: PLC0415

    import wire  # noqa: PLC0415
    from allocation.models import Gpu, Node, Rack  # noqa: PLC0415
    from allocation.services.nodes.redis_accounts import agent_accounts_ensure  # noqa: PLC0415

    master = settings.AGENTS_MASTER_KEY.encode()
    with transaction.atomic():
        rack, _ = Rack.objects.get_or_create(name="bench")
        first = (Gpu.objects.aggregate(top=Max("number"))["top"] or 0) + 1
        nodes = Node.objects.bulk_create(_node(rack, f"{prefix}-{n:03}") for n in range(count))
        found = [
            Member(node.name, wire.node_key(master, node.name, 1), _uuids(node.name, gpus)) for node in nodes
        ]
        Gpu.objects.bulk_create(
            Gpu(
                number=first + place * gpus + index,
                node=node,
                index=index,
                uuid=uuid,
                domain=0,
                model_id=MODEL,
                gpu_class_id=CLASS,
            )
            for place, (node, member) in enumerate(zip(nodes, found, strict=True))
            for index, uuid in enumerate(member.gpus)
        )
    agent_accounts_ensure()
    return found


def _node(rack: "Rack", name: str) -> "Node":
    from allocation.models import Node  # noqa: PLC0415

    return Node(
        name=name,
        rack=rack,
        state="ready",
        key_version=1,
        key_confirmed=1,
        link_digest=secrets.token_bytes(32),
        agent_version=VERSION,
        cores=128,
        memory_mb=2_000_000,
    )


def _uuids(name: str, gpus: int) -> tuple[str, ...]:
    """The UUIDs that the simulated hardware of that name has."""
    from devtools.simulated.hardware import Hardware  # noqa: PLC0415
    from devtools.simulated.models import fleet_parse  # noqa: PLC0415

    hardware = Hardware(name, fleet_parse(f"h100:{gpus}"), state=None, clock=lambda: 0.0)
    return tuple(gpu.uuid for gpu in hardware.gpus)


def processor_seconds(site: Site) -> dict[str, float]:
    """The processor seconds of each program of the site, including its children."""
    return {
        path.stem: used_by(json.loads(path.read_text(encoding="utf-8"))["pid"])
        for path in sorted((site.var / "pids").glob("*.pid"))
    }


def used_by(pid: int) -> float:
    """The processor seconds of a process and its children."""
    return sum(map(_used, _tree(pid)))


def shares(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Percent of one core by program."""
    return {name: round(100 * (used - before.get(name, 0.0)) / seconds, 1) for name, used in after.items()}


def together(found: Mapping[str, float], names: Iterable[str]) -> float:
    """The sum of the percentages of some programs."""
    return round(sum(found.get(name, 0.0) for name in names), 1)


def program_pid(site: Site, name: str) -> int:
    """The process id of a program of the site."""
    path = site.var / "pids" / f"{name}.pid"
    return int(json.loads(path.read_text(encoding="utf-8"))["pid"])


def _tree(pid: int) -> Sequence[int]:
    return list(_below(pid))


def _below(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text(encoding="utf-8").split():
            yield from _below(int(child))


def _used(pid: int) -> float:
    """The processor seconds of a process and of its ended children."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
