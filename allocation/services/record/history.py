"""What happened to a booking: the event, and the message to whoever follows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from allocation.models import Booking, BookingEvent
from tenants.models import OutboxMessage
from tenants.outbox import outbox_put


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a booking's history before it is written.

    Sentences name no clock times: those go to `detail` as `starts` or `until`, and each reader's
    page says them in the reader's zone. `kind` is the outside name without its prefix: `started`
    becomes the event `booking.started`.
    """

    kind: str
    sentence: str
    actor_id: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def row(self, booking: Booking, now: datetime) -> BookingEvent:
        """Returns the row, for those who write many at once by `events_add`."""
        return BookingEvent(
            tenant_id=booking.tenant_id,
            booking=booking,
            at=now,
            kind=self.kind,
            state=booking.state,
            sentence=self.sentence[:300],
            actor_id=self.actor_id,
            detail=dict(self.detail),
        )


def event_add(
    booking: Booking,
    *,
    kind: str,
    sentence: str,
    now: datetime,
    actor_id: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Writes an `Event` and one outbox message, in the caller's transaction."""
    events_add([Event(kind, sentence, actor_id, detail or {}).row(booking, now)])


def events_add(lines: Sequence[BookingEvent]) -> None:
    """Writes lines and their messages in their order, in two statements."""
    BookingEvent.objects.bulk_create(lines)
    outbox_put([_message(line) for line in lines])


def _message(line: BookingEvent) -> OutboxMessage:
    booking = line.booking
    payload = {
        "booking": booking.label,
        "id": f"bk_{booking.id.hex}",
        "state": booking.state,
        "version": booking.version,
    }
    return OutboxMessage(
        tenant_id=booking.tenant_id, kind=f"booking.{line.kind}", payload=payload, created=line.at
    )
