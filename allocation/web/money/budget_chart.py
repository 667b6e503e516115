"""The chart of a budget at any level: its spend by day and its forecast, also as table and CSV."""

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.queries.bookings.money.forecasts import BudgetHistory, history_of_budget
from allocation.queries.bookings.money.variances import bookings_on, labels_seen
from allocation.queries.fleet.catalogue import names_of_use
from allocation.web.parts.burndown import burndown
from billing.access import access_budget
from billing.focus import csv_row
from billing.models import Budget
from billing.queries import budget_figures_of
from billing.rules import money_text
from tenants.access import Actor
from tenants.platform.errors import missing
from tenants.web.frame import tenant_page

WORDS = {"use": "GPU time", "fees": "fee", "corrections": "correction"}
COLUMNS = ("day", "charged", "spent", "unspent", "low", "high", "kind")


@dataclass(frozen=True, slots=True)
class ChartDay:
    """A day of the table: what was charged on it and is spent and unspent at its end."""

    day: date
    charged: Decimal
    spent: Decimal
    unspent: Decimal


def days_address(tenant_slug: str | None, budget_id: UUID) -> str:
    """The address below which the days of a budget have their pages; without a tenant, of one of
    the platform."""
    if tenant_slug is None:
        return f"{reverse('platform-budget', args=[budget_id])}/days/"
    return f"{reverse('budget', args=[tenant_slug, budget_id])}/days/"


def budget_chart(budget: Budget, tenant_slug: str | None) -> dict[str, object]:
    """What the budget's page shows of its days; nothing outside its period."""
    history = history_of_budget(budget, timezone.now())
    if history is None:
        return {"chart": None, "chart_days": ()}
    currency = history.effect.currency
    rows = [
        (each.day, *(money_text(amount, currency) for amount in (each.charged, each.spent)))
        for each in reversed(_days(history))
    ]
    days_at = days_address(tenant_slug, budget.id)
    return {
        "chart": burndown(history, days_at),
        "chart_days": rows,
        "has_band": bool(history.forecast),
        "days_at": days_at,
        "days_csv": f"{days_at.removesuffix('/')}.csv",
    }


@require_safe
@tenant_page
def budget_days_csv(request: HttpRequest, actor: Actor, budget_id: UUID) -> HttpResponse:
    """Returns the days of the chart, and the forecast as a last row."""
    return days_csv(access_budget(actor, budget_id))


def days_csv(budget: Budget) -> HttpResponse:
    """The days of a budget's chart as CSV, and the forecast as a last row."""
    history = history_of_budget(budget, timezone.now())
    lines = [csv_row(COLUMNS)]
    for each in _days(history) if history else ():
        values = (each.day, each.charged, each.spent, each.unspent, "", "", "charged")
        lines.append(csv_row([str(value) for value in values]))
    if history is not None and history.forecast is not None:
        found, amount = history.forecast, history.effect.amount
        last = history.effect.ends - timedelta(days=1)
        rest = (found.spend, amount - found.spend, found.low, found.high)
        lines.append(csv_row([str(last), "", *map(str, rest), "forecast"]))
    response = HttpResponse("".join(lines), content_type="text/csv; charset=utf-8")
    name = f"budget-{budget.level}-{budget.starts}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_safe
@tenant_page
def budget_day(request: HttpRequest, actor: Actor, budget_id: UUID, day: str) -> HttpResponse:
    """Shows the bookings behind a day of the chart (`2026-11-24`), the largest amount first."""
    return day_page(request, access_budget(actor, budget_id), actor, day)


def day_page(request: HttpRequest, budget: Budget, actor: Actor | None, day: str) -> HttpResponse:
    """The page with the bookings behind a day of a budget: for a member those that they may see, and
    the sum of the others. Raises Refused `not_found`."""
    tenant_slug = None if actor is None else actor.tenant_slug
    found = _day_read(day)
    if found is None or not budget.starts <= found < budget.ends:
        raise missing("day of this budget")
    figures = budget_figures_of([budget.id])[budget.id]
    rows = sorted(bookings_on(budget, [found], only_own=True), key=lambda each: -each.metered.amount)
    total = sum((each.metered.amount for each in rows), Decimal(0))
    names = names_of_use()
    labels = {each.booking for each in rows}
    seen = labels if actor is None else labels_seen(actor, labels)
    others = [each for each in rows if each.booking not in seen]
    of_others = sum((each.metered.amount for each in others), Decimal(0))
    context = {
        "budget": budget,
        "others": len({each.booking for each in others}),
        "others_amount": money_text(of_others, figures.currency),
        "budget_url": days_address(tenant_slug, budget.id).removesuffix("/days/"),
        "budgets_url": reverse("budgets", args=[tenant_slug]) if tenant_slug else reverse("platform-budgets"),
        "name": figures.name,
        "day": found,
        "before": found - timedelta(days=1) if found > budget.starts else None,
        "after": found + timedelta(days=1) if found + timedelta(days=1) < budget.ends else None,
        "rows": [
            (
                each.booking,
                WORDS[each.kind],
                names["class"].get(each.cell[0], each.cell[0]),
                names["tier"].get(each.cell[1], each.cell[1]),
                money_text(amount, figures.currency),
            )
            for each in rows
            if each.booking in seen and (amount := each.metered.amount)
        ],
        "total": money_text(total, figures.currency),
    }
    return render(request, "billing/budget_day.html", context)


def _day_read(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _days(history: BudgetHistory) -> list[ChartDay]:
    spent, found = Decimal(0), []
    for number, charged in enumerate(history.days):
        spent += charged
        day = history.effect.starts + timedelta(days=number)
        found.append(ChartDay(day, charged, spent, history.effect.amount - spent))
    return found
