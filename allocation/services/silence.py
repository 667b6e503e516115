"""Nodes that do not answer: nothing new is placed there until they have answered for a while.

Counted by the process that reads what nodes say, on its steady clock: what it can't hear because
Redis is away, or because it has just begun, is no silence of theirs, and no jump of our clock is.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.models import GpuEvent, Node
from allocation.rules.node_policy import NodePolicy
from tenants.outbox import nudge

logger = logging.getLogger(__name__)

# Heartbeats come every five seconds: with a longer gap a node was not heard on end.
GAP_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Sign:
    """A node's newest heartbeat, the newest word of ours that it acts on, and whether there is a
    newer one: who speaks and does not hear must get nothing new either."""

    seq: int
    observed: int
    behind: bool

    def is_answer(self, before: "Sign") -> bool:
        """Whether it shows that the node both speaks and hears."""
        return self.seq != before.seq and (not self.behind or self.observed != before.observed)


@dataclass(frozen=True, slots=True)
class _Heard:
    """The last sign that was an answer, when we saw it, and since when they come without a gap."""

    sign: Sign
    at: float
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Nodes that do not answer, or have not for long, and those that have for a while."""

    silent: frozenset[UUID]
    long_silent: frozenset[UUID]
    heard: frozenset[UUID]


class SilenceWatch:
    """Of each node. One that begins knows of no silence yet, and of nobody's being heard."""

    def __init__(self) -> None:
        self._nodes: dict[UUID, _Heard] = {}

    def turn(self, signs: Mapping[UUID, Sign], steady_now: float, policy: NodePolicy) -> Verdict:
        """Of the nodes with their newest signs."""
        self._nodes = {node: each for node, each in self._nodes.items() if node in signs}
        for node, sign in signs.items():
            known = self._nodes.setdefault(node, _Heard(sign, steady_now))
            if sign.is_answer(known.sign):
                is_gap = known.since is None or steady_now - known.at > GAP_SECONDS
                since = steady_now if is_gap else known.since
                self._nodes[node] = _Heard(sign, steady_now, since)
        heard = (
            node
            for node, each in self._nodes.items()
            if each.since is not None
            and steady_now - each.at <= GAP_SECONDS
            and steady_now - each.since >= policy.heard_again
        )
        return Verdict(
            silent=self._unheard(steady_now - policy.silent_after),
            long_silent=self._unheard(steady_now - policy.silent_limit),
            heard=frozenset(heard),
        )

    def _unheard(self, since: float) -> frozenset[UUID]:
        return frozenset(node for node, each in self._nodes.items() if each.at < since)


def signs_read() -> dict[UUID, Sign]:
    """Of each node whose agent has said something."""
    rows = Node.objects.filter(link_digest__isnull=False, heartbeat_seq__gt=0).values_list(
        "id", "heartbeat_seq", "observed_generation", "published_generation"
    )
    return {node: Sign(seq, seen, behind=seen < told) for node, seq, seen, told in rows}


def silence_mark(verdict: Verdict, now: datetime) -> None:
    """Writes down what is new of it."""
    for node in Node.objects.filter(id__in=verdict.silent, silent_since=None).order_by("id"):
        _fell_silent(node, now)
    newly = Node.objects.filter(silent_since__isnull=False, long_silent=False)
    for node in newly.filter(id__in=verdict.long_silent).order_by("id"):
        _gives_up(node)
    for node in Node.objects.filter(id__in=verdict.heard, silent_since__isnull=False):
        _is_heard(node, now)


def _fell_silent(node: Node, now: datetime) -> None:
    with transaction.atomic():
        since = node.heartbeat_at or now
        if not Node.objects.filter(id=node.id, silent_since=None).update(silent_since=since):
            return
        GpuEvent.objects.create(
            node=node, kind=GpuEvent.Kind.SILENT, at=since,
            sentence="It does not answer: nothing new is placed there.",
        )  # fmt: skip
    logger.warning("%s does not answer", node.name)
    nudge("allocation.cycle")


def _gives_up(node: Node) -> None:
    """What is planned there soon is placed elsewhere; what runs there goes on to its end."""
    if Node.objects.filter(id=node.id, silent_since__isnull=False).update(long_silent=True):
        logger.warning("%s has not answered for long", node.name)
        nudge("allocation.cycle")


def _is_heard(node: Node, now: datetime) -> None:
    with transaction.atomic():
        row = Node.objects.filter(id=node.id, silent_since__isnull=False)
        if not row.update(silent_since=None, long_silent=False):
            return
        GpuEvent.objects.filter(node=node, kind=GpuEvent.Kind.SILENT, until=None).update(until=now)
    logger.warning("%s answers again", node.name)
    nudge("allocation.cycle")
