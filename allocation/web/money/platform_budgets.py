"""The operators' pages for budgets of the whole platform: amounts, and a ladder for each."""

from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta
from decimal import Decimal
from uuid import UUID

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from allocation.queries.bookings.money.forecasts import forecast_today
from allocation.web.money.budget_chart import budget_chart, day_page, days_csv
from allocation.web.money.budget_page import (
    LIMITS,
    alerts_said,
    ladder_changed,
    ladder_context,
    rung_question,
)
from allocation.web.money.forecasts import forecast_words
from allocation.web.money.variances import comparisons_latest, rule_read, rule_text
from allocation.words.refusals import refusal_text
from billing.models import Budget, Guardrail
from billing.price_books import currency_latest
from billing.queries import BudgetFigures, budget_figures_of
from billing.rules import (
    BudgetOwner,
    BudgetTerms,
    Period,
    amount_parse,
    money_text,
    month_of,
    period_text,
)
from billing.services import alerts_set, budget_put, ladder_set, variance_rule_set
from billing.web.alerts import alerts_read, form_of_new
from billing.web.budget_bar import budget_bar
from billing.web.budget_rows import BUDGET_KINDS
from tenants.models import User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.confirm import CONFIRMED_FIELD, confirm_page
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page

PLATFORM = BudgetOwner(None)
MOST = 60


