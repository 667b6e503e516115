"""The pages of insights: of an organisation with its projects and labs, and of the site."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.features.insights.cards import asks_for_cards, bookings_address, cards_address, cards_page
from allocation.features.insights.charts import bars_of, heat_of
from allocation.features.insights.compare import own_comparison, site_comparison
from allocation.features.insights.figures import (
    Figures,
    Whose,
    busy_by_hour,
    steps_of,
    sum_of,
    units_by_workload,
    waits_by_tier,
)
from allocation.features.insights.outcomes import UnitCost
from allocation.features.insights.overview import overview_of, site_overview_of
from allocation.features.insights.rule_changes import (
    RuleChange,
    StepChanges,
    by_step,
    changes_seen,
    rule_changes,
)
from allocation.features.insights.services import (
    OWN_NOUNS,
    SITE_NOUNS,
    Question,
    Span,
    own_figures,
    owner_shown,
    owners_of,
    question_read,
    rows_of,
    span_read,
    spans_of,
    spend_of_all,
    sums_by_name,
)
from allocation.features.insights.tiles import (
    answer_shown,
    length_shown,
    noun_row_shown,
    tiles_shown,
    units_shown,
    went_shown,
)
from allocation.queries.bookings.money.statements import MINE
from allocation.queries.fleet.catalogue import names_of_use
from billing.focus import csv_row
from billing.price_books import currency_latest
from billing.rules import Period
from tenants.access import Actor
from tenants.models import Membership, Project, Tenant, User
from tenants.platform.costly import costly
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, tenant_page

NOUN_WORDS = {
    "class": "Class",
    "project": "Project",
    "person": "Person",
    "tier": "Tier",
    "tenant": "Organisation",
}
COLUMNS = (
    "starts",
    "name",
    "gpu_hours",
    "measured_gpu_hours",
    "unused_gpu_hours",
    "dark_gpu_hours",
    "utilisation",
    "kwh",
    "energy_gpu_hours",
    "bandwidth",
    "tensor",
    "tflops_per_watt",
    "link_bytes_per_kiloflop",
    "began",
    "wait_p50_seconds",
    "wait_p95_seconds",
    "pauses",
    "lost_hours",
    "spend",
    "price_per_busy_gpu_hour",
    "co2_kg",
    "starts_announced",
    "starts_kept",
    "units",
    "sm",
    "core_hours",
)
Row = tuple[date, str, Figures]
USE_KEYS = (("in use", "p-use"), ("unused", "p-unused"), ("not measured", "p-unknown"))
NOUN_SHADES = ("p-1", "p-2", "p-3", "p-4", "p-5")
OTHERS = "others"


@costly("statement")
@require_safe
@tenant_page
def insights(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the figures of a project, a lab or the organisation (`?month=2026-11&project=&by=class`)."""
    now = timezone.now()
    if asks_for_cards(request):
        return cards_page(request, actor, now)
    question = _read(request, OWN_NOUNS, now)
    whose = own_figures(actor, owner_shown(actor, request.GET.get("project", "")), question)
    tenant = Tenant.objects.get(id=actor.tenant_id)
    owner = whose.of.owner if whose.of else ""
    marks = (
        _changed(partial(changes_seen, actor), question, _span(request, now))
        if actor.leads_any
        else Changed()
    )
    currency = currency_latest()
    context = _context(request, whose, question, now, currency=currency, owner=owner, marks=marks)
    context |= {
        "log": f"/t/{actor.tenant_slug}/log" if actor.is_tenant_admin else "",
        "whose": (whose.of.name if whose.of else "") or tenant.name,
        "owners": owners_of(actor),
        "owner": owner,
        "rows": bookings_address(actor, owner),
        "compare": f"/t/{actor.tenant_slug}/insights/compare?{urlencode({'project': owner})}",
        "mail": f"/t/{actor.tenant_slug}/reports?{urlencode({'project': '' if owner == MINE else owner})}",
        "is_site": False,
    }
    return render(request, "insights/page.html", context)


