"""The card of the host on the page of a booking."""

from datetime import datetime

from allocation.features.host_use.raising import raised_of
from allocation.features.host_use.services import host_figures
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, BookingCard
from tenants.access import Actor

TEMPLATE = "host_use/card.html"


def host_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card of a booking that has run."""
    if booking.ready_at is None:
        return None
    raised = list(raised_of(booking))
    return BookingCard(TEMPLATE, {"rows": host_figures(booking), "raised": raised, "now": now})


BOOKING_CARDS.append(host_card)
urlpatterns: list[object] = []
