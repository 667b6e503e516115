"""The project's page: budget, quota, bookings, spending and members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import Booking, PlannedStrength
from allocation.queries.bookings.after_parents import estimated_starts
from allocation.queries.bookings.money.forecasts import BudgetHistory, history_of_budget
from allocation.queries.bookings.money.held_use import held_use_of
from allocation.queries.bookings.money.projects import (
    Forecast,
    QuotaUse,
    members_of,
    open_bookings,
    open_counts,
    programs_of,
    quota_of,
)
from allocation.queries.bookings.money.spending import (
    SpendShare,
    spend_by_person,
    spend_by_tier,
)
from allocation.queries.bookings.money.statements import StatementOf
from allocation.queries.bookings.planned_pauses import PlannedPause, planned_pauses
from allocation.queries.fleet.use_hours import IDLE_PERCENT
from allocation.queries.limits.tree import owner_uses
from allocation.rules.ask import AskDocument
from allocation.rules.states import ON_HARDWARE, State
from allocation.web.home.remedies import remedies_of
from allocation.web.money.budget_chart import days_address
from allocation.web.money.budget_page import label_fields
from allocation.web.money.forecasts import missing_words, range_words
from allocation.web.parts.burndown import Burndown, burndown
from allocation.web.parts.times import moment
from billing.price_books import currency_latest
from billing.queries import project_budget
from billing.rules import Period, money_text, rest_in_cents
from billing.web.budget_bar import BudgetBar, budget_bar
from solver.model.inputs import UNITS_PER_GPU
from tenants.access import Actor, access_project
from tenants.models import GpuClass, Project, Role
from tenants.platform.errors import Refused
from tenants.platform.labels import labels_read
from tenants.services import gpus_text, project_labels_set
from tenants.web.frame import tenant_page
from tenants.web.parts import counted

IDLE_DAYS = 7
# What precedes the start of a waiting booking, by its strength.
ABOUT: Mapping[str | None, str] = {PlannedStrength.FIRM: "", PlannedStrength.GUARANTEED: "by "}
"""A month of readings takes seconds at a large site."""


@dataclass(frozen=True, slots=True)
class QuotaBar:
    """A bar for `parts/quota.html`, in percent of the class's own scale."""

    name: str
    note: str
    words: str
    u: float
    b: float
    g: float
    m: float
    lent: float
    lent_at: float
    l: float | None  # noqa: E741 the part's own word
    of: str
    used: str
    """The class, and what the project has in use of it, for programs."""


@dataclass(frozen=True, slots=True)
class ShareBar:
    """A row of the spending table; width in percent of the largest row."""

    name: str
    amount: str
    percent: Decimal


@dataclass(frozen=True, slots=True)
class BookingRow:
    """A running, scheduled or waiting booking."""

    booking: Booking
    who: str
    what: str
    when: str
    cost: str


@dataclass(frozen=True, slots=True)
class IdleMoney:
    """Reserved but unused time of the last days: its price, its share, and the energy of all."""

    cost: str
    note: str
    detail: str
    energy: str


