"""What needs an operator: programs that stopped, and the work on a node out of service."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import redis
from django.db.models import Count, Min

from allocation.models import Allocation, Node
from allocation.queries.fleet.fleet import Block, NodeNow
from allocation.services.record.liveness import programs_read
from allocation.web.parts.times import length_words

# The reader is the first whose silence shows: nodes count as unreachable after 30 s.
STOPPED_AFTER = {"reader": 30, "solver": 60, "worker": 60, "beat": 60, "sender": 60}
EFFECTS = {
    "reader": (
        "reports reader",
        "The portal receives no reports of nodes: states of bookings do not change, GPUs are not "
        "handed over, and work under a lease ends after 17 s. Nodes that are shown as unreachable "
        "may be fine.",
    ),
    "solver": (
        "solver",
        "Bookings are accepted and not decided, and nothing new starts. Running work continues.",
    ),
    "worker": (
        "worker",
        "Mails, exports, live pages and the checks of every five minutes wait.",
    ),
    "beat": ("beat", "Nothing is done by time: no decisions, no mails, no checks."),
    "sender": (
        "webhooks sender",
        "Webhooks and calls to Jira wait. They are sent when it is back.",
    ),
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing to mend: what is wrong and since when, what it means, and the name of its page."""

    title: str
    text: str
    page: str = ""


@dataclass(frozen=True, slots=True)
class Alarms:
    """All of them. `is_deaf`: nodes seem unreachable because no reader receives their reports."""

    items: tuple[Alarm, ...] = ()
    is_deaf: bool = False


def alarms_read(watch: Mapping[str, int | None], now: datetime) -> Alarms:
    """The alarms of now: programs that stopped, and figures of the self-check that must be 0."""
    try:
        ages = dict(programs_read(now, tuple(STOPPED_AFTER)))
    except redis.RedisError:
        redis_lost = Alarm(
            "Valkey does not answer",
            "Tasks, live pages and checks wait for it. Bookings are accepted, and nothing is lost.",
        )
        return Alarms((redis_lost, *_checked(watch)))
    stopped = [name for name, age in ages.items() if age > STOPPED_AFTER[name]]
    return Alarms(
        (*(_stopped(name, ages[name]) for name in stopped), *_checked(watch)),
        is_deaf="reader" in stopped,
    )


def _stopped(name: str, age: float) -> Alarm:
    title, effect = EFFECTS[name]
    return Alarm(
        f"The {title} has not worked for {length_words(age)}",
        f"{effect} Start it again, and read its log.",
    )


def _checked(watch: Mapping[str, int | None]) -> Iterator[Alarm]:
    if watch.get("decisions_behind"):
        yield Alarm(
            "Decisions are behind",
            "A request has been waiting for a decision for "
            f"{length_words(watch['oldest_undecided_seconds'] or 0)}. Check that the solver is "
            "running and read its log.",
        )
    if failed := watch.get("failed_cycles"):
        yield Alarm(
            f"{failed} failed solver cycle{'s' if failed > 1 else ''}",
            "Earlier decisions stay in force. The log contains the snapshot's digest.",
        )
    if failed := watch.get("failed_messages"):
        yield Alarm(
            f"{failed} failed message{'s' if failed > 1 else ''}",
            "A program of the portal failed on them. Everything else is handled.",
            "ops-failed-messages",
        )


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
    """The runs on a node, the last of their ends, and what is planned there. `is_followed`: it
    follows the portal, so that the portal can still end what runs there."""

    runs: Sequence[RunHere]
    interrupted: int
    last_end: datetime | None
    planned: int
    next_start: datetime | None
    is_followed: bool
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
        is_followed=not (node.is_unreachable or node.unreachable_since or node.is_restored),
        can_be_fenced=node.state != Node.State.READY,
    )
