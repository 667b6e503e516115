"""The cards of other features on the page of insights, which the browser fetches after the page.

Advice on workloads and demand take as long as all figures together, and stand below them.
"""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from allocation.points import FIGURE_CARDS
from allocation.queries.bookings.money.statements import LAB, MINE
from tenants.access import Actor

PART = "cards"


def asks_for_cards(request: HttpRequest) -> bool:
    """Whether only the cards are asked for: `?part=cards`."""
    return request.GET.get("part") == PART


def cards_address(request: HttpRequest) -> str:
    """The address of the cards, for the same question as the page."""
    query = request.GET.copy()
    query["part"] = PART
    return f"{request.path}?{query.urlencode()}"


def bookings_address(actor: Actor | None, owner: str) -> str:
    """The list of bookings of these figures, to which days are added; the list knows neither labs nor
    several projects."""
    if actor is None:
        return "/ops/bookings?"
    is_project = owner not in ("", MINE) and not owner.startswith(LAB)
    project = f"{urlencode({'project': owner})}&" if is_project else ""
    return f"/t/{actor.tenant_slug}/bookings?{project}"


def cards_page(request: HttpRequest, actor: Actor | None, now: datetime) -> HttpResponse:
    """Shows the cards that have something to show; without an actor those of the site."""
    query = {name: str(value) for name, value in request.GET.items()}
    cards = [found for card in FIGURE_CARDS if (found := card(actor, query, now)) is not None]
    context: dict[str, Any] = {"cards": cards, "base": f"/t/{actor.tenant_slug}/" if actor else "/ops/"}
    return render(request, "insights/cards.html", context)
