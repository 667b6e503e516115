"""The card of data on the page of a booking."""

from datetime import datetime

from allocation.features.datasets.models import Staging
from allocation.features.datasets.services import nodes_with
from allocation.features.datasets.staging import staged_of
from allocation.models import Allocation, Booking
from allocation.points import BOOKING_CARDS, BookingCard
from allocation.rules.states import TERMINAL
from tenants.access import Actor

TEMPLATE = "datasets/booking.html"


def data_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card of a booking that names data: on which of its nodes it is, and what was fetched."""
    names = booking.ask.get("data", [])
    if not names:
        return None
    steps = Staging.objects.filter(booking=booking).first()
    nodes = () if booking.state in TERMINAL else _nodes(booking)
    have = nodes_with(names) if nodes else {}
    card = {
        "names": names,
        "nodes": [(node, sorted(set(names) - have.get(node, frozenset()))) for node in nodes],
        "steps": staged_of(steps) if steps else [],
        "now": now,
    }
    return BookingCard(TEMPLATE, card)


def _nodes(booking: Booking) -> list[str]:
    rows = Allocation.objects.filter(booking=booking, state__in=Allocation.LIVE, abandoned=False)
    return sorted(set(rows.values_list("gpu__node__name", flat=True)))


BOOKING_CARDS.append(data_card)
urlpatterns: list[object] = []
