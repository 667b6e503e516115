"""Many messages at once. What nodes say most, heartbeats and readings, is taken from all of them
in a few statements; the rest goes one by one. The rows are the same in whatever batches it comes.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import DataError, IntegrityError, connection, transaction

from allocation import wire
from allocation.models import Node, SolverState
from allocation.rules.nodes.fencing import follows_newer
from allocation.rules.nodes.leases import lease_seconds
from allocation.services.inbox.apply import clock_notify, clock_skew_read, message_apply
from allocation.services.nodes.fleet import agent_supports, node_key
from allocation.services.nodes.leases import OUTAGE_UNTIL, lease_note, leases_grant
from allocation.services.nodes.restore_fence import restore_notify
from allocation.services.nodes.telemetry import samples_store

logger = logging.getLogger(__name__)

_KNOWN = ("name", "key_version", "key_confirmed", "agent_version")
_KEPT = (
    "heartbeat_seq",
    "telemetry_seq",
    "heartbeat_at",
    "last_seen",
    "clock_skew_seconds",
    "clock_wrong",
    "stale_dropped",
    "ahead_epoch",
    "lease_said",
    "long_lease",
    "long_lease_seq",
)
# Numbers only grow: nothing that was written after our look is taken back.
_WRITE = """
UPDATE allocation_node AS node SET heartbeat_seq = said.heartbeat_seq,
  telemetry_seq = said.telemetry_seq, heartbeat_at = said.heartbeat_at, last_seen = said.last_seen,
  clock_skew_seconds = said.clock_skew_seconds, clock_wrong = said.clock_wrong,
  stale_dropped = said.stale_dropped, ahead_epoch = said.ahead_epoch,
  lease_said = said.lease_said, long_lease = said.long_lease, long_lease_seq = said.long_lease_seq
FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::timestamptz[],
  %s::integer[], %s::boolean[], %s::bigint[], %s::bigint[], %s::integer[], %s::integer[],
  %s::bigint[]) AS said (id, heartbeat_seq, telemetry_seq, heartbeat_at, last_seen,
  clock_skew_seconds, clock_wrong, stale_dropped, ahead_epoch, lease_said, long_lease,
  long_lease_seq)
WHERE node.id = said.id AND node.heartbeat_seq <= said.heartbeat_seq
  AND node.telemetry_seq <= said.telemetry_seq
"""


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a node's stream, and how long it `waited` there for us."""

    node: str
    envelope: wire.Envelope
    waited: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class _LightMessage:
    """A heartbeat or readings, verified; `place` is where it stands in the batch."""

    place: int
    node: Node
    message: wire.Heartbeat | wire.Telemetry
    waited: timedelta


def messages_apply(said: Sequence[Said], now: datetime) -> list[str]:
    """Applies messages, each node's in their order; what became of each, as `message_apply` says.

    Killed in the middle, a part of them is applied: told again, those are stale.
    """
    waiting: dict[str, deque[int]] = {}
    for place, each in enumerate(said):
        waiting.setdefault(each.node, deque()).append(place)
    outcomes = [""] * len(said)
    while waiting:
        light = _light_messages_take(said, waiting)
        for item, outcome in zip(light, _light_messages_apply(said, light, now), strict=True):
            outcomes[item.place] = outcome
        for place in [places.popleft() for places in waiting.values() if places]:
            outcomes[place] = _one(said[place], now)
        waiting = {name: places for name, places in waiting.items() if places}
    return outcomes


def _one(said: Said, now: datetime) -> str:
    return message_apply(node_name=said.node, envelope=said.envelope, now=now, waited=said.waited)


def _light_messages_take(
    said: Sequence[Said], waiting: dict[str, deque[int]]
) -> list[_LightMessage]:
    """Takes from each node's messages those that come before its first of another kind."""
    found = []
    for node in Node.objects.filter(name__in=waiting).only(*_KNOWN):
        places = waiting[node.name]
        while places and (message := _read(node, said[places[0]].envelope)) is not None:
            place = places.popleft()
            found.append(_LightMessage(place, node, message, said[place].waited))
    return found


