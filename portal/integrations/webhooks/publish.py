"""Publishes committed messages as events for programs, and queues their deliveries."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from allocation.features.jira.calls import calls_of_events
from allocation.models import BookingEvent
from tenants.models import OutboxMessage, PublishedEvent, Webhook, WebhookDelivery
from tenants.platform.database.compiled import Compiled
from tenants.platform.rows import rows_insert
from tenants.rules.event_types import EVENT_TYPES, SITE_GROUPS, event_type, is_wanted

RETENTION = timedelta(days=30)
# Messages about these are events as they are; all others are about bookings.
PLAIN = ("budget.", "dispute.")
# Any number: it names the lock that every relay takes.
_LOCK = 6_800_001
# The lock keeps a webhook from being deleted before its deliveries are committed.
_WEBHOOKS = """
SELECT * FROM tenants_webhook
WHERE (tenant_id = ANY (%s) OR tenant_id IS NULL AND %s) AND disabled_at IS NULL
  AND (made_with_id IS NULL OR portal_token_lives(made_with_id, %s))
ORDER BY id FOR KEY SHARE
"""


# Only what an event shows: a booking has a hundred columns.
_events = Compiled(
    lambda _, keys: (
        BookingEvent.objects.filter(id__in=keys)
        .select_related("booking__project", "booking__owner")
        .only(
            "tenant",
            "at",
            "state",
            "sentence",
            "detail",
            "booking__number",
            "booking__array_index",
            "booking__name",
            "booking__labels",
            "booking__external_ref",
            "booking__tier",
            "booking__project__slug",
            "booking__owner__username",
        )
    ),
    keys="bigint",
)


def publisher_lock() -> None:
    """Waits until no other relay publishes, until the end of the transaction.

    Ids of events are then in the order of the commits, so a reader that continues after an id
    misses none, and a booking's messages are queued in order.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(1, %s)", [_LOCK])


def events_publish(messages: Iterable[OutboxMessage], now: datetime) -> int:
    """Publishes the messages that programs can receive, in order; returns how many.

    Call it after `publisher_lock`, in the transaction that marks the messages as sent.
    """
    # Of what is about the platform, its own webhooks get the events of the site.
    messages = [each for each in messages if each.tenant_id or each.kind.startswith(SITE_GROUPS)]
    prices = [message for message in messages if message.kind.startswith("price_book.")]
    plain = [message for message in messages if message.kind.startswith(PLAIN)]
    of_site = [message for message in messages if message.kind.startswith(SITE_GROUPS)]
    wanted = {
        message.payload["event"]: (kind, message.payload["version"])
        for message in messages
        if (kind := event_type(message.kind)) is not None and "event" in message.payload
    }
    if not (wanted or plain or prices or of_site):
        return 0
    found = {row.id: row for row in (_events(now, wanted.keys()) if wanted else ())}
    events = [
        *(_event(found[key], *facts) for key, facts in wanted.items() if key in found),
        *(_plain_event(message) for message in plain),
        *(_prices_event(message) for message in prices),
        *(_site_event(message) for message in of_site),
    ]
    rows_insert(events)
    _queue(events, now)
    return len(events)


def events_sweep(now: datetime) -> int:
    """Removes events and deliveries after a month; returns how many."""
    old = now - RETENTION
    WebhookDelivery.objects.filter(created__lt=old).exclude(state=WebhookDelivery.State.PENDING).delete()
    kept = WebhookDelivery.objects.filter(event__at__lt=old).values("event")
    return PublishedEvent.objects.filter(at__lt=old).exclude(id__in=kept).delete()[0]


def _event(row: BookingEvent, kind: str, version: int) -> PublishedEvent:
    booking = row.booking
    return PublishedEvent(
        tenant_id=row.tenant_id,
        project_id=booking.project_id,
        subject=booking.id,
        type=kind,
        at=row.at,
        data={
            "booking": {
                "id": f"bk_{booking.id.hex}",
                "number": booking.label,
                "name": booking.name,
                "labels": booking.labels,
                "external_ref": booking.external_ref,
                "project": booking.project.slug,
                "owner": booking.owner.username,
                "tier": booking.tier_id,
                "state": row.state,
                "version": version,
            },
            "message": row.text,
            "detail": _detail(row.detail),
        },
    )


def _plain_event(message: OutboxMessage) -> PublishedEvent:
    """Only budgets of projects and campaigns, and disputes of projects, may be seen by all members
    of the project."""
    subject, said = message.kind.partition(".")[0], message.payload
    is_shared = said.get("level", "project") in ("project", "campaign")
    hidden = ("people", "author")
    return PublishedEvent(
        tenant_id=message.owner,
        project_id=said["project"] if is_shared else None,
        subject=said[subject],
        type=message.kind,
        at=message.created,
        data={
            subject: {name: value for name, value in said.items() if name not in hidden},
            "message": EVENT_TYPES[message.kind],
            "detail": {},
        },
    )


def _prices_event(message: OutboxMessage) -> PublishedEvent:
    """An event of the whole organisation, about itself: a version of prices is no tenant's own."""
    return PublishedEvent(
        tenant_id=message.owner,
        project_id=None,
        subject=message.owner,
        type=message.kind,
        at=message.created,
        data={
            "price_book": message.payload,
            "message": EVENT_TYPES[message.kind],
            "detail": {},
        },
    )


def _site_event(message: OutboxMessage) -> PublishedEvent:
    return PublishedEvent(
        tenant_id=message.tenant_id,
        project_id=None,
        subject=message.payload["subject"],
        type=message.kind,
        at=message.created,
        data={**message.payload["data"], "message": message.payload["message"], "detail": {}},
    )


def _detail(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name != "text"}


def _queue(events: Sequence[PublishedEvent], now: datetime) -> None:
    webhooks: defaultdict[UUID | None, list[Webhook]] = defaultdict(list)
    owners = {event.tenant_id for event in events}
    for webhook in Webhook.objects.raw(_WEBHOOKS, [list(owners - {None}), None in owners, now]):
        webhooks[webhook.tenant_id].append(webhook)
    queued = [
        WebhookDelivery(
            tenant_id=event.tenant_id,
            webhook=webhook,
            event=event,
            key=event.key,
            type=event.type,
            subject=event.subject,
            created=now,
            due=now,
        )
        for event in events
        for webhook in webhooks[event.tenant_id]
        if _is_for(webhook, event)
    ]
    for tenant_id, rows in webhooks.items():
        for each in rows:
            if each.kind == Webhook.Kind.JIRA:
                own = [event for event in events if event.tenant_id == tenant_id]
                queued += calls_of_events(each, own, now)
    WebhookDelivery.objects.bulk_create(queued)


def _is_for(webhook: Webhook, event: PublishedEvent) -> bool:
    labels = event.data.get("booking", {}).get("labels", {})
    return (
        webhook.kind == Webhook.Kind.WEBHOOK
        and webhook.project_id in (None, event.project_id)
        and is_wanted(webhook.events, event.type)
        and webhook.labels.items() <= labels.items()
    )
