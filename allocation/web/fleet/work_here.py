"""Whom it concerns that a node is out of service: the bookings on it, and what becomes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min

from allocation.models import Allocation, Node
from allocation.queries.fleet.fleet import Block, NodeNow


@dataclass(frozen=True, slots=True)
class RunHere:
    """A booking with GPUs of the node now."""

    label: str
    title: str
    tenant: str
    gpus: str
    ends: datetime
    interrupted_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkHere:
    """The runs on a node, the last of their ends, and what is planned there."""

    runs: Sequence[RunHere]
    interrupted: int
    last_end: datetime | None
    planned: int
    next_start: datetime | None
    is_reachable: bool
    can_be_fenced: bool


def work_here(node: NodeNow, now: datetime) -> WorkHere:
    """The work of all tenants on a node. Runs inside `operator_tx`."""
    found: dict[str, tuple[Block, list[str]]] = {}
    for gpu in node.gpus:
        for block in gpu.blocks:
            found.setdefault(block.label, (block, []))[1].append(str(gpu.index))
    runs = [
        RunHere(
            label=block.label,
            title=block.title,
            tenant=block.tenant,
            gpus=", ".join(dict.fromkeys(gpus)),
            ends=block.ends,
            interrupted_at=node.drain_by if node.drain_by and block.ends > node.drain_by else None,
        )
        for block, gpus in found.values()
    ]
    planned = Allocation.objects.filter(
        gpu__node=node.id, state=Allocation.State.PLANNED, period__startswith__gt=now
    ).aggregate(count=Count("booking", distinct=True), first=Min("period__startswith"))
    return WorkHere(
        runs=sorted(runs, key=lambda run: run.ends),
        interrupted=sum(run.interrupted_at is not None for run in runs),
        last_end=max((run.ends for run in runs), default=None),
        planned=planned["count"],
        next_start=planned["first"],
        is_reachable=not node.is_unreachable and node.unreachable_since is None,
        can_be_fenced=node.state != Node.State.READY,
    )
