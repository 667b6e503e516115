"""The page that explains how the spend of a budget differs from its plan and from usual days."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import SpendVariance
from allocation.queries.bookings.money.variances import labels_seen, parts_seen
from allocation.queries.fleet.catalogue import names_of_use
from allocation.words.refusals import refusal_text
from allocation.words.variances import (
    HALF_CENT,
    Names,
    cause_name,
    cause_sentence,
    parts_shown,
    variance_headline,
    variance_sentence,
)
from billing.access import access_budget, require_budget_right
from billing.models import Budget
from billing.price_books import currency_latest
from billing.queries import BudgetFigures, budget_figures_of
from billing.rules import amount_parse, cents_apart, money_text, period_text
from billing.services import variance_rule_set
from tenants.access import Actor
from tenants.platform.costly import costly
from tenants.platform.errors import Refused, invalid
from tenants.web.frame import tenant_page

DAYS_LISTED = 60


@dataclass(frozen=True, slots=True)
class CauseRow:
    """A cause with its amount, the share of the largest one, and the bookings behind it."""

    name: str
    sentence: str
    amount: str
    percent: Decimal
    is_more: bool
    bookings: tuple[tuple[str, str], ...]
    others: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison as the page shows it."""

    headline: str
    sentence: str
    is_unusual: bool
    causes: tuple[CauseRow, ...]
    difference: str
    against: str


@costly("statement")
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def budget_variance(request: HttpRequest, actor: Actor, budget_id: UUID) -> HttpResponse:
    """Shows the comparisons of a day (`?day=2026-11-24`); POST sets the thresholds."""
    budget = access_budget(actor, budget_id)
    if request.method != "POST":
        return _page(request, actor, budget, None)
    require_budget_right(actor, budget.owner)
    try:
        percent, amount = rule_read(request.POST)
        variance_rule_set(
            actor_id=actor.user_id,
            budget=budget,
            percent=percent,
            amount=amount,
            now=timezone.now(),
        )
    except Refused as refusal:
        return _page(request, actor, budget, refusal)
    messages.success(request, "Saved when spend is unusual.")
    return redirect(reverse("budget-variance", args=[actor.tenant_slug, budget.id]))


def rule_read(form: QueryDict) -> tuple[int | None, Decimal]:
    """The thresholds as they are typed. Raises Refused `bad_percent` or `bad_amount`."""
    percent = form.get("percent", "").strip().removesuffix("%").strip()
    if percent and not (percent.isascii() and percent.isdigit() and len(percent) < 5):
        raise invalid("bad_percent", refusal_text("percent_1000"), "percent")
    amount = amount_parse(form.get("amount", ""), param="amount", currency=currency_latest())
    return (int(percent) if percent else None), amount


def _page(request: HttpRequest, actor: Actor, budget: Budget, refusal: Refused | None) -> HttpResponse:
    figures = budget_figures_of([budget.id])[budget.id]
    rows = SpendVariance.objects.filter(budget=budget)
    days = list(rows.order_by("-day").values_list("day", flat=True).distinct()[:DAYS_LISTED])
    day = _day_read(request.GET.get("day", ""), days)
    listed = rows.filter(day__in=days).values_list("day", "against", "is_unusual")
    unusual = {(each, against) for each, against, is_unusual in listed if is_unusual}
    typed = request.POST if refusal else rule_text(budget)
    try:
        require_budget_right(actor, budget.owner)
        may_edit = True
    except Refused:
        may_edit = False
    context = {
        "budget": budget,
        "figures": figures,
        "period_text": period_text(figures.period),
        "day": day,
        "comparisons": [
            comparison_of(row, figures.name, figures.currency)
            for row in _seen_by(actor, rows.filter(day=day).order_by("-against") if day else ())
        ],
        "days": [(each, (each, "weekday") in unusual, (each, "plan") in unusual) for each in days],
        "may_edit": may_edit,
        "rule_typed": typed,
        "rule_refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/budget_variance.html", context, status=status)


def _seen_by(actor: Actor, rows: Iterable[SpendVariance]) -> list[SpendVariance]:
    """The comparisons with the bookings that the reader may see."""
    found = list(rows)
    named = (each["booking"] for row in found for part in row.parts for each in part["bookings"])
    seen = labels_seen(actor, named)
    for row in found:
        row.parts = parts_seen(row.parts, seen)
    return found


def comparison_of(row: SpendVariance, name: str, currency: str) -> Comparison:
    """A stored comparison in words."""
    said: dict[str, Any] = {
        "name": name,
        "currency": currency,
        "day": row.day.isoformat(),
        "against": row.against,
        "actual": str(row.actual),
        "expected": str(row.expected),
    }
    parts, names = parts_shown(row.parts), names_of_use()
    amounts = cents_apart([Decimal(part["amount"]) for part in parts])
    top = max((abs(Decimal(part["amount"])) for part in parts), default=Decimal(1))
    return Comparison(
        headline=variance_headline(said),
        sentence=variance_sentence(said),
        is_unusual=row.is_unusual,
        causes=tuple(
            _cause(part, amount, top, currency, names) for part, amount in zip(parts, amounts, strict=True)
        ),
        difference=_signed(row.actual - row.expected, currency),
        against=row.against,
    )


def _cause(part: Mapping[str, Any], amount: Decimal, top: Decimal, currency: str, names: Names) -> CauseRow:
    bookings = tuple(
        (each["booking"], _signed(Decimal(each["amount"]), currency)) for each in part["bookings"]
    )
    return CauseRow(
        name=cause_name(part),
        sentence=cause_sentence(part, currency, names),
        amount=_signed(amount, currency),
        percent=(abs(amount) * 100 / top).quantize(Decimal("0.01")),
        is_more=amount > 0,
        bookings=bookings,
        others=part["count"] - len(bookings),
    )


def _signed(amount: Decimal, currency: str) -> str:
    text = money_text(amount, currency)
    return f"+{text}" if amount >= HALF_CENT else text


def comparisons_latest(budget: Budget, figures: BudgetFigures) -> list[Comparison]:
    """The comparisons of the latest day that has some."""
    rows = SpendVariance.objects.filter(budget=budget)
    day = rows.order_by("-day").values_list("day", flat=True).first()
    if day is None:
        return []
    chosen = rows.filter(day=day).order_by("-against")
    return [comparison_of(row, figures.name, figures.currency) for row in chosen]


def rule_text(budget: Budget) -> dict[str, str]:
    """The thresholds as a form has them."""
    percent = "" if budget.variance_percent is None else str(budget.variance_percent)
    return {"percent": percent, "amount": f"{budget.variance_amount:.2f}"}


def _day_read(text: str, days: list[date]) -> date | None:
    """The day of the address, if it has comparisons; else the latest."""
    chosen = next((each for each in days if each.isoformat() == text), None)
    return chosen or (days[0] if days else None)


urlpatterns = [
    path(
        "t/<slug:tenant>/budgets/<uuid:budget_id>/variance",
        budget_variance,
        name="budget-variance",
    ),
]
