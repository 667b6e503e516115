"""The card of demand on the page of figures."""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlencode

from django.urls import URLPattern

from allocation.features.demand.chart import demand_chart
from allocation.features.demand.models import DemandKind
from allocation.features.demand.services import gpus_of_classes, hits_read, hours_of, newest_forecasts
from allocation.points import FIGURE_CARDS, BookingCard
from tenants.access import Actor

TEMPLATE = "demand/card.html"
PAST_HOURS = 168
# Shown by default. Organisations see no figure of who waits.
SITE_KIND, OWN_KIND = DemandKind.WANTED, DemandKind.IN_USE
AHEAD_WORDS = {
    "1-6": "1 to 6 hours",
    "7-24": "7 to 24 hours",
    "25-72": "1 to 3 days",
    "73-167": "3 to 7 days",
    "168-336": "7 to 14 days",
}


def demand_card(actor: Actor | None, query: Mapping[str, str], now: datetime) -> BookingCard | None:
    """The expected demand of a class (`?class=`), at first that with the most GPUs."""
    found = newest_forecasts()
    if not found:
        return None
    capacity = gpus_of_classes()
    name = query.get("class", "")
    if name not in found:
        name = max(found, key=lambda each: capacity.get(each, 0))
    kind = SITE_KIND if actor is None else OWN_KIND
    forecast = found[name][kind]
    past = [getattr(row, kind) for row in hours_of(name, forecast.at)[-PAST_HOURS:]]
    classes = [
        (
            next(iter(kinds.values())).gpu_class.label,
            "?" + urlencode({**query, "class": each}) + "#demand",
            each == name,
        )
        for each, kinds in found.items()
    ]
    card = {
        "label": forecast.gpu_class.label,
        "kind": DemandKind(kind).label,
        "chart": demand_chart(
            past, forecast.low, forecast.middle, forecast.high, forecast.at, capacity.get(name, 0)
        ),
        "classes": classes,
        "gpus": capacity.get(name, 0),
        "at": forecast.at,
        "hits": [
            (AHEAD_WORDS[each.ahead], 100 * each.held / each.tested, each) for each in hits_read(forecast)
        ],
        "now": now,
    }
    return BookingCard(TEMPLATE, card)


FIGURE_CARDS.append(demand_card)
urlpatterns: list[URLPattern] = []
