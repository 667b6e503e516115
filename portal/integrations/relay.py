"""Sends the outbox: every committed message reaches every channel at least once."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from django.db import connection, transaction
from redis.exceptions import RedisError

from portal.integrations.live.push import push
from portal.integrations.mail.queueing import invitations_queue
from portal.integrations.notifications.delivery import people_notify
from portal.integrations.traces import bookings_trace
from portal.integrations.webhooks.publish import events_publish, publisher_lock
from tenants.failures import FailureLog
from tenants.models import OutboxMessage
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled

logger = logging.getLogger(__name__)

BATCH = 200
SENT_RETENTION = timedelta(days=7)
_SENT = "UPDATE tenants_outboxmessage SET sent = %s WHERE id = ANY (%s::bigint[])"
QUEUE = "outbox"
# The keys are of messages that are held back.
_waiting = Compiled(
    lambda _now, keys: (
        OutboxMessage.objects.select_for_update()
        .filter(sent=None)
        .exclude(id__in=keys)
        .order_by("id")[:BATCH]
    ),
    keys="bigint",
)
_alone = Compiled(
    lambda _now, keys: OutboxMessage.objects.select_for_update().filter(sent=None, id__in=keys),
    keys="bigint",
)


def outbox_relay(now: datetime) -> int:
    """Sends unsent messages in order; returns how many. Any number of relays may run: each batch
    waits for the one before, so that events are published in the order of their commits.

    Messages are marked after they are sent: after a crash in between they are sent again, and
    receivers compare versions. A message that fails is set apart, and those after it are sent.
    """
    failures = FailureLog(QUEUE, now)
    sent = 0
    while batch := _relay_batch(failures, now):
        sent += batch
        if batch < BATCH:
            break
    return sent


def outbox_sweep(now: datetime) -> int:
    """Removes messages that were sent a week ago; returns how many."""
    return OutboxMessage.objects.filter(sent__lt=now - SENT_RETENTION).delete()[0]


def _relay_batch(failures: FailureLog, now: datetime) -> int:
    """Sends a batch; message by message if it fails as a whole. Returns how many were looked at."""
    held = [int(key) for key in failures.held_back()]
    sent: list[OutboxMessage] = []
    try:
        error = failures.attempt(lambda: sent.extend(_send(partial(_waiting, now, held), now)))
        if error is None:
            failures.clear(*(message.id for message in sent))
            return len(sent)
        logger.warning("The outbox is sent one by one: %s", type(error).__name__)
        rows = OutboxMessage.objects.filter(sent=None).exclude(id__in=held).order_by("id")
        looked_at = list(rows.values_list("id", "tenant_id")[:BATCH])
        for key, tenant_id in looked_at:
            act = partial(_send, partial(_alone, now, [key]), now)
            failures.handle(key, act, tenant_id=tenant_id)
    except RedisError as lost:
        logger.warning("Live pages were not notified; will retry: %s", lost)
        return 0
    return len(looked_at)


def _send(read: Callable[[], list[OutboxMessage]], now: datetime) -> list[OutboxMessage]:
    """Sends the messages that are read, all or none, and marks them. Raises RedisError."""
    with transaction.atomic():
        publisher_lock()
        waiting = read()
        if not waiting:
            return []
        of_tenants = [message for message in waiting if message.tenant_id is not None]
        push(of_tenants)
        # Written in the transaction of the mark: none is lost, none is written twice.
        invitations_queue(of_tenants, now)
        if people_notify(waiting, now):
            task_request("mail.send")
        events_publish(waiting, now)
        with connection.cursor() as cursor:
            cursor.execute(_SENT, [now, [message.id for message in waiting]])
    bookings_trace(of_tenants)
    return waiting
