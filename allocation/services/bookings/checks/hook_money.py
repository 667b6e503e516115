"""The money of a request or a change as a question to a policy hook names it, before admission."""

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Target
from allocation.services.bookings.checks.offers import (
    most_of,
    priced_from,
    rate_for,
    rate_of_all,
)
from allocation.services.bookings.requests import BookingRequest
from billing.price_books import PriceShelf
from billing.queries import tightest_figures
from billing.services import campaign_to_charge
from tenants.access import Actor, access_project_to_book
from tenants.platform.errors import Refused


def hook_money(actor: Actor, request: BookingRequest, now: datetime) -> dict[str, Any]:
    """Returns `cost` and `budget`, for JSON. `cost`: the most that the request can cost at the
    prices of its day, without what admission may still change. `budget`: the hard budget with the
    least money left of those that would pay. Each is None if there is none."""
    try:
        project = access_project_to_book(actor, request.project, "project")
        campaign = campaign_to_charge(
            project, request.campaign, request.labels, request.external_ref
        )
    except Refused:
        # Admission says why, to the person.
        return {"cost": None, "budget": None}
    campaign_id = campaign.id if campaign else None
    at = priced_from(request.ask, now)
    budget = _budget(project_id=project.id, person_id=actor.user_id, campaign_id=campaign_id, at=at)
    return {"cost": most_cost(request.ask, request.tier, now), "budget": budget}


def change_money(booking: Booking, new: Target, now: datetime) -> dict[str, Any]:
    """Returns `cost` and `budget` of a change, for JSON: the whole booking as changed, at the
    prices of its day, and the hard budget with the least money left of those that pay for its
    owner. What the booking already holds is not in the money left."""
    budget = _budget(
        project_id=booking.project_id,
        person_id=booking.owner_id,
        campaign_id=booking.campaign_id,
        at=priced_from(new.ask, now),
    )
    return {"cost": most_cost(new.ask, new.tier, now), "budget": budget}


def _budget(
    *, project_id: UUID, person_id: int, campaign_id: UUID | None, at: datetime
) -> dict[str, str] | None:
    figures = tightest_figures(
        project_id=project_id, person_id=person_id, campaign_id=campaign_id, at=at
    )
    if figures is None:
        return None
    return {
        "name": figures.name,
        "level": figures.level,
        "amount": str(figures.amount),
        "left": str(figures.left),
        "currency": figures.currency,
        "starts": figures.starts.isoformat(),
        "ends": figures.ends.isoformat(),
    }


def most_cost(ask: AskDocument, tier: str, now: datetime) -> dict[str, str] | None:
    """Returns the most that a request can cost at the prices of its day, for JSON; None if a class
    has no price."""
    prices = PriceShelf.read(now).on(priced_from(ask, now))
    known = {
        name: (price, rate_for(price, ask.on(name), units))
        for name, units in ask_units(ask).items()
        if (price := prices.get((name, tier))) is not None
    }
    if not known or (ask.groups and len(known) < len(ask.all_classes)):
        return None
    rates = [rate for _, rate in known.values()]
    if ask.groups:
        rates = [rate_of_all(rates)]
    most = max(most_of(rate, ask.starts, ask.duration) for rate in rates)
    setup = max((price.setup for price, _ in known.values()), default=Decimal(0))
    currency = next(iter(known.values()))[0].currency
    return {"most": str(most + setup), "currency": currency}
