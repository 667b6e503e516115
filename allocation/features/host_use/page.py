"""The card of the host on the page of a booking, and the page on which a project lets cores be lent."""

from datetime import datetime
from typing import Any

from allocation.features.host_use.raising import (
    SpareCoresTerms,
    is_on_for,
    raised_now,
    raised_of,
    spare_cores_set,
)
from allocation.features.host_use.services import host_figures
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, BookingCard
from tenants.access import Actor, access_project
from tenants.web.form_page import Act, form_page

TEMPLATE = "host_use/card.html"


def host_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card of a booking that has run."""
    if booking.ready_at is None:
        return None
    card = {
        "rows": host_figures(booking),
        "raised": list(raised_of(booking)),
        "now": now,
        "project": booking.project.slug,
        "is_on": is_on_for(booking.project_id),
        "may_lead": actor.may_lead(booking.project_id),
    }
    return BookingCard(TEMPLATE, card)


def _shown(actor: Actor, now: datetime, project: str) -> dict[str, Any]:
    found = access_project(actor, project)
    return {
        "project": found,
        "is_on": is_on_for(found.id),
        "may_lead": actor.may_lead(found.id),
        "rows": raised_now(found.id),
    }


def _is_on(actor: Actor, project: str) -> dict[str, Any]:
    return {"on": is_on_for(access_project(actor, project).id)}


BOOKING_CARDS.append(host_card)
urlpatterns = [
    form_page(
        "p/<slug:project>/spare-cores",
        "spare-cores",
        "host_use/spare_cores.html",
        _shown,
        Act(
            "set", spare_cores_set, "Lending of idle host cores saved.", terms=SpareCoresTerms, initial=_is_on
        ),
    )
]
