"""The outbox: a message is a row in the caller's transaction, and is sent later.

After the commit a task is requested that sends it. The row is the truth and the request only a
hint: beat runs the task periodically anyway.
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

# If a requested task is lost, no other one is requested for this long.
REQUEST_SECONDS = 5


def outbox_add(*, tenant_id: UUID, kind: str, payload: Mapping[str, Any], now: datetime) -> None:
    """Adds one message, such as `booking.started`, to be sent after the commit."""
    message = OutboxMessage(tenant_id=tenant_id, kind=kind, payload=dict(payload), created=now)
    outbox_put([message])


def outbox_put(messages: Sequence[OutboxMessage]) -> None:
    """Adds many messages at once, in order."""
    if messages:
        OutboxMessage.objects.bulk_create(messages)
        task_request("outbox.relay")


def task_request(task: str) -> None:
    """Makes a worker run `task` soon after the commit; requests are merged until it starts.

    The task calls `task_request_clear` before it reads, so that later changes request it again. If
    the broker is down, this is logged: beat runs the task anyway.
    """
    asked = _TaskRequest(task)
    if asked not in (waiting for _, waiting, *_ in connection.run_on_commit):
        transaction.on_commit(asked)


@dataclass(frozen=True, slots=True)
class _TaskRequest:
    """A callback for the commit; equal for equal tasks."""

    task: str

    def __call__(self) -> None:
        _send(self.task)


def task_request_clear(task: str) -> None:
    """Marks that `task` is about to read: later changes have to request it again."""
    try:
        _request_store().delete(_request_key(task))
    except RedisError:
        logger.warning("The cache did not answer; requests of %s are not merged.", task)


def _send(task: str) -> None:
    try:
        if _request_store().set(_request_key(task), 1, nx=True, ex=REQUEST_SECONDS):
            current_app.send_task(task, retry=False, ignore_result=True)
    except (RedisError, OperationalError):
        logger.warning("The broker did not answer; beat will run %s.", task)


def _request_key(task: str) -> str:
    return f"nudge:{task}"


@cache
def _request_store() -> "redis.Redis":
    """Cached with its connections; Django's cache opens new ones in each request and task."""
    return redis.Redis.from_url(settings.CACHE_REDIS_URL, socket_timeout=2)
