"""Sends the outbox: every committed message reaches every channel at least once."""

import logging
from datetime import datetime, timedelta

from django.db import connection, transaction
from redis.exceptions import RedisError

from portal.integrations.live.push import push
from portal.integrations.mail.queueing import invitations_queue
from portal.integrations.notifications.delivery import people_notify
from portal.integrations.traces import bookings_trace
from portal.integrations.webhooks.publish import events_publish, publisher_lock
from tenants.models import OutboxMessage
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled

logger = logging.getLogger(__name__)

BATCH = 200
SENT_RETENTION = timedelta(days=7)
_SENT = "UPDATE tenants_outboxmessage SET sent = %s WHERE id = ANY (%s::bigint[])"
_waiting = Compiled(
    lambda _now, _keys: (
        OutboxMessage.objects.select_for_update().filter(sent=None).order_by("id")[:BATCH]
    )
)


def outbox_relay(now: datetime) -> int:
    """Sends unsent messages in order; returns how many. Any number of relays may run: each batch
    waits for the one before, so that events are published in the order of their commits.

    Messages are marked after they are sent: after a crash in between they are sent again, and
    receivers compare versions.
    """
    sent = 0
    while batch := _relay_batch(now):
        sent += batch
        if batch < BATCH:
            break
    return sent


def outbox_sweep(now: datetime) -> int:
    """Removes messages that were sent a week ago; returns how many."""
    return OutboxMessage.objects.filter(sent__lt=now - SENT_RETENTION).delete()[0]


def _relay_batch(now: datetime) -> int:
    with transaction.atomic():
        publisher_lock()
        waiting = _waiting(now)
        if not waiting:
            return 0
        of_tenants = [message for message in waiting if message.tenant_id is not None]
        try:
            push(of_tenants)
        except RedisError as error:
            logger.warning("Live pages were not notified; will retry: %s", error)
            return 0
        # Written in the transaction of the mark: none is lost, none is written twice.
        invitations_queue(of_tenants, now)
        if people_notify(waiting, now):
            task_request("mail.send")
        events_publish(waiting, now)
        with connection.cursor() as cursor:
            cursor.execute(_SENT, [now, [message.id for message in waiting]])
    bookings_trace(of_tenants)
    return len(waiting)
