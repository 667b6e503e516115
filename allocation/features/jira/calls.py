"""The calls of Jira that bookings and messages lead to. The sender of webhooks makes them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4, uuid5

from django.conf import settings

from allocation.features.jira.models import JiraConnection, JiraProject
from allocation.features.jira.rules import issue_key
from allocation.models import Booking
from allocation.queries.bookings.bookings import node_places_of
from allocation.rules.ask.words.times import duration_words
from allocation.rules.states import State
from allocation.services.bookings.requests import BookingRequest
from allocation.services.quotes.quotes import Quote
from allocation.services.record.costs import paid_for
from billing.rules import money_text
from tenants.access import Actor
from tenants.models import PublishedEvent, Webhook, WebhookDelivery, set_by_valid_token
from tenants.platform.errors import Refused
from tenants.rules.event_types import is_wanted

LINK, COMMENT, TRANSITION = "jira.link", "jira.comment", "jira.transition"
REQUESTED = "booking.requested"
QUOTED_OPTIONS = 3
# Other events keep the state; a person may have moved the issue meanwhile.
STATE_EVENTS = frozenset(
    {
        "booking.approval_requested",
        "booking.scheduled",
        "booking.started",
        "booking.paused",
        "booking.resumed",
        "booking.ended",
        "booking.refused",
        "booking.declined",
        "booking.approval_expired",
        "booking.expired",
        "booking.cancelled",
        "booking.failed",
    }
)
_ENDED = (State.ENDED, State.CANCELLED, State.EXPIRED, State.REFUSED, State.FAILED, State.REJECTED)


def calls_of_events(
    receiver: Webhook, events: Sequence[PublishedEvent], now: datetime
) -> list[WebhookDelivery]:
    """Returns the calls for events of bookings that name an issue of this Jira.

    The issue's project has to be mapped to the project of the booking, so nobody can have comments
    written in others' issues.
    """
    mapped = JiraProject.objects.filter(set_by_valid_token(now), connection__receiver=receiver)
    known = {row.key: row for row in mapped}
    about = [
        (event, key, mapping)
        for event in events
        if (key := issue_key(_reference(event), receiver.url))
        and (mapping := known.get(key.rpartition("-")[0])) is not None
        and mapping.project_id == event.project_id
    ]
    bookings = Booking.objects.select_related("tenant").in_bulk({each.subject for each, *_ in about})
    return [
        WebhookDelivery(
            tenant_id=event.tenant_id,
            webhook=receiver,
            event=event,
            key=uuid5(event.key, kind),
            type=kind,
            subject=event.subject,
            content=content,
            created=now,
            due=now,
        )
        for event, key, mapping in about
        for kind, content in _calls(receiver, event, key, mapping, bookings[event.subject])
    ]


def comment_queue(connection: JiraConnection, issue: str, text: str, now: datetime) -> None:
    """Queues a comment that belongs to no booking. Comments of one issue are sent in order."""
    WebhookDelivery.objects.create(
        tenant_id=connection.tenant_id,
        webhook_id=connection.receiver_id,
        key=uuid4(),
        type=COMMENT,
        subject=uuid5(connection.id, issue),
        content={"act": "comment", "issue": issue, "text": text},
        created=now,
        due=now,
    )


def quote_text(request: BookingRequest, quote: Quote, actor: Actor, now: datetime) -> str:
    """Returns the comment with the best options of a quote."""
    if not quote.options:
        return f"No option for “{request.request_text}”: {quote.blocking}"
    lines = [
        f"{actor.clock(each.starts, now)}, {each.tier}: {each.request}, "
        f"{money_text(each.price, each.currency)}"
        for each in quote.options[:QUOTED_OPTIONS]
    ]
    return "\n".join([f"Options for “{request.request_text}”. Nothing is booked.", *lines])


def refusal_comment(refusal: Refused) -> str:
    """Returns the comment with a refusal and what would work."""
    texts = [each["request"] for each in refusal.alternatives if each.get("request")]
    options = f" Would work: {'; '.join(texts[:QUOTED_OPTIONS])}." if texts else ""
    return f"Not booked. {refusal.sentence}{options}"


def _reference(event: PublishedEvent) -> str:
    return str(event.data.get("booking", {}).get("external_ref", ""))


def _calls(
    receiver: Webhook, event: PublishedEvent, key: str, mapping: JiraProject, booking: Booking
) -> Iterator[tuple[str, dict[str, Any]]]:
    url = f"{settings.PUBLIC_URL}/t/{booking.tenant.slug}/bookings/{booking.label}"
    state = event.data["booking"]["state"]
    if event.type == REQUESTED or state in _ENDED:
        yield (
            LINK,
            {
                "act": "link",
                "issue": key,
                "id": f"bk_{booking.id.hex}",
                "url": url,
                "title": f"{booking.label} {booking.name or booking.request_text}".strip(),
                "is_over": state in _ENDED,
            },
        )
    if is_wanted(receiver.events, event.type):
        text = _comment(event, booking, url)
        yield COMMENT, {"act": "comment", "issue": key, "text": text}
    if event.type in STATE_EVENTS and (status := mapping.transitions.get(state)):
        yield TRANSITION, {"act": "transition", "issue": key, "status": status}


def _comment(event: PublishedEvent, booking: Booking, url: str) -> str:
    state = event.data["booking"]["state"].replace("_", " ")
    facts = [f"{booking.label} is {state}.", str(event.data["message"])]
    if booking.planned_starts is not None and booking.charged is None:
        facts.append(f"Start: {booking.planned_starts:%Y-%m-%d %H:%M} UTC.")
    if where := _place(booking):
        facts.append(f"GPUs: {where}.")
    if booking.charged is not None:
        facts.append(f"Charged: {money_text(paid_for(booking), booking.currency)}.")
    else:
        held = money_text(booking.hold_amount, booking.currency)
        facts.append(f"At most {held} for {duration_words(booking.duration_seconds)}.")
    return "\n".join([*facts, url])


def _place(booking: Booking) -> str:
    """The GPUs that the booking has or is planned on: `gpu-a1-01: 2, 3; gpu-a1-02: 0`."""
    places = node_places_of(booking)
    return "; ".join(f"{each.name}: {', '.join(map(str, sorted(each.own)))}" for each in places)