def _read(node: Node, envelope: wire.Envelope) -> wire.Heartbeat | wire.Telemetry | None:
    """The message if it is one of those, signed as before. Whatever needs more care is None."""
    version = node.key_confirmed
    try:
        message = wire.open_report(envelope, {version: node_key(node, version)})
    except wire.WireError:
        return None
    if not isinstance(message, wire.Heartbeat | wire.Telemetry):
        return None
    return message if message.seq or agent_supports(node, wire.LEASES_SINCE) else None


def _light_messages_apply(
    said: Sequence[Said], light: Sequence[_LightMessage], now: datetime
) -> list[str]:
    if not light:
        return []
    try:
        with transaction.atomic():
            outcomes, seconds = _taken(light, now)
    except (DataError, IntegrityError):
        # One of them is what no row can hold: it alone is refused.
        return [_one(said[item.place], now) for item in light]
    beats = {
        item.node.id: (item.node, item.message.seq, item.node.key_confirmed)
        for item, outcome in zip(light, outcomes, strict=True)
        if outcome == "applied" and isinstance(item.message, wire.Heartbeat)
    }
    leases_grant(beats.values(), seconds)
    return outcomes


def _taken(light: Sequence[_LightMessage], now: datetime) -> tuple[list[str], int]:
    """What became of each, and how long the leases are that answer them.

    Locked in one order, so that two readers do not wait for each other in a circle.
    """
    asked = {item.node.id for item in light}
    locked = Node.objects.select_for_update(of=("self",), no_key=True).filter(id__in=asked)
    # Without a statement of its own: this is what is done most.
    locked = locked.order_by("id").annotate(
        epoch=SolverState.objects.values("epoch")[:1], outage_until=OUTAGE_UNTIL
    )
    nodes = {node.id: node for node in locked.only("name", "generation", "agent_version", *_KEPT)}
    seconds = lease_seconds(next(iter(nodes.values())).outage_until if nodes else None, now)
    outcomes, readings = [], []
    for item in light:
        node = nodes[item.node.id]
        is_change = _note(node, item, node.epoch, now)
        if is_change and isinstance(item.message, wire.Heartbeat):
            lease_note(node, item.message, seconds)
        outcomes.append("applied" if is_change else "stale")
        if is_change and isinstance(item.message, wire.Telemetry):
            readings.append((node.id, item.message))
    _write(nodes.values())
    samples_store(readings, now)
    return outcomes, seconds


def _note(node: Node, item: _LightMessage, epoch: int, now: datetime) -> bool:
    """Notes a message on its node, unless one of its kind with its number or a later was heard."""
    message = item.message
    field = "heartbeat_seq" if isinstance(message, wire.Heartbeat) else "telemetry_seq"
    if message.seq <= getattr(node, field):
        node.stale_dropped += 1
        return False
    setattr(node, field, message.seq)
    node.last_seen = now
    if isinstance(message, wire.Heartbeat):
        # When it arrived: a reader that was away must not take a node for one that was answered.
        arrived = now - item.waited
        skew, wrong = clock_skew_read(node, message, arrived)
        if wrong != node.clock_wrong:
            clock_notify(node.name, skew, wrong=wrong)
        if follows_newer(message, epoch, node.generation):
            if node.ahead_epoch is None:
                restore_notify(node.name)
            node.ahead_epoch = message.epoch
        node.heartbeat_at, node.clock_skew_seconds, node.clock_wrong = arrived, skew, wrong
    return True


def _write(nodes: Iterable[Node]) -> None:
    rows: list[tuple[UUID, ...]] = [
        (node.id, *(getattr(node, field) for field in _KEPT)) for node in nodes
    ]
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, [list(column) for column in zip(*rows, strict=True)])