@costly("statement")
@require_safe
@operator_page(Area.OVERVIEW)
def site_insights(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the figures of all organisations together."""
    now = timezone.now()
    if asks_for_cards(request):
        return cards_page(request, None, now)
    question = _read(request, SITE_NOUNS, now)
    marks = _changed(partial(rule_changes, None), question, _span(request, now))
    context = _context(request, Whose(), question, now, currency="", owner="", marks=marks)
    context |= {"log": "/ops/log", "whose": "All organisations", "compare": "/ops/insights/compare"}
    context |= {"is_site": True, "rows": bookings_address(None, "")}
    return render(request, "insights/page.html", context)


@costly("statement")
@require_safe
@tenant_page
def insights_csv(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Returns the rows of the page, by step and noun."""
    now = timezone.now()
    question = _read(request, OWN_NOUNS, now)
    whose = own_figures(actor, owner_shown(actor, request.GET.get("project", "")), question)
    return _csv(rows_of(whose, question, now))


@costly("statement")
@require_safe
@operator_page(Area.OVERVIEW)
def site_insights_csv(request: HttpRequest, operator: User) -> HttpResponse:
    """Returns the rows of the site's page."""
    now = timezone.now()
    return _csv(rows_of(Whose(), _read(request, SITE_NOUNS, now), now))


@costly("statement")
@require_safe
@tenant_page
def overview(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows an admin the organisation and a lead their projects, of four weeks and of now."""
    now = timezone.now()
    question = question_read(None, None, "class", "day", OWN_NOUNS, now)
    whose = own_figures(actor, owner_shown(actor, ""), question)
    context = _overview(actor.tenant_id, whose, question, now) | overview_of(actor, whose, now)
    name = whose.of.name if whose.of else ""
    context["whose"] = name or Tenant.objects.get(id=actor.tenant_id).name
    context["rows"] = bookings_address(actor, whose.of.owner if whose.of else "")
    return render(request, "insights/overview.html", context | {"base": f"/t/{actor.tenant_slug}/"})


@costly("statement")
@require_safe
@operator_page(Area.OVERVIEW)
def site_overview(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the fleet, the queue and the decisions of now, and figures of four weeks."""
    now = timezone.now()
    question = question_read(None, None, "tenant", "day", SITE_NOUNS, now)
    context = _overview(None, Whose(), question, now) | site_overview_of(now)
    context |= {"base": "/ops/", "rows": bookings_address(None, "")}
    return render(request, "insights/site_overview.html", context)


@costly("statement")
@require_safe
@tenant_page
def compare(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows two chosen periods side by side (`?from=&to=&against_from=&against_to=&project=`)."""
    context = own_comparison(actor, request.GET.dict(), timezone.now())
    return render(request, "insights/compare.html", context, status=422 if context["refusal"] else 200)


@costly("statement")
@require_safe
@operator_page(Area.OVERVIEW)
def site_compare(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows two chosen periods of all organisations together."""
    context = site_comparison(request.GET.dict(), timezone.now())
    return render(request, "insights/compare.html", context, status=422 if context["refusal"] else 200)


def _overview(tenant_id: UUID | None, whose: Whose, question: Question, now: datetime) -> dict[str, Any]:
    """Returns the tiles and the chart of use that the page of insights has."""
    rows = rows_of(whose, question, now)
    total = sum_of(found for _, _, found in rows)
    before = sum_of(found for _, _, found in rows_of(whose, question.before, now))
    currency = currency_latest() if tenant_id else ""
    tiles = tiles_shown(total, before, currency)
    if tenant_id is None:
        tiles.append(("Spend", spend_of_all(sums_by_name(rows)), "of all organisations"))
    return {
        "tiles": tiles,
        "use": _use_bars(rows, steps_of(question.days, question.step)),
        "question": question,
        "last_day": question.days.ends - timedelta(days=1),
    }


def _span(request: HttpRequest, now: datetime) -> Span:
    return span_read(request.GET.get("weeks", ""), request.GET.get("month", ""), now)


def _read(request: HttpRequest, nouns: tuple[str, ...], now: datetime) -> Question:
    by, span = request.GET.get("by", ""), _span(request, now)
    by = by if by in nouns else "class"
    return question_read(span.days.starts, span.days.ends, by, span.step, nouns, now)


@dataclass(frozen=True, slots=True)
class Changed:
    """What else changed in the time of a page, by step, and in the time before; for admins and leads."""

    steps: Sequence[StepChanges] = ()
    before: Sequence[RuleChange] = ()
    is_shown: bool = False


def _changed(changes: Callable[[Period], Sequence[RuleChange]], question: Question, span: Span) -> Changed:
    steps = by_step(changes(question.days), steps_of(question.days, question.step))
    return Changed(steps, changes(span.before), is_shown=True)


def _context(  # noqa: PLR0913 (named parts of one page)
    request: HttpRequest,
    whose: Whose,
    question: Question,
    now: datetime,
    *,
    currency: str,
    owner: str,
    marks: Changed,
) -> dict[str, Any]:
    rows = rows_of(whose, question, now)
    total = sum_of(found for _, _, found in rows)
    span = _span(request, now)
    earlier = replace(question, days=span.before, step="all")
    before = sum_of(found for _, _, found in rows_of(whose, earlier, now))
    nouns, names = sums_by_name(rows), _labels(question.by)
    days = steps_of(question.days, question.step)
    return {
        "question": question,
        "last_day": question.days.ends - timedelta(days=1),
        "total": total,
        "answer": answer_shown(total, nouns, names, currency),
        "tiles": tiles_shown(total, before, currency),
        "use": _use_bars(rows, days, marks.steps),
        "by_noun": _noun_bars(rows, days, nouns, names, marks.steps),
        "spend": _noun_bars(rows, days, nouns, names, marks.steps, currency) if currency else None,
        **_tables(nouns, names, total, _currencies(question.by, nouns, currency)),
        "changed": marks.steps,
        "changed_before": marks.before,
        "shows_changes": marks.is_shown,
        "noun": NOUN_WORDS[question.by].lower(),
        "heat": heat_of(busy_by_hour(whose, question.days, now)),
        "hours": range(24),
        "waits": _waits(whose, question, now),
        **_units(whose, question, total.spend, currency, now),
        "days": [(day, sum_of(found for at, _, found in rows if at == day)) for day in reversed(days)],
        "ranges": [
            (label, _here(each, question.by, owner), each == span) for label, each in spans_of(span, now)
        ],
        "bys": [
            (NOUN_WORDS[noun], _here(span, noun, owner), noun == question.by)
            for noun in (SITE_NOUNS if whose.tenant_id is None else OWN_NOUNS)
        ],
        "span": span,
        "cards_url": cards_address(request),
        "csv": f"{request.path}.csv{_here(span, question.by, owner)}",
    }


def _units(
    whose: Whose, question: Question, charged: Decimal | None, currency: str, now: datetime
) -> dict[str, Any]:
    """What the runs did; of the whole site nothing, because its prices are those of organisations."""
    if not currency:
        return {"units": []}
    rows, note = units_shown(units_by_workload(whose, question.days, now), charged, currency)
    return {"units": rows, "units_note": note}


def _tables(
    nouns: list[tuple[str, Figures]], names: dict[str, str], total: Figures, currencies: dict[str, str]
) -> dict[str, list[Any]]:
    """The rows by noun: figures, what limited the work, and where the hours of a class went."""
    labelled = [(name, names.get(name, name), found) for name, found in nouns]
    return {
        "nouns": [
            noun_row_shown(label, found, total, currencies.get(name, "")) for name, label, found in labelled
        ],
        "saturated": [
            (label, found)
            for _, label, found in labelled
            if found.with_tensor or found.with_sm or found.with_bandwidth
        ],
        "went": [(label, went_shown(found)) for _, label, found in labelled if found.capacity is not None],
    }


def _here(span: Span, by: str, owner: str) -> str:
    return "?" + urlencode({span.name: span.value, "by": by} | ({"project": owner} if owner else {}))


def _waits(whose: Whose, question: Question, now: datetime) -> list[tuple[str, int, str, str, str]]:
    """Tiers, with how many began, their median wait, what 19 of 20 waited at most, and announced starts
    that were kept."""
    names = names_of_use()["tier"]
    return [
        (
            names.get(tier, tier),
            each.began,
            length_shown(each.wait_p50_seconds),
            length_shown(each.wait_p95_seconds),
            f"{each.starts_kept} of {each.starts_announced}" if each.starts_announced else "–",
        )
        for tier, each in waits_by_tier(whose, question.days, now)
    ]


def _use_bars(rows: Iterable[Row], days: list[date], changed: Sequence[StepChanges] = ()) -> object:
    parts = {day: [Decimal(0)] * 3 for day in days}
    for day, _, found in rows:
        measured = min(found.measured_gpu_hours, found.gpu_hours)
        unused = min(found.unused_gpu_hours, measured)
        for number, hours in enumerate((measured - unused, unused, found.gpu_hours - measured)):
            parts[day][number] += hours
    return bars_of(USE_KEYS, [*parts.items()], "GPU-hours", changed)


def _noun_bars(
    rows: Iterable[Row],
    days: list[date],
    nouns: list[tuple[str, Figures]],
    names: dict[str, str],
    changed: Sequence[StepChanges],
    currency: str = "",
) -> object:
    """The GPU-hours of the largest nouns, or with a currency their spend, and of all others together."""
    unit = currency or "GPU-hours"
    shown = [name for name, found in nouns[: len(NOUN_SHADES)] if found.gpu_hours]
    keys = [(names.get(name, name), css) for name, css in zip(shown, NOUN_SHADES, strict=False)]
    parts = {day: [Decimal(0)] * (len(shown) + 1) for day in days}
    for day, name, found in rows:
        value = (found.spend or Decimal(0)) if currency else found.gpu_hours
        parts[day][shown.index(name) if name in shown else -1] += value
    if any(values[-1] for values in parts.values()):
        keys.append((OTHERS, "p-unknown"))
        return bars_of(keys, [*parts.items()], unit, changed)
    return bars_of(keys, [(day, values[:-1]) for day, values in parts.items()], unit, changed)


def _currencies(by: str, nouns: list[tuple[str, Figures]], currency: str) -> dict[str, str]:
    """The currency of each noun's spend: on the site's page only organisations have any."""
    return dict.fromkeys((name for name, _ in nouns), currency_latest() if by == "tenant" else currency)


def _labels(by: str) -> dict[str, str]:
    """The names of the nouns as people know them."""
    match by:
        case "class" | "tier":
            return names_of_use()[by]
        case "project":
            return dict(Project.objects.values_list("slug", "name"))
        case "person":
            people = User.objects.filter(id__in=Membership.objects.values("user"))
            return {each.username: each.display_name for each in people}
        case _:
            return dict(Tenant.objects.values_list("slug", "name"))


def _exactly(value: Decimal | int | list[UnitCost] | None) -> str:
    """A figure as in REST: hours and energy in thousandths; costs of units as `step=0.000125`."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(f"{each.unit}={each.cost:f}" for each in value if each.cost is not None)
    return str(value.quantize(Decimal("0.001")) if isinstance(value, Decimal) else value)


def _csv(rows: Iterable[Row]) -> HttpResponse:
    lines = [csv_row(COLUMNS)]
    for starts, name, found in rows:
        values = [_exactly(getattr(found, each)) for each in COLUMNS[2:]]
        lines.append(csv_row([str(starts), name, *values]))
    response = HttpResponse("".join(lines), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="insights.csv"'
    return response


urlpatterns = [
    path("t/<slug:tenant>/insights", insights, name="insights"),
    path("t/<slug:tenant>/insights.csv", insights_csv, name="insights-csv"),
    path("t/<slug:tenant>/overview", overview, name="overview"),
    path("ops/overview", site_overview, name="ops-overview"),
    path("ops/insights", site_insights, name="ops-insights"),
    path("ops/insights.csv", site_insights_csv, name="ops-insights-csv"),
    path("t/<slug:tenant>/insights/compare", compare, name="insights-compare"),
    path("ops/insights/compare", site_compare, name="ops-insights-compare"),
]