@dataclass(frozen=True, slots=True)
class PlatformRow:
    """A budget of the platform, and what the budgets below it add up to in its period."""

    figures: BudgetFigures
    period: str
    bar: object
    below: str


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.MONEY)
def platform_budgets(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the platform's budgets, the latest first; POST sets one."""
    refusal: Refused | None = None
    if request.method == "POST":
        try:
            budget, terms = _set(operator, request.POST)
            messages.success(request, f"Budget for {period_text(terms.period)} set.")
            return redirect("platform-budget", budget.id)
        except Refused as refused:
            refusal = refused
    month = month_of(timezone.now().astimezone(UTC).date())
    first = {"starts": f"{month.starts}", "last": f"{month.ends - timedelta(days=1)}"}
    context = {
        "budgets": _rows(),
        "typed": request.POST if refusal else {**first, "kind": "hard"},
        "alert_form": replace(
            form_of_new(request.POST if refusal else None, User.objects.none()), is_of_platform=True
        ),
        "budget_kinds": BUDGET_KINDS,
        "refusal": refusal,
    }
    return render(request, "allocation/ops_budgets.html", context, status=422 if refusal else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.MONEY)
def platform_budget(request: HttpRequest, operator: User, budget_id: UUID) -> HttpResponse:
    """Shows one budget of the platform; POST saves its alerts, or adds or removes a limit."""
    budget = _of_platform(budget_id)
    here, refusal, rule_refusal = reverse("platform-budget", args=[budget.id]), None, None
    if "rule" in request.POST:
        try:
            percent, amount = rule_read(request.POST)
            variance_rule_set(
                actor_id=operator.pk,
                budget=budget,
                percent=percent,
                amount=amount,
                now=timezone.now(),
            )
            messages.success(request, "Saved when spend is unusual.")
            return redirect(here)
        except Refused as refused:
            rule_refusal = refused
    elif request.method == "POST":
        try:
            return _ladder_saved(request, operator, budget, here)
        except Refused as refused:
            refusal = refused
    figures = budget_figures_of([budget.id])[budget.id]
    ladder = ladder_context(request, budget, refusal)
    actions = [each for each in LIMITS if each[0] != Guardrail.Action.APPROVAL]
    context = {
        "figures": figures,
        "period_text": period_text(figures.period),
        "comparisons": comparisons_latest(budget, figures),
        "rule_typed": request.POST if rule_refusal else rule_text(budget),
        "rule_refusal": rule_refusal,
        "bar": budget_bar(figures),
        **budget_chart(budget, None),
        "forecast": forecast_words(forecast_today(budget, timezone.now())),
        "may_edit": True,
        **ladder,
        "actions": actions,
        "audiences": (("admins", "Operators"),),
    }
    status = 422 if refusal or rule_refusal else 200
    return render(request, "allocation/ops_budget.html", context, status=status)


def _ladder_saved(request: HttpRequest, operator: User, budget: Budget, here: str) -> HttpResponse:
    """Saves the alerts, or adds or removes a limit, which asks first."""
    now = timezone.now()
    if "save_alerts" in request.POST:
        alerts = alerts_read(request.POST, budget)
        alerts_set(actor_id=operator.pk, budget=budget, alerts=alerts, now=now)
        messages.success(request, alerts_said(alerts))
        return redirect(here)
    rungs, said = ladder_changed(budget, request.POST)
    if "add" in request.POST and CONFIRMED_FIELD not in request.POST:
        question = rung_question(here, budget, rungs[-1])
        if question is not None:
            return confirm_page(request, question)
    ladder_set(actor_id=operator.pk, budget=budget, rungs=rungs, now=now)
    messages.success(request, said)
    return redirect(here)


@require_safe
@operator_page(Area.MONEY)
def platform_budget_days(request: HttpRequest, operator: User, budget_id: UUID) -> HttpResponse:
    """Returns the days of the chart as CSV."""
    return days_csv(_of_platform(budget_id))


@require_safe
@operator_page(Area.MONEY)
def platform_budget_day(request: HttpRequest, operator: User, budget_id: UUID, day: str) -> HttpResponse:
    """Shows the bookings of all organisations behind a day of the chart."""
    return day_page(request, _of_platform(budget_id), None, day)


def _of_platform(budget_id: UUID) -> Budget:
    budget = get_object_or_404(Budget.objects.select_related("account"), id=budget_id)
    if budget.level != Budget.Level.PLATFORM:
        raise Http404
    return budget


def _rows() -> list[PlatformRow]:
    budgets = Budget.objects.filter(level=Budget.Level.PLATFORM).order_by("-starts")[:MOST]
    figures = budget_figures_of([each.id for each in budgets])
    return [
        PlatformRow(
            figures=figures[each.id],
            period=period_text(figures[each.id].period),
            bar=budget_bar(figures[each.id]),
            below=_below(figures[each.id]),
        )
        for each in budgets
    ]


def _below(figures: BudgetFigures) -> str:
    """What the budgets of organisations in the period add up to, and by how much it is too much."""
    inside = Budget.objects.filter(
        level=Budget.Level.TENANT, starts__gte=figures.starts, ends__lte=figures.ends
    )
    amounts = budget_figures_of([each.id for each in inside]).values()
    if not amounts:
        return "No organisation has a budget of its own in this period"
    total = sum((each.amount for each in amounts), Decimal(0))
    text = f"Organisations add up to {money_text(total, figures.currency)}"
    if total > figures.amount:
        more = money_text(total - figures.amount, figures.currency)
        return f"{text}, {more} more than this"
    return text


def _set(operator: User, form: QueryDict) -> tuple[Budget, BudgetTerms]:
    """Sets the budget of the form with its alerts."""
    terms, now = _terms(form), timezone.now()
    with transaction.atomic():
        budget = budget_put(actor_id=operator.pk, owner=PLATFORM, terms=terms, now=now)
        alerts = alerts_read(form, budget)
        alerts_set(actor_id=operator.pk, budget=budget, alerts=alerts, now=now)
    return budget, terms


def _terms(form: QueryDict) -> BudgetTerms:
    try:
        starts = date.fromisoformat(form.get("starts", ""))
        ends = date.fromisoformat(form.get("last", "")) + timedelta(days=1)
    except (ValueError, OverflowError):
        raise invalid("bad_period", refusal_text("first_and_last_day"), "starts") from None
    return BudgetTerms(
        period=Period(starts, ends),
        amount=amount_parse(form.get("amount", ""), param="amount", currency=currency_latest()),
        is_hard=form.get("kind") != "soft",
        is_repeated="is_repeated" in form,
        rolls_over="rolls_over" in form,
    )


urlpatterns = [
    path("ops/budgets", platform_budgets, name="platform-budgets"),
    path("ops/budgets/<uuid:budget_id>", platform_budget, name="platform-budget"),
    path(
        "ops/budgets/<uuid:budget_id>/days.csv",
        platform_budget_days,
        name="platform-budget-days",
    ),
    path(
        "ops/budgets/<uuid:budget_id>/days/<str:day>",
        platform_budget_day,
        name="platform-budget-day",
    ),
]
