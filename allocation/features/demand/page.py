"""The card of demand on the page of figures, when to book, and the capacity report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.features.demand.booking_times import (
    BookingTime,
    best_times,
    booking_times,
    class_of,
    tier_of,
)
from allocation.features.demand.capacity import capacity_answer, capacity_report
from allocation.features.demand.chart import SHOWS, demand_chart, heat_rows
from allocation.features.demand.models import DemandForecast, DemandKind
from allocation.features.demand.own_capacity import own_capacity
from allocation.features.demand.services import gpus_of_classes, hits_read, hours_of, newest_forecasts
from allocation.features.demand.slicing import slicing_uses
from allocation.points import FIGURE_CARDS, BookingCard
from billing.rules import rate_text
from tenants.access import Actor
from tenants.models import GpuClass, Tier, User
from tenants.platform.costly import costly
from tenants.platform.nouns import unit_noun, unit_text
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, tenant_page, zone_of

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
    """The expected demand of a class (`?class=`), at first of the GPUs that are used most."""
    found = newest_forecasts()
    if not found:
        return None
    capacity = gpus_of_classes()
    name = query.get("class", "")
    kind = SITE_KIND if actor is None else OWN_KIND
    if name not in found:
        name = max(found, key=lambda each: _use_of(found[each][kind], capacity.get(each, 0)))
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
    chart = demand_chart(
        past, forecast.low, forecast.middle, forecast.high, forecast.at, capacity.get(name, 0)
    )
    card = {
        "label": forecast.gpu_class.label,
        "kind": unit_text(DemandKind(kind).label, name),
        "chart": replace(chart, text=unit_text(chart.text, name)),
        "unit": unit_noun(name),
        "classes": classes,
        "gpus": capacity.get(name, 0),
        "is_site": actor is None,
        "at": forecast.at,
        "hits": [
            (AHEAD_WORDS[each.ahead], 100 * each.held / each.tested, each) for each in hits_read(forecast)
        ],
        "now": now,
    }
    return BookingCard(TEMPLATE, card)


def _use_of(forecast: DemandForecast, capacity: int) -> tuple[bool, float, int]:
    """By what classes are ordered: GPUs before host cores, then past and expected use, then their number."""
    rows = hours_of(forecast.gpu_class_id, forecast.at)[-PAST_HOURS:]
    past = sum(getattr(row, forecast.kind) for row in rows)
    return forecast.gpu_class.kind != GpuClass.Kind.HOST, past + sum(forecast.middle), capacity


def own_capacity_card(actor: Actor | None, query: Mapping[str, str], now: datetime) -> BookingCard | None:
    """What the work of a lead's projects waited for, and what more GPUs would have changed."""
    found = None if actor is None else own_capacity(actor, now)
    if found is None or not (found.waits or found.more):
        return None
    return BookingCard("demand/own_capacity.html", {"found": found, "now": now})


FIGURE_CARDS.append(demand_card)
FIGURE_CARDS.append(own_capacity_card)


@dataclass(frozen=True, slots=True)
class BestTime:
    """A good hour, and the request that books it."""

    row: BookingTime
    request: str
    price: str


@costly("statement")
@require_safe
@tenant_page
def heatmap(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows when to book a class (`?class=h100&tier=&show=wait`)."""
    now, zone = timezone.now(), zone_of(actor.time_zone)
    known = newest_forecasts()
    name = request.GET.get("class", "")
    name = name if name in known else next(iter(known), "")
    tier = tier_of(request.GET.get("tier", ""))
    show = request.GET.get("show", "")
    show = show if show in SHOWS else "wait"
    rows = booking_times(class_of(name), tier, 1, now) if name else []
    here = {"class": name, "tier": tier.slug, "show": show}
    heat = heat_rows(rows, show, zone)
    context = {
        "is_alike": len({cell.css for _, cells in heat for cell in cells if cell.css}) < 2,
        "free": _free_words(rows),
        "alike": next((cell.said(show) for _, cells in heat for cell in cells if cell.css), ""),
        "label": next(iter(known[name].values())).gpu_class.label if name else "",
        "tier": tier,
        "classes": [
            (next(iter(kinds.values())).gpu_class.label, _with(here, "class", each), each == name)
            for each, kinds in known.items()
        ],
        "tiers": [
            (each.name, _with(here, "tier", each.slug), each == tier)
            for each in Tier.objects.order_by("-priority", "slug")
        ],
        "shows": [(label, _with(here, "show", each), each == show) for each, label in SHOWS.items()],
        "show": SHOWS[show],
        "heat": heat,
        "hours": range(24),
        "best": [
            BestTime(
                row,
                f"1 {name} 1h at {row.at.astimezone(zone):%H:%M on %Y-%m-%d}",
                "" if row.price is None else rate_text(row.price, row.currency),
            )
            for row in best_times(rows)
        ],
        "now": now,
    }
    return render(request, "demand/heatmap.html", context)


def _free_words(rows: Sequence[BookingTime]) -> str:
    """How many GPUs are expected to be free at every hour, in words."""
    free = [row.free for row in rows]
    if not free:
        return ""
    least, most = (f"{each:.0f}" for each in (min(free), max(free)))
    return least if least == most else f"{least} to {most}"


def _with(here: Mapping[str, str], name: str, value: str) -> str:
    return "?" + urlencode({**here, name: value})


@costly("statement")
@require_safe
@operator_page(Area.FLEET)
def capacity(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows what is missing by class and week, and what more GPUs would change."""
    now = timezone.now()
    rows = capacity_report(now)
    context = {"rows": rows, "answer": capacity_answer(rows), "slicing": slicing_uses(now)}
    return render(request, "demand/capacity.html", context)


urlpatterns = [
    path("t/<slug:tenant>/heatmap", heatmap, name="heatmap"),
    path("ops/capacity", capacity, name="ops-capacity"),
]
