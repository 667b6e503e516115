"""Heartbeats and telemetry, the most frequent messages, stored for many nodes in a few statements.

A single message is a batch of one.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction

import wire
from allocation.models import GpuEvent, Node, SolverState
from allocation.rules.nodes.fencing import follows_newer
from allocation.rules.nodes.leases import lease_seconds
from allocation.rules.nodes.plausibility import clock_is_wrong
from allocation.rules.nodes.unreachable import AnswerStates, Beat
from allocation.services.nodes.fleet import agent_supports, key_confirm
from allocation.services.nodes.leases import OUTAGE_UNTIL, lease_note, leases_grant
from allocation.services.nodes.restores import epoch_now, restore_notify
from allocation.services.nodes.telemetry import samples_store
from allocation.services.record.site_events import node_event
from allocation.words.fleet import fleet_text
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

logger = logging.getLogger(__name__)

_MOST_SKEW = 2_000_000_000
_COLUMNS = (
    "heartbeat_seq",
    "telemetry_seq",
    "heartbeat_at",
    "last_seen",
    "clock_skew_seconds",
    "clock_wrong",
    "stale_dropped",
    "ahead_epoch",
    "reported_lease_seconds",
    "outage_lease_seconds",
    "outage_lease_seq",
)
# Sequence numbers only grow: values that were written since our read stay.
_WRITE = """
UPDATE allocation_node AS node SET heartbeat_seq = new.heartbeat_seq,
  telemetry_seq = new.telemetry_seq, heartbeat_at = new.heartbeat_at, last_seen = new.last_seen,
  clock_skew_seconds = new.clock_skew_seconds, clock_wrong = new.clock_wrong,
  stale_dropped = new.stale_dropped, ahead_epoch = new.ahead_epoch,
  reported_lease_seconds = new.reported_lease_seconds,
  outage_lease_seconds = new.outage_lease_seconds, outage_lease_seq = new.outage_lease_seq
FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::timestamptz[],
  %s::integer[], %s::boolean[], %s::bigint[], %s::bigint[], %s::integer[], %s::integer[],
  %s::bigint[]) AS new (id, heartbeat_seq, telemetry_seq, heartbeat_at, last_seen,
  clock_skew_seconds, clock_wrong, stale_dropped, ahead_epoch,
  reported_lease_seconds, outage_lease_seconds, outage_lease_seq)
WHERE node.id = new.id AND node.heartbeat_seq <= new.heartbeat_seq
  AND node.telemetry_seq <= new.telemetry_seq
