"""Telling nodes what to make true: the whole desired state, signed, whenever it has changed."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from uuid import UUID

import redis
from django.db import transaction
from django.db.models import F

from allocation import wire
from allocation.models import Node, SolverState
from allocation.services.nodes.fleet import node_key
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.publish.desired import desired_documents
from allocation.services.runs.resume import suspended_work_forget

logger = logging.getLogger(__name__)

# Nodes that are locked at a time: what they say is taken in only after that.
AT_ONCE = 64
# Two that publish the same nodes at once: the one that comes second begins again.
TRIES = 3


def publish_due(now: datetime) -> int:
    """Writes the assignment of every node whose generation was not published yet.

    Needs no outbox: whoever finds `published_generation < generation` writes the whole document.
    A server that is down loses nothing; the next call writes it. Returns how many were written.
    """
    suspended_work_forget(now)
    waiting = Node.objects.filter(
        published_generation__lt=F("generation"), link_digest__isnull=False
    )
    try:
        return _publish(waiting.values_list("id", flat=True))
    except redis.RedisError as error:
        logger.warning("Assignments were not published, to be tried again: %s", error)
        return 0


def republish_all() -> int:
    """Writes every node's assignment again, e.g. after the server has lost its data."""
    return _publish(Node.objects.filter(link_digest__isnull=False).values_list("id", flat=True))


def _publish(node_ids: Iterable[UUID]) -> int:
    ids = sorted(node_ids)
    if not ids:
        return 0
    epoch = SolverState.objects.values_list("epoch", flat=True).get(id=1)
    for at in range(0, len(ids), AT_ONCE):
        _publish_some(ids[at : at + AT_ONCE], epoch)
    return len(ids)


def _publish_some(ids: Sequence[UUID], epoch: int) -> None:
    """Locked: a slow publisher must not write an older document over a newer one, nor the state
    of one generation under the number of another.

    Locks fall with the session, which a publisher that is stopped for long loses: watched from
    before they are locked, documents that somebody else has written since are not written over.

    Raises:
        redis.WatchError: somebody else was quicker, `TRIES` times.
    """
    names = list(Node.objects.filter(id__in=ids).values_list("name", flat=True))
    keys = [wire.desired_key(name) for name in names]
    for _ in range(TRIES - 1):
        with suppress(redis.WatchError):
            _publish_watched(ids, keys, epoch)
            return
    _publish_watched(ids, keys, epoch)


def _publish_watched(ids: Sequence[UUID], keys: Sequence[str], epoch: int) -> None:
    with agents_redis().pipeline() as pipe:
        watch: Callable[..., object] = pipe.watch  # redis-py has no type for it
        watch(*keys)
        with transaction.atomic():
            nodes = list(Node.objects.select_for_update().filter(id__in=ids).order_by("id"))
            pipe.multi()
            for node, desired in zip(nodes, desired_documents(nodes, epoch), strict=True):
                signs = node.key_confirmed
                envelope = wire.seal(desired, key=node_key(node, signs), key_version=signs)
                pipe.set(wire.desired_key(node.name), envelope.to_json())
                pipe.publish(wire.wake_channel(node.name), str(node.generation))
            pipe.execute()
            Node.objects.filter(id__in=ids).update(published_generation=F("generation"))
