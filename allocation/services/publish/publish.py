"""Publication of desired states: the whole signed document whenever it has changed."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from uuid import UUID

import redis
from django.db import transaction
from django.db.models import F, QuerySet

import wire
from allocation.models import Node
from allocation.services.nodes.fleet import node_key
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.nodes.restores import epoch_now
from allocation.services.publish.desired import desired_documents
from allocation.services.runs.resume import suspended_work_forget
from tenants.failures import FailureLog, failure_of

logger = logging.getLogger(__name__)

QUEUE = "documents of nodes"
# Nodes locked at a time; their messages wait meanwhile.
AT_ONCE = 64
# Attempts when another process publishes the same nodes.
TRIES = 3


def nodes_unpublished() -> QuerySet[Node]:
    """Returns the nodes that have not been sent what they have to do now."""
    return Node.objects.filter(published_generation__lt=F("generation"), link_digest__isnull=False)


def publish_due(now: datetime) -> int:
    """Writes the document of every node whose generation is not published yet; returns how many.

    Needs no outbox: `published_generation < generation` marks the work, and a call that fails is
    repeated by the next.
    """
    suspended_work_forget(now)
    try:
        return _publish(nodes_unpublished().values_list("id", flat=True), now)
    except redis.RedisError as error:
        logger.warning("Documents were not published, will be retried: %s", error)
        return 0


def republish_all(now: datetime) -> int:
    """Writes every node's document again, e.g. after the server has lost its data."""
    nodes = Node.objects.filter(link_digest__isnull=False)
    return _publish(nodes.values_list("id", flat=True), now)


def _publish(node_ids: Iterable[UUID], now: datetime) -> int:
    """Writes the documents of nodes; those of a node whose document fails are left out."""
    ids = sorted(node_ids)
    if not ids:
        return 0
    epoch = epoch_now()
    for at in range(0, len(ids), AT_ONCE):
        some = ids[at : at + AT_ONCE]
        error = failure_of(partial(_publish_some, some, epoch))
        if error is not None:
            logger.warning("Documents are published one by one: %s", type(error).__name__)
            failures = FailureLog(QUEUE, now, parked_after=None)
            for node_id in some:
                failures.handle(node_id, partial(_publish_some, [node_id], epoch))
    return len(ids)


def _publish_some(ids: Sequence[UUID], epoch: int) -> None:
    """Writes the documents of locked nodes: a slow publisher must not overwrite a newer document,
    nor write the state of one generation under the number of another.

    A publisher that is suspended for long loses its session and with it the locks. The keys are
    therefore watched from before the locks, so that documents written since are not overwritten.

    Raises:
        redis.WatchError: another process was quicker, `TRIES` times.
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