@dataclass(frozen=True, slots=True)
class MoneyCard:
    """The budget as text; without a `forecast`, `basis` says why."""

    bar: BudgetBar
    chart: Burndown
    forecast: str
    forecast_range: str
    basis: str
    over: str
    runs_out: str


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def project(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """Shows one project; POST sets its labels. Viewers see its budget, but not who spent it."""
    now = timezone.now()
    found = access_project(actor, slug)
    refusal = None
    if request.method == "POST":
        try:
            project_labels_set(
                actor=actor,
                project=found,
                now=now,
                labels=labels_read(request.POST.get("labels", "")),
                external_ref=request.POST.get("external_ref", "").strip(),
            )
        except Refused as error:
            if error.kind in ("missing", "denied"):
                raise
            refusal = error
        else:
            messages.success(request, "Saved the labels.")
            return redirect(request.path)
    members, programs = members_of(project=found), programs_of(project=found)
    budget = project_budget(found.id, now)
    money = history_of_budget(budget, now) if budget else None
    context: dict[str, Any] = {
        "project": found,
        "money": money_card(money, actor.tenant_slug) if money else None,
        "quotas": quota_bars(_with_loans(actor, found, quota_of(project=found, now=now), now)),
        "bookings": booking_rows(open_bookings(project=found), now),
        "budgets_url": f"/t/{actor.tenant_slug}/budgets",
        "phases": open_counts(project=found),
        "who": _who(len(members), len(programs)),
        "members": members,
        "programs": programs,
        "idle": idle_money(found, now),
        "label_fields": label_fields(found.labels, found.external_ref, request, refusal),
        "may_edit": actor.may_lead(found.id),
        "may_book": actor.may_book(found.id) and found.is_open,
        "sees_people": actor.role_in(found.id) != Role.VIEWER,
    }
    if money is not None:
        budget_id, currency = money.effect.budget_id, money.effect.currency
        context["budget_id"] = budget_id
        context["remedies"] = remedies_of(found, money, actor, now)
        context["by_tier"] = _shares(spend_by_tier(project=found, budget_id=budget_id), currency)
        if context["sees_people"]:
            people = spend_by_person(project=found, budget_id=budget_id)
            context["by_person"] = _shares(people, currency)
    status = 422 if refusal else 200
    return render(request, "allocation/project.html", context, status=status)


def idle_money(project: Project, now: datetime) -> IdleMoney | None:
    """Returns what held time without use has cost in the last days; None without readings."""
    today = now.astimezone(UTC).date()
    days = Period(today - timedelta(days=IDLE_DAYS - 1), today + timedelta(days=1))
    use = held_use_of(StatementOf(project.tenant_id, days, project), settings.CARBON_GRAMS_PER_KWH, now)
    if not use.hours:
        return None
    currency = currency_latest()
    co2 = "" if use.co2_kg is None else f", {use.co2_kg:,.1f} kg of CO₂"
    co2 += "" if use.energy_cost is None else f", {money_text(use.energy_cost, currency)} of electricity"
    return IdleMoney(
        cost=money_text(use.unused_cost, currency),
        note=f"in {IDLE_DAYS} days: without a process, or under {IDLE_PERCENT} % busy",
        detail=f"{use.unused_share}; {use.coverage}",
        energy=f"{use.kwh:,.1f} kWh{co2}",
    )


def _with_loans(actor: Actor, project: Project, lines: Sequence[QuotaUse], now: datetime) -> list[QuotaUse]:
    """The lines with what the project borrows as the pages of quotas and labs have it."""
    rows = owner_uses(actor, now)
    found = ((line, rows.get((project.id, line.gpu_class))) for line in lines)
    return [line if row is None else replace(line, borrowed=row.borrowed) for line, row in found]


def quota_bars(lines: Sequence[QuotaUse]) -> list[QuotaBar]:
    """Returns a bar for each class on a scale of its own: cores would make the bars of GPUs stubs."""
    return [_quota(line, max(line.used, line.guaranteed, line.limit or 0) or UNITS_PER_GPU) for line in lines]


def _quota(line: QuotaUse, top: int) -> QuotaBar:
    used = gpus_text(line.used)
    at_times = "a limit at this time of the week or year"
    notes = []
    if line.guaranteed:
        notes.append(f"{gpus_text(line.guaranteed)} guaranteed")
    if line.limit is None:
        words = f"{counted(used, line.noun)}, no limit"
    else:
        words = f"{used} of {counted(gpus_text(line.limit), line.noun)}"
        if line.is_dated:
            notes.append(at_times)
        if line.of_tenant:
            notes.append(f"limit of the organisation, which uses {gpus_text(line.tenant_used)}")
    if line.borrowed:
        own = gpus_text(line.used - line.borrowed)
        notes.append(f"{own} own + {gpus_text(line.borrowed)} borrowed")
    if line.lent:
        notes.append(f"{gpus_text(line.lent)} lent to other organisations")
    lent = min(line.lent, max(0, line.guaranteed - line.used))
    return QuotaBar(
        name=line.label,
        note=", ".join(notes),
        words=words,
        u=100 * (line.used - line.borrowed) / top,
        b=100 * line.borrowed / top,
        g=100 * line.guaranteed / top,
        m=100 * line.guaranteed / top,
        lent=100 * lent / top,
        lent_at=100 * (line.guaranteed - lent) / top,
        l=None if line.limit is None else 100 * line.limit / top,
        of=line.gpu_class,
        used=used,
    )


def money_card(money: BudgetHistory, tenant_slug: str) -> MoneyCard:
    effect, forecast = money.effect, money.forecast
    chart = burndown(money, days_address(tenant_slug, effect.budget_id))

    def text(amount: Decimal) -> str:
        return money_text(amount, effect.currency)

    if forecast is None:
        return MoneyCard(
            bar=budget_bar(effect),
            chart=chart,
            forecast="",
            forecast_range="",
            basis=missing_words(money.observed),
            over="",
            runs_out="",
        )
    over = forecast.spend - effect.amount
    return MoneyCard(
        bar=budget_bar(effect),
        chart=chart,
        forecast=text(forecast.spend),
        forecast_range=range_words(forecast, effect),
        basis=_basis_words(forecast, text(forecast.per_day)),
        over=text(over) if over > 0 else "",
        runs_out=f"{forecast.runs_out.day} {forecast.runs_out:%B}" if forecast.runs_out else "",
    )


def _basis_words(forecast: Forecast, per_day: str) -> str:
    if not forecast.tests:
        return f"at the recent average of {per_day} per day"
    return f"by weekday, {per_day} per day; range from {forecast.tests} back-tests"


def _shares(shares: Sequence[SpendShare], currency: str) -> list[ShareBar]:
    top = max((share.amount for share in shares), default=Decimal(0)) or Decimal(1)
    return [
        ShareBar(share.name, money_text(share.amount, currency), 100 * share.amount / top) for share in shares
    ]


def booking_rows(bookings: Sequence[Booking], now: datetime) -> list[BookingRow]:
    """Returns rows with texts, classes by their labels."""
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    estimates = estimated_starts(bookings)
    pauses = planned_pauses(bookings, now)
    return [
        _row(booking, labels, _when(booking, estimates.get(booking.id), pauses.get(booking.id), now))
        for booking in bookings
    ]


def _who(people: int, programs: int) -> str:
    """Returns `2 people and 1 service account`."""
    first = f"{people} {'person' if people == 1 else 'people'}"
    return f"{first} and {counted(programs, 'service account')}" if programs else first


def _row(booking: Booking, labels: Mapping[str, str], when: str) -> BookingRow:
    return BookingRow(
        booking=booking,
        who=booking.owner.display_name,
        what=_what(booking, labels),
        when=when,
        cost=money_text(rest_in_cents(booking.hold_amount, booking.settled), booking.currency),
    )


def _what(booking: Booking, labels: Mapping[str, str]) -> str:
    ask = AskDocument.from_json(booking.ask)
    if ask.groups:
        return " + ".join(
            f"{each.count} × {each.profile or labels.get(each.gpu_class, each.gpu_class)}"
            for each in ask.every_group
        )
    classes = (booking.planned_class,) if booking.planned_class else ask.classes
    shape = ask.profile or " or ".join(labels.get(slug, slug) for slug in classes)
    if ask.share is not None:
        return f"{ask.share / 1000:g} of one {shape}, shared"
    return f"{ask.count} × {shape}"


def _when(booking: Booking, estimate: datetime | None, pause: PlannedPause | None, now: datetime) -> str:
    """Returns the planned pause or end of a running booking, else the start: `by` for one that can only
    be earlier, ≈ for an expected one. `estimate` is the earliest start of a booking that waits for
    others."""
    if pause is not None:
        return f"pauses about {moment(pause.at, now)}"
    if booking.state in ON_HARDWARE and booking.planned_ends:
        return f"until {moment(booking.planned_ends, now)}"
    starts = booking.expected_start or booking.starts
    if starts is None and estimate is not None:
        return f"not before {moment(estimate, now)}"
    if starts is None:
        return "not planned yet"
    if booking.state == State.AWAITING_APPROVAL and booking.expected_start is not None:
        return f"by {moment(starts, now)} if approved"
    about = "" if booking.state == State.SCHEDULED else ABOUT.get(booking.planned_strength, "≈ ")
    return f"{about}{moment(starts, now)}"


urlpatterns = [path("t/<slug:tenant>/p/<slug:slug>", project, name="project")]
