"""Many messages at once: heartbeats and telemetry together, other messages one by one.

The result does not depend on how messages are divided into batches.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import OperationalError
from django.db.models import F

import wire
from allocation.models import Node
from allocation.services.inbox.apply import message_apply
from allocation.services.inbox.heartbeats import Received, received_store
from allocation.services.nodes.fleet import node_key
from tenants.failures import FailureLog, failure_of
from tenants.platform.database.compiled import Compiled

QUEUE = "reports of nodes"
_NODE_COLUMNS = ("name", "key_version", "key_confirmed", "agent_version")
_nodes = Compiled(lambda _now, names: Node.objects.filter(name__in=names).only(*_NODE_COLUMNS), keys="text")


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message of a node's stream, and how long it `waited` there."""

    node: str
    envelope: wire.Envelope
    waited: timedelta = timedelta(0)


def messages_apply(messages: Sequence[StreamMessage], now: datetime) -> list[str]:
    """Applies messages, each node's in order; returns the outcome of each as `message_apply` does.

    If it is killed, a part of them is applied: read again, those are stale.
    """
    waiting: dict[str, deque[int]] = {}
    for place, each in enumerate(messages):
        waiting.setdefault(each.node, deque()).append(place)
    outcomes = [""] * len(messages)
    while waiting:
        for place, outcome in _frequent_apply(messages, waiting, now):
            outcomes[place] = outcome
        for place in [places.popleft() for places in waiting.values() if places]:
            outcomes[place] = _one(messages[place], now)
        waiting = {name: places for name, places in waiting.items() if places}
    return outcomes


def _one(each: StreamMessage, now: datetime) -> str:
    """Applies a message. One on which we fail is dropped and kept as failed: a node's next report
    says the same again, and nobody else's may wait for it."""
    said: list[str] = []
    error = failure_of(
        lambda: said.append(
            message_apply(node_name=each.node, envelope=each.envelope, now=now, waited=each.waited)
        ),
        raised=(OperationalError,),
    )
    if error is None:
        return said[0]
    FailureLog(QUEUE, now, parked_after=1).note(each.node, error)
    Node.objects.filter(name=each.node).update(refused=F("refused") + 1)
    return "refused"


def _frequent_apply(
    messages: Sequence[StreamMessage], waiting: dict[str, deque[int]], now: datetime
) -> Iterator[tuple[int, str]]:
    """Applies each node's heartbeats and telemetry up to its first message of another kind.

    Returns the place of each with its outcome.
    """
    taken: dict[int, Received] = {}
    for node in _nodes(now, waiting):
        places = waiting[node.name]
        while places and (found := _frequent(node, messages[places[0]])) is not None:
            taken[places.popleft()] = found
    done: list[str] = []
    if taken and failure_of(
        lambda: done.extend(received_store(list(taken.values()), now)), raised=(OperationalError,)
    ):
        # One of them does not fit its row: only that one is refused.
        done = [_one(messages[place], now) for place in taken]
    return zip(taken, done, strict=True)


def _frequent(node: Node, each: StreamMessage) -> Received | None:
    """A heartbeat or telemetry message with the confirmed key; None for any other message."""
    version = node.key_confirmed
    try:
        message = wire.open_report(each.envelope, {version: node_key(node, version)})
    except wire.WireError:
        return None
    if not isinstance(message, wire.Heartbeat | wire.Telemetry):
        return None
    return Received(node, message, version, each.waited)
