"""Events of a booking's history, each with an outbox message for its subscribers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from allocation.models import Booking, BookingEvent
from allocation.words.events import EventText
from tenants.models import OutboxMessage
from tenants.outbox import outbox_put
from tenants.platform.log_ids import log_ids_now
from tenants.platform.rows import rows_insert


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a booking's history before it is written.

    Sentences contain no clock times: those go to `detail` as `starts` or `until`, and pages show
    them in the reader's time zone. `kind` is the public name without its prefix: `started` becomes
    the event `booking.started`. The `trace` of the request that causes an event is kept, as a W3C
    `traceparent`.
    """

    kind: str
    sentence: EventText
    actor_id: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def row(self, booking: Booking, now: datetime) -> BookingEvent:
        """Returns the row without writing it; `events_add` writes many at once."""
        text = self.sentence.of_cores() if (booking.ask or {}).get("host") else self.sentence
        trace = {name: value for name, value in log_ids_now().items() if name == "trace"}
        return BookingEvent(
            tenant_id=booking.tenant_id,
            booking=booking,
            # The database has the same rule for events without a change.
            at=max(now, booking.changed_at or now),
            kind=self.kind,
            state=booking.state,
            sentence=str(text)[:300],
            actor_id=self.actor_id,
            detail={**self.detail, "text": text.data(), **trace},
        )


def event_add(
    booking: Booking,
    *,
    kind: str,
    sentence: EventText,
    now: datetime,
    actor_id: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Writes one event and its outbox message in the caller's transaction."""
    events_add([Event(kind, sentence, actor_id, detail or {}).row(booking, now)])


def events_add(events: Sequence[BookingEvent]) -> None:
    """Writes events and their messages in order, in two statements."""
    # A message is as its booking is now, and names its event.
    messages = [_message(event) for event in events]
    rows_insert(events, then=lambda: _messages_send(events, messages))


def changes_announce(bookings: Sequence[Booking], now: datetime) -> None:
    """Notifies open pages that bookings have changed, where their history has nothing to say."""
    kind = "replanned"
    outbox_put([_message(BookingEvent(booking=each, kind=kind, at=now)) for each in bookings])


def _messages_send(events: Sequence[BookingEvent], messages: Sequence[OutboxMessage]) -> None:
    for event, message in zip(events, messages, strict=True):
        message.payload["event"] = event.id
    outbox_put(messages)


def _message(event: BookingEvent) -> OutboxMessage:
    booking = event.booking
    payload = {
        "event": event.id,
        "booking": booking.label,
        "id": f"bk_{booking.id.hex}",
        "project": booking.project_id.hex,
        "state": booking.state,
        "version": booking.version,
        **({"waitlist": booking.waitlist} if booking.waitlist else {}),
    }
    return OutboxMessage(
        tenant_id=booking.tenant_id, kind=f"booking.{event.kind}", payload=payload, created=event.at
    )
