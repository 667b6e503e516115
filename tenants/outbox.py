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
from tenants.platform.rows import rows_write
from tenants.platform.stores.redis_servers import redis_client

logger = logging.getLogger(__name__)

# If a requested task is lost, no other one is requested for this long.
REQUEST_SECONDS = 5


def outbox_add(*, tenant_id: UUID | None, kind: str, payload: Mapping[str, Any], now: datetime) -> None:
    """Adds one message, such as `booking.started`, to be sent after the commit.

    Without a tenant it is about the platform, and goes to the operators.
    """
    message = OutboxMessage(tenant_id=tenant_id, kind=kind, payload=dict(payload), created=now)
    outbox_put([message])


def outbox_put(messages: Sequence[OutboxMessage]) -> None:
    """Adds many messages at once, in order. Their keys are not read."""
    if messages:
        rows_write(messages)
        task_request("outbox.relay")


def task_request(task: str) -> None:
    """Makes a worker run `task` soon after the commit; requests are merged until it starts.

    The task calls `task_request_clear` before it reads, so that later changes request it again. If
    the broker is down, this is logged: beat runs the task anyway.
    """
    waiting = (each for _, each, *_ in connection.run_on_commit if isinstance(each, _TaskRequests))
    asked = next(waiting, None)
    if asked is not None:
        asked.tasks[task] = None
    else:
        transaction.on_commit(_TaskRequests({task: None}))


@dataclass(frozen=True, slots=True)
class _TaskRequests:
    """A callback for the commit, with the tasks in the order in which they were requested."""

    tasks: dict[str, None]

    def __call__(self) -> None:
        _send(list(self.tasks))


def task_request_clear(task: str) -> None:
    """Marks that `task` is about to read: later changes have to request it again."""
    try:
        _request_store().delete(_request_key(task))
    except RedisError:
        logger.warning("The cache did not answer; requests of %s are not merged.", task)


def _send(tasks: Sequence[str]) -> None:
    try:
        with _request_store().pipeline(transaction=False) as pipe:
            for task in tasks:
                pipe.set(_request_key(task), 1, nx=True, ex=REQUEST_SECONDS)
            are_first = pipe.execute()
        for task, is_first in zip(tasks, are_first, strict=True):
            if is_first:
                current_app.send_task(task, retry=False, ignore_result=True)
    except (RedisError, OperationalError):
        logger.warning("The broker did not answer; beat will run %s.", ", ".join(tasks))


def _request_key(task: str) -> str:
    return f"nudge:{task}"


@cache
def _request_store() -> "redis.Redis":
    """Cached with its connections; Django's cache opens new ones in each request and task."""
    return redis_client(settings.CACHE_REDIS_URL, socket_timeout=2)
