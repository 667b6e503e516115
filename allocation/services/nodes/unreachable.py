"""Nodes that do not answer: nothing new is placed there until they have answered for a while.

Counted by the process that reads what nodes say, on its steady clock: what it can't hear because
Redis is away, or because it has just begun, is no silence of theirs, and no jump of our clock is.
"""

import logging
from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.models import GpuEvent, Node
from allocation.rules.nodes.unreachable import AnswerStates, Beat
from tenants.outbox import task_request

logger = logging.getLogger(__name__)


def signs_read() -> dict[UUID, Beat]:
    """Of each node whose agent has said something."""
    rows = Node.objects.filter(link_digest__isnull=False, heartbeat_seq__gt=0).values_list(
        "id", "heartbeat_seq", "observed_generation", "published_generation"
    )
    return {node: Beat(seq, seen, behind=seen < told) for node, seq, seen, told in rows}


def unreachable_mark(verdict: AnswerStates[UUID], now: datetime) -> None:
    """Writes down what is new of it."""
    for node in Node.objects.filter(id__in=verdict.silent, unreachable_since=None).order_by("id"):
        _unreachable_note(node, now)
    newly = Node.objects.filter(unreachable_since__isnull=False, long_unreachable=False)
    for node in newly.filter(id__in=verdict.long_unreachable).order_by("id"):
        _partition_note(node)
    for node in Node.objects.filter(id__in=verdict.heard, unreachable_since__isnull=False):
        _reachable_note(node, now)


def _unreachable_note(node: Node, now: datetime) -> None:
    with transaction.atomic():
        since = node.heartbeat_at or now
        if not Node.objects.filter(id=node.id, unreachable_since=None).update(
            unreachable_since=since
        ):
            return
        GpuEvent.objects.create(
            node=node, kind=GpuEvent.Kind.SILENT, at=since,
            sentence="It does not answer: nothing new is placed there.",
        )  # fmt: skip
    logger.warning("%s does not answer", node.name)
    task_request("allocation.cycle")


def _partition_note(node: Node) -> None:
    """What is planned there soon is placed elsewhere; what runs there goes on to its end."""
    if Node.objects.filter(id=node.id, unreachable_since__isnull=False).update(
        long_unreachable=True
    ):
        logger.warning("%s has not answered for long", node.name)
        task_request("allocation.cycle")


def _reachable_note(node: Node, now: datetime) -> None:
    with transaction.atomic():
        row = Node.objects.filter(id=node.id, unreachable_since__isnull=False)
        if not row.update(unreachable_since=None, long_unreachable=False):
            return
        GpuEvent.objects.filter(node=node, kind=GpuEvent.Kind.SILENT, until=None).update(until=now)
    logger.warning("%s answers again", node.name)
    task_request("allocation.cycle")
