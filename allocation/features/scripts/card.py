"""The card of a script on the page of its booking."""

from datetime import datetime

from allocation.features.scripts.services import script_of
from allocation.models import Booking
from allocation.points import BookingCard
from allocation.rules.states import TERMINAL
from tenants.access import Actor


def script_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card of a booking with a script."""
    row = script_of(booking)
    if row is None:
        return None
    card = {
        "row": row,
        "is_over": row.ended_at is not None or booking.state in TERMINAL,
        "has_failed": row.ended_at is not None and row.exit_code != 0,
        "now": now,
    }
    return BookingCard("scripts/card.html", card)
