"""What happened to a booking: the event, and the message to whoever follows it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from allocation.models import Booking, BookingEvent
from tenants.outbox import outbox_add


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
    outbox_add(
        tenant_id=booking.tenant_id,
        kind=f"booking.{kind}",
        payload={
            "booking": booking.label,
            "id": f"bk_{booking.id.hex}",
            "state": booking.state,
            "version": booking.version,
        },
        now=now,
    )
