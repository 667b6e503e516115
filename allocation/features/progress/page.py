"""The card of progress on the page of a booking."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.access import access_booking, may_change
from allocation.features.progress.costs import UnitLimitTerms, campaign_costs, campaign_limit_set
from allocation.features.progress.models import Progress
from allocation.features.progress.points import cost_per_step, metric_shown
from allocation.features.progress.rules import Pace, misses_by
from allocation.features.progress.services import MetricTerms, metric_watch
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, BookingCard, work_rates
from allocation.rules.states import State
from allocation.rules.workload_names import workload_of
from allocation.services.quotes.changes import later_ends
from allocation.services.record.costs import booking_cost, rate_of
from allocation.web.parts.times import length_words
from billing.rules import money_text, rate_text
from tenants.access import Actor
from tenants.web.form_page import Act, form_page
from tenants.web.frame import tenant_page

TEMPLATE = "progress/card.html"
# An extension leaves so much time after the expected end, and is a whole number of these.
STEP = timedelta(minutes=5)
# A report that is older says nothing about now.
STALE = timedelta(hours=1)


def progress_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card of a booking whose program has reported."""
    row = Progress.objects.filter(booking=booking).first()
    if row is None:
        return None
    pace = row.pace
    is_running = booking.state in (State.ACTIVE, State.PAUSING)
    cost, ends = cost_per_step(booking, row), pace.ends(row.of) if is_running else None
    card: dict[str, Any] = {
        "row": row,
        "label": booking.label,
        "percent": None if row.of is None else 100 * row.step / row.of,
        "metrics": {name: f"{value:.6g}" for name, value in row.metrics.items()},
        "per_hour": None if pace.per_second is None else pace.per_second * 3_600,
        "ends": ends,
        "is_running": is_running,
        "is_stale": is_running and now - row.at > STALE,
        "per_thousand": None if cost is None else money_text(cost * 1_000, booking.currency),
        "now": now,
        "plateau": _plateau(row),
        "may_watch": bool(row.metrics) and is_running and may_change(actor, booking),
    }
    card |= _against_before(booking, pace)
    if ends is not None and booking.planned_ends is not None and not card["is_stale"]:
        card |= _advice(actor, booking, ends, now)
    return BookingCard(TEMPLATE, card)


def _against_before(booking: Booking, pace: Pace) -> dict[str, Any]:
    """The rate of a GPU in earlier runs of this kind of work, and how this run compares with it."""
    name = workload_of(booking)
    known = work_rates(booking.project_id, name).get(booking.planned_class) if name else None
    if known is None or booking.ask.get("profile") or booking.ask.get("share"):
        return {}
    found: dict[str, Any] = {"before": known}
    if pace.per_second is not None:
        rate = pace.per_second * 3_600 / booking.ask["count"]
        found["against_before"] = _compared(rate / known.per_gpu_hour, known.runs)
    return found


def _plateau(row: Progress) -> str:
    """`loss has not become better since step 8,000; the best mean of 4 readings was 0.312.`"""
    found = metric_shown(row)
    if found is None or not found["plateau"]:
        return ""
    best = "the best" if found["best_of"] == 1 else f"the best mean of {found['best_of']} readings"
    return (
        f"{found['name']} has not become better since {row.unit} {found['since']:,.6g};"
        f" {best} was {found['best']:.4g}."
    )


def _compared(times: float, runs: int) -> str:
    """`About 1.9 times as fast as your project's last 5 runs on this class.`"""
    before = "the last run" if runs == 1 else f"the last {runs} runs"
    how = "As fast" if 0.95 <= times < 1.05 else f"About {times:.2g} times as fast"
    return f"{how} as {before} of this work in the project on this class."


def _advice(actor: Actor, booking: Booking, ends: datetime, now: datetime) -> dict[str, Any]:
    """What the expected end says about the booked one, and what to do about it."""
    booked = booking.planned_ends
    if booked is None or not (apart := misses_by(ends, booked, now)):
        return {}
    may = may_change(actor, booking)
    advice: dict[str, Any] = {
        "apart": length_words(60 * round(abs(apart.total_seconds()) / 60)),
        "is_late": apart > timedelta(),
    }
    if apart > timedelta() and may:
        advice |= _extension(actor, booking, STEP * ceil((apart + STEP) / STEP), now)
    advice["may_shorten"] = may and apart < timedelta()
    return advice