"""
# The most frequent transaction: epoch and outage come with the nodes, which are locked in one
# order, so that two readers can't deadlock.
_locked = Compiled(
    lambda _now, nodes: (
        Node.objects.select_for_update(of=("self",), no_key=True)
        .filter(id__in=nodes)
        .order_by("id")
        .annotate(epoch=SolverState.objects.values("epoch")[:1], outage_until=OUTAGE_UNTIL)
        .only("name", "generation", "agent_version", *_COLUMNS)
    )
)
# The reader asks these each second.
_beats = Compiled(
    lambda _now, _keys: Node.objects.filter(link_digest__isnull=False, heartbeat_seq__gt=0).values_list(
        "id", "heartbeat_seq", "observed_generation", "published_generation"
    )
)
_newly_unreachable = Compiled(
    lambda _, keys: Node.objects.filter(id__in=keys, unreachable_since=None).order_by("id")
)
_newly_long_unreachable = Compiled(
    lambda _, keys: Node.objects.filter(
        id__in=keys, unreachable_since__isnull=False, long_unreachable=False
    ).order_by("id")
)
_marked = Compiled(lambda _, keys: Node.objects.filter(id__in=keys, unreachable_since__isnull=False))


@dataclass(frozen=True, slots=True)
class Received:
    """A verified heartbeat or telemetry message, and how long it `waited` in its stream."""

    node: Node
    message: wire.Heartbeat | wire.Telemetry
    key_version: int
    waited: timedelta


def received_store(received: Sequence[Received], now: datetime) -> list[str]:
    """Stores messages in one transaction, then grants leases. Returns applied or stale for each."""
    with transaction.atomic():
        news, seconds = _store(received, now)
        for item, is_change in zip(received, news, strict=True):
            if is_change and item.key_version > item.node.key_confirmed:
                key_confirm(item.node, item.key_version)
    heartbeats = {
        item.node.id: (item.node, item.message.seq, item.key_version)
        for item, is_change in zip(received, news, strict=True)
        if is_change and isinstance(item.message, wire.Heartbeat)
    }
    leases_grant(heartbeats.values(), seconds)
    return ["applied" if is_change else "stale" for is_change in news]


def _store(received: Sequence[Received], now: datetime) -> tuple[list[bool], int]:
    """Whether each message was news, and the seconds of the leases that answer them."""
    nodes = {node.id: node for node in _locked(now, {item.node.id for item in received})}
    seconds = lease_seconds(next(iter(nodes.values())).outage_until if nodes else None, now)
    news, readings = [], []
    for item in received:
        node = nodes[item.node.id]
        is_change = _note(node, item, node.epoch, now)
        if is_change and isinstance(item.message, wire.Heartbeat):
            lease_note(node, item.message, seconds)
        if is_change and isinstance(item.message, wire.Telemetry):
            readings.append((node.id, item.message))
        news.append(is_change)
    _write(nodes.values())
    samples_store(readings, now)
    return news, seconds


def _note(node: Node, item: Received, epoch: int, now: datetime) -> bool:
    """Updates the node by a message; False if its number is not newer than the last of its kind.

    Telemetry of agents that are too old to number it counts as new.
    """
    message = item.message
    field = "heartbeat_seq" if isinstance(message, wire.Heartbeat) else "telemetry_seq"
    last = getattr(node, field)
    is_numbered = message.seq > 0 or agent_supports(node, wire.LEASES_SINCE)
    if message.seq <= last and (is_numbered or isinstance(message, wire.Heartbeat)):
        node.stale_dropped += 1
        return False
    setattr(node, field, max(last, message.seq))
    node.last_seen = now
    if isinstance(message, wire.Heartbeat):
        _heartbeat_note(node, message, now - item.waited, epoch)
    return True


def _heartbeat_note(node: Node, heartbeat: wire.Heartbeat, arrived: datetime, epoch: int) -> None:
    """Updates the node by a heartbeat as of its arrival: the reader may read it much later."""
    skew = heartbeat.sent_at - int(arrived.timestamp())
    wrong = clock_is_wrong(skew=skew, before=node.clock_skew_seconds, was_wrong=node.clock_wrong)
    skew = max(-_MOST_SKEW, min(skew, _MOST_SKEW))
    if wrong != node.clock_wrong:
        # The solver places nothing on a node whose clock is wrong.
        logger.warning("The clock of %s is %s: %d s", node.name, "wrong" if wrong else "right", skew)
        task_request("allocation.cycle")
    # While this waited for the node's lock the epoch may have been raised: it is read again.
    if follows_newer(heartbeat, epoch, node.generation) and follows_newer(
        heartbeat, epoch_now(), node.generation
    ):
        if node.ahead_epoch is None:
            restore_notify(node.name)
        node.ahead_epoch = heartbeat.epoch
    node.heartbeat_at, node.clock_skew_seconds, node.clock_wrong = arrived, skew, wrong


def _write(nodes: Iterable[Node]) -> None:
    rows: list[tuple[UUID, ...]] = [
        (node.id, *(getattr(node, column) for column in _COLUMNS)) for node in nodes
    ]
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, [list(column) for column in zip(*rows, strict=True)])


def signs_read() -> dict[UUID, Beat]:
    """The sign of life of each node whose agent has sent a heartbeat."""
    return {node: Beat(seq, seen, behind=seen < sent) for node, seq, seen, sent in _beats(ASKED_AT)}


def unreachable_mark(verdict: AnswerStates[UUID], now: datetime) -> None:
    """Records the changes of a verdict."""
    for node in _newly_unreachable(now, verdict.unreachable) if verdict.unreachable else ():
        _unreachable_note(node, now)
    long = verdict.long_unreachable
    for node in _newly_long_unreachable(now, long) if long else ():
        _long_unreachable_note(node)
    for node in _marked(now, verdict.reachable) if verdict.reachable else ():
        _reachable_note(node, now)


def _unreachable_note(node: Node, now: datetime) -> None:
    with transaction.atomic():
        since = node.heartbeat_at or now
        if not Node.objects.filter(id=node.id, unreachable_since=None).update(unreachable_since=since):
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


def _long_unreachable_note(node: Node) -> None:
    """Marks a node as unreachable for long: bookings planned there soon are placed elsewhere;
    running ones continue to their end."""
    if Node.objects.filter(id=node.id, unreachable_since__isnull=False).update(long_unreachable=True):
        logger.warning("%s has not answered for a long time", node.name)
        task_request("allocation.cycle")


def _reachable_note(node: Node, now: datetime) -> None:
    with transaction.atomic():
        row = Node.objects.filter(id=node.id, unreachable_since__isnull=False)
        if not row.update(unreachable_since=None, long_unreachable=False):
            return
        GpuEvent.objects.filter(node=node, kind=GpuEvent.Kind.UNREACHABLE, until=None).update(until=now)
        node_event("reachable", node, f"{node.name} answers again.", now)
    logger.warning("%s answers again", node.name)
    task_request("allocation.cycle")
