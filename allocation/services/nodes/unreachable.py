"""Unreachable nodes: they get no new work until they have answered again for a while.

The reader of report streams counts the time on its steady clock, so that an outage of Redis, a
restart of the reader or a clock jump does not make a node unreachable.
"""

import logging
from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.models import GpuEvent, Node
from allocation.rules.nodes.unreachable import AnswerStates, Beat
from allocation.services.record.site_events import node_event
from allocation.words.fleet import fleet_text
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

logger = logging.getLogger(__name__)


# The reader asks these each second.
_beats = Compiled(
    lambda _now, _keys: Node.objects.filter(
        link_digest__isnull=False, heartbeat_seq__gt=0
    ).values_list("id", "heartbeat_seq", "observed_generation", "published_generation")
)
_marked = Compiled(
    lambda _, keys: Node.objects.filter(id__in=keys, unreachable_since__isnull=False)
)


def signs_read() -> dict[UUID, Beat]:
    """The sign of life of each node whose agent has sent a heartbeat."""
    return {node: Beat(seq, seen, behind=seen < sent) for node, seq, seen, sent in _beats(ASKED_AT)}


def unreachable_mark(verdict: AnswerStates[UUID], now: datetime) -> None:
    """Records the changes of a verdict."""
    for node in Node.objects.filter(id__in=verdict.silent, unreachable_since=None).order_by("id"):
        _unreachable_note(node, now)
    newly = Node.objects.filter(unreachable_since__isnull=False, long_unreachable=False)
    for node in newly.filter(id__in=verdict.long_unreachable).order_by("id"):
        _partition_note(node)
    for node in _marked(now, verdict.heard) if verdict.heard else ():
        _reachable_note(node, now)


def _unreachable_note(node: Node, now: datetime) -> None:
    with transaction.atomic():
        since = node.heartbeat_at or now
        if not Node.objects.filter(id=node.id, unreachable_since=None).update(
            unreachable_since=since
        ):
            return
        GpuEvent.objects.create(
            node=node,
            kind=GpuEvent.Kind.UNREACHABLE,
            at=since,
            **GpuEvent.text_columns(fleet_text("unreachable")),
        )
        node_event("unreachable", node, fleet_text("unreachable"), now)
    logger.warning("%s does not answer", node.name)
    task_request("allocation.cycle")


def _partition_note(node: Node) -> None:
    """Marks a node as partitioned: bookings planned there soon are placed elsewhere; running ones
    continue to their end."""
    if Node.objects.filter(id=node.id, unreachable_since__isnull=False).update(
        long_unreachable=True
    ):
        logger.warning("%s has not answered for a long time", node.name)
        task_request("allocation.cycle")


def _reachable_note(node: Node, now: datetime) -> None:
    with transaction.atomic():
        row = Node.objects.filter(id=node.id, unreachable_since__isnull=False)
        if not row.update(unreachable_since=None, long_unreachable=False):
            return
        GpuEvent.objects.filter(node=node, kind=GpuEvent.Kind.UNREACHABLE, until=None).update(
            until=now
        )
        node_event("reachable", node, f"{node.name} answers again.", now)
    logger.warning("%s answers again", node.name)
    task_request("allocation.cycle")