def _extension(actor: Actor, booking: Booking, more: timedelta, now: datetime) -> dict[str, Any]:
    """The extension by `more`, or by as much of it as is possible now; else why there is none."""
    booked = booking.planned_ends
    later = later_ends(actor=actor, booking=booking, now=now)
    if booked is None or not later.ends:
        return {"no_more": later.limit}
    possible = min(more, later.ends[-1] - booked)
    cost = booking_cost(booking, rate_of(booking).between(booked, booked + possible))
    length = length_words(possible.total_seconds())
    return {
        "seconds": int(possible.total_seconds()),
        "more": f"Extend by {length}, {money_text(cost, booking.currency)}",
        "no_more": later.limit if possible < more else "",
    }


@require_safe
@tenant_page
def progress_part(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """The card alone, which an open page asks for every ten seconds."""
    found = progress_card(actor, access_booking(actor, label), timezone.now())
    return render(request, TEMPLATE, {"card": found.card if found else None})


def _costs_shown(actor: Actor, now: datetime, campaign_id: UUID) -> dict[str, Any]:
    found = campaign_costs(actor, campaign_id, now)
    limit, currency = found.limit, found.budget.account.currency if found.budget else ""
    return {
        "campaign": found.campaign,
        "budget": found.budget,
        "limit": limit,
        "limit_text": limit and f"{_money(limit.most, currency)} for {limit.units}",
        "cost_text": None if found.limit_cost is None else _money(found.limit_cost, currency),
        "percent": limit and found.limit_cost is not None and 100 * found.limit_cost / limit.most,
        "may_edit": actor.may_lead(found.campaign.project_id),
        "rows": [
            {
                "row": each,
                "per_unit": None if each.cost is None else _money(each.cost, each.currency),
                "per_thousand": None if each.cost is None else _money(each.cost * 1_000, each.currency),
            }
            for each in found.units
        ],
    }


def _money(amount: Decimal, currency: str) -> str:
    return rate_text(amount.quantize(Decimal("0.0001")), currency)


def _limit_now(actor: Actor, campaign_id: UUID) -> Mapping[str, Any]:
    found = campaign_costs(actor, campaign_id, timezone.now())
    limit = found.limit
    if limit is None:
        return {"count": 1_000, "unit": "step", "action": "notify"}
    action = "pause" if found.pauses else "notify"
    return {
        "most": f"{limit.most:f}".rstrip("0").rstrip("."),
        "count": limit.count,
        "unit": limit.unit,
        "action": action,
    }


def _metric_page(actor: Actor, now: datetime, reference: str) -> dict[str, Any]:
    booking = access_booking(actor, reference)
    row = Progress.objects.filter(booking=booking).first()
    return {
        "label": booking.label,
        "metric": row and metric_shown(row),
        "plateau": row and _plateau(row),
        "may_edit": bool(row and row.metrics) and may_change(actor, booking),
    }


def _metrics(actor: Actor, reference: str) -> list[tuple[str, str]]:
    row = Progress.objects.filter(booking=access_booking(actor, reference)).first()
    return [(name, name) for name in sorted(row.metrics if row else ())]


def _metric_now(actor: Actor, reference: str) -> Mapping[str, Any]:
    row = Progress.objects.filter(booking=access_booking(actor, reference)).first()
    return {"watch": row.metric, "better": row.better} if row else {}


BOOKING_CARDS.append(progress_card)
urlpatterns = [
    path("t/<slug:tenant>/bookings/<str:label>/progress", progress_part, name="progress"),
    form_page(
        "bookings/<str:reference>/metric",
        "booking-metric",
        "progress/metric.html",
        _metric_page,
        Act(
            "watch",
            metric_watch,
            "Saved. A plateau is shown after 30 readings.",
            terms=MetricTerms,
            choices={"better": lambda _: [("lower", "Lower"), ("higher", "Higher")]},
            path_choices={"watch": _metrics},
            initial=_metric_now,
        ),
    ),
    form_page(
        "campaigns/<uuid:campaign_id>/costs",
        "campaign-costs",
        "progress/costs.html",
        _costs_shown,
        Act(
            "limit",
            campaign_limit_set,
            "Saved. Its alerts and limits are those of the budget.",
            terms=UnitLimitTerms,
            choices={"action": lambda _: [("notify", "Notify"), ("pause", "Pause what runs")]},
            initial=_limit_now,
        ),
    ),
]
