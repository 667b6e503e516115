"""What happened to a booking: the event, and the message to whoever follows it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from allocation.models import Booking, BookingEvent
from tenants.models import OutboxMessage
from tenants.outbox import outbox_put


def event_add(
    booking: Booking,
    *,
    kind: str,
    sentence: str,
    now: datetime,
    actor_id: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Writes one line of history and one outbox message, in the caller's transaction.

    Sentences name no clock times: those go to `detail` as `starts` or `until`, and each reader's
    page says them in the reader's zone. `kind` is the outside name without its prefix: `started`
    becomes the event `booking.started`.
    """
    line = event_of(
        booking, kind=kind, sentence=sentence, now=now, actor_id=actor_id, detail=detail
    )
    lines_add([line])


def event_of(
    booking: Booking,
    *,
    kind: str,
    sentence: str,
    now: datetime,
    actor_id: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> BookingEvent:
    """The line, not written yet: for those who write many at once by `lines_add`."""
    return BookingEvent(
        tenant_id=booking.tenant_id,
        booking=booking,
        at=now,
        kind=kind,
        state=booking.state,
        sentence=sentence[:300],
        actor_id=actor_id,
        detail=dict(detail or {}),
    )


def lines_add(lines: Sequence[BookingEvent]) -> None:
    """Writes lines and their messages in their order, in two statements."""
    BookingEvent.objects.bulk_create(lines)
    outbox_put([_message(line) for line in lines])


def events_add(bookings: Sequence[Booking], *, kind: str, sentence: str, now: datetime) -> None:
    """As `event_add`, the same line for each of them."""
    lines_add([event_of(each, kind=kind, sentence=sentence, now=now) for each in bookings])


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
