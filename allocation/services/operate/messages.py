"""Messages of operators to the owners of bookings: in the booking's history, by mail and events."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.models import Booking
from allocation.rules.states import OPEN
from allocation.services.record.history import Event, events_add
from allocation.words.events import event_text
from tenants.audit import audit_entry, audit_write
from tenants.models import User
from tenants.platform.errors import Refused, invalid
from tenants.services.input_values import name_read

MOST_BOOKINGS = 200
LONGEST = 200


@transaction.atomic
def owners_message(
    *, operator: User, bookings: Collection[UUID], text: str, now: datetime
) -> list[Booking]:
    """Sends a message to the owners of bookings that are not over; returns these bookings.

    The message is written to each booking's history, and to the logs of the tenants and the
    platform. For a transaction of an operator.

    Raises:
        Refused: `bad_message`, `bad_bookings` or `all_over`.
    """
    message = _message_read(text)
    if not 0 < len(bookings) <= MOST_BOOKINGS:
        sentence = f"Choose 1 to {MOST_BOOKINGS} bookings."
        raise invalid("bad_bookings", sentence, "booking")
    rows = Booking.objects.filter(id__in=bookings, state__in=OPEN).select_related("tenant")
    found = list(rows.order_by("tenant__slug", "number"))
    if not found:
        raise Refused("all_over", "All these bookings are over. Reload the list.")
    event = Event("message", event_text("operator_message", message=message), operator.id)
    events_add([event.row(booking, now) for booking in found])
    audit_write(
        audit_entry(
            tenant_id=tenant_id,
            actor_id=operator.id,
            action="booking.message_sent",
            target=("booking", booking.id),
            now=now,
            detail={"before": None, "after": {"message": message, "number": booking.label}},
        )
        for booking in found
        for tenant_id in (None, booking.tenant_id)
    )
    return found


def _message_read(text: str) -> str:
    try:
        return name_read(text, longest=LONGEST)
    except Refused as refusal:
        sentence = f"Enter a message of 1 to {LONGEST} visible characters."
        raise invalid("bad_message", sentence, "message") from refusal
