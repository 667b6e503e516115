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
    BookingEvent.objects.create(
        tenant_id=booking.tenant_id,
        booking=booking,
        at=now,
        kind=kind,
        state=booking.state,
        sentence=sentence[:300],
        actor_id=actor_id,
        detail=dict(detail or {}),
    )
    outbox_put([_message(booking, kind, now)])


def events_add(bookings: Sequence[Booking], *, kind: str, sentence: str, now: datetime) -> None:
    """As `event_add`, the same line for each of them."""
    BookingEvent.objects.bulk_create(
        [
            BookingEvent(
                tenant_id=booking.tenant_id,
                booking=booking,
                at=now,
                kind=kind,
                state=booking.state,
                sentence=sentence[:300],
                detail={},
            )
            for booking in bookings
        ]
    )
    outbox_put([_message(booking, kind, now) for booking in bookings])


def _message(booking: Booking, kind: str, now: datetime) -> OutboxMessage:
    payload = {
        "booking": booking.label,
        "id": f"bk_{booking.id.hex}",
        "state": booking.state,
        "version": booking.version,
    }
    return OutboxMessage(
        tenant_id=booking.tenant_id, kind=f"booking.{kind}", payload=payload, created=now
    )
