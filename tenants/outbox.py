"""Messages for people and other systems: a row in the caller's transaction, sent later.

After the commit a nudge asks a worker to look; the row is the truth, the nudge only a hint, and
beat looks anyway.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

import redis
from celery import current_app
from django.conf import settings
from django.db import connection, transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from tenants.models import OutboxMessage

logger = logging.getLogger(__name__)

# A mark that nobody took away, as its task was lost, keeps others from asking for so long.
REQUEST_SECONDS = 5


def outbox_add(*, tenant_id: UUID, kind: str, payload: Mapping[str, Any], now: datetime) -> None:
    """Adds one message, e.g. `booking.started`, to be sent after the commit."""
    message = OutboxMessage(tenant_id=tenant_id, kind=kind, payload=dict(payload), created=now)
    outbox_put([message])


def outbox_put(messages: Sequence[OutboxMessage]) -> None:
    """As `outbox_add`, many at once, in their order."""
    if messages:
        OutboxMessage.objects.bulk_create(messages)
        task_request("outbox.relay")


def task_request(task: str) -> None:
    """After the commit, asks a worker to run `task` soon; many asks while one waits are one.

    The mark is removed by the task itself, before it reads (`task_request_clear`). A broker that is
    down is logged and forgotten: beat runs the task anyway.
    """
    asked = _TaskRequest(task)
    if asked not in (waiting for _, waiting, *_ in connection.run_on_commit):
        transaction.on_commit(asked)


@dataclass(frozen=True, slots=True)
class _TaskRequest:
    """A nudge to be sent: the same as any other for its task."""

    task: str

    def __call__(self) -> None:
        _send(self.task)


def task_request_clear(task: str) -> None:
    """Says that `task` is about to read: later changes need a nudge of their own."""
    try:
        _request_store().delete(_request_key(task))
    except RedisError:
        logger.warning("The cache did not answer; %s runs without coalescing.", task)


def _send(task: str) -> None:
    try:
        if _request_store().set(_request_key(task), 1, nx=True, ex=REQUEST_SECONDS):
            current_app.send_task(task, retry=False, ignore_result=True)
    except (RedisError, OperationalError):
        logger.warning("The broker did not answer; %s waits for beat.", task)


def _request_key(task: str) -> str:
    return f"nudge:{task}"


@cache
def _request_store() -> "redis.Redis":
    """Kept, with its connections: the cache of Django makes new ones in each request and task."""
    return redis.Redis.from_url(settings.CACHE_REDIS_URL, socket_timeout=2)
