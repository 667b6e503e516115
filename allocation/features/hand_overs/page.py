"""The page on which a booking is offered to a colleague, and the card on the page of the booking."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from allocation.access import access_booking, may_change
from allocation.features.hand_overs.checks import hand_over_fault
from allocation.features.hand_overs.models import HandOver
from allocation.features.hand_overs.services import (
    HandOverTerms,
    hand_over_accept,
    hand_over_decline,
    hand_over_offer,
    hand_over_shown,
    hand_over_withdraw,
    is_open,
    takers_of,
)
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, BookingCard
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.web.form_page import Act, form_page


def hand_over_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card of an open offer, or of the way to make one."""
    found = _parts(actor, booking, now)
    is_there = found["offer"] or (found["may_offer"] and not found["fault"])
    return BookingCard("hand_overs/card.html", found) if is_there else None


def _parts(actor: Actor, booking: Booking, now: datetime) -> dict[str, Any]:
    row = hand_over_shown(actor, booking)
    offer = row if row is not None and is_open(row, now) else None
    fault = hand_over_fault(booking)
    return {
        "booking": booking,
        "offer": offer,
        "last": None if offer else row,
        "is_taker": offer is not None and offer.taker_id == actor.user_id,
        "may_offer": may_change(actor, booking),
        "fault": refusal_text(fault, label=booking.label) if fault else "",
        "now": now,
    }


def _shown(actor: Actor, now: datetime, reference: str) -> dict[str, Any]:
    booking = access_booking(actor, reference)
    return {**_parts(actor, booking, now), "has_takers": bool(takers_of(booking))}


def _takers(actor: Actor, reference: str) -> list[tuple[str, str]]:
    return takers_of(access_booking(actor, reference))


def _said(code: str) -> Callable[[HandOver], str]:
    return lambda row: code.format(taker=row.taker.display_name, label=row.booking.label)


BOOKING_CARDS.append(hand_over_card)
urlpatterns = [
    form_page(
        "bookings/<str:reference>/hand-over",
        "hand-over",
        "hand_overs/page.html",
        _shown,
        Act(
            "offer",
            hand_over_offer,
            _said("{label} is offered to {taker}."),
            terms=HandOverTerms,
            path_choices={"person": _takers},
        ),
        Act("accept", hand_over_accept, _said("{label} is yours now.")),
        Act("decline", hand_over_decline, _said("You declined {label}.")),
        Act("withdraw", hand_over_withdraw, _said("{label} is not offered to {taker} any more.")),
    )
]
