"""Statements: the charges of a month, their sums, and their files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from allocation.points import STATEMENT_CARDS
from allocation.points.statements import made_files
from allocation.queries.bookings.money.held_use import HeldUse, held_use_of
from allocation.queries.bookings.money.spending import RENTED
from allocation.queries.bookings.money.statement_files import (
    FILES,
    month_read,
    statement_file_make,
    statement_read,
)
from allocation.queries.bookings.money.statements import (
    LABEL,
    Statement,
    group_check,
    group_page,
    is_group,
    label_keys,
    statement_of,
    statement_page,
)
from allocation.queries.fleet.catalogue import names_of_use
from allocation.queries.fleet.use_hours import IDLE_PERCENT
from billing.focus import csv_row
from billing.rules import Period, money_text, month_of, period_text
from billing.services import month_close
from tenants.access import Actor
from tenants.lab_queries import labs_led, labs_read, projects_seen
from tenants.models import GpuClass, Project, Tenant, Tier, User
from tenants.platform.costly import costly
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.text import whole_number
from tenants.web.frame import tenant_page
from tenants.web.parts import counted

SHOWN = 25
GROUP_NAMES = {
    "project": "Project",
    "lab": "Lab",
    "person": "Person",
    "tier": "Tier",
    "gpu_class": "Class",
    "campaign": "Campaign",
    "ticket": "Ticket",
}
FILE_NAMES = (
    ("csv", "CSV"),
    ("pdf", "PDF"),
    ("focus.csv", "FOCUS 1.2"),
    ("focus.parquet", "FOCUS, Parquet"),
)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A row of the sums: `name` as in the files, `label` for people; `percent` of the total."""

    name: str
    label: str
    amount: str
    lines: int
    percent: Decimal
    href: str
    is_chosen: bool


@costly("statement")
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def statements(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows a month (`?month=2026-11&project=&by=person`); POST closes it."""
    form = request.POST if request.method == "POST" else request.GET
    today = timezone.now().astimezone(UTC).date()
    month = month_read(form.get("month", "") or f"{today:%Y-%m}")
    if request.method == "POST":
        return _close(request, actor, month)
    of = statement_read(actor, month, form.get("project", ""))
    by = form.get("by", "")
    if not is_group(by):
        by = "person" if of.project is not None else "project"
    statement = statement_of(of, by)
    only = dict(statement.groups).get(form["only"]) if "only" in form else None
    chosen = form["only"] if only is not None else None
    count = statement.totals.lines if only is None else only.lines
    number = _page_read(form.get("page", ""), count)
    context = _context(actor, statement, by, chosen)
    context |= _lines_page(statement, by, number, chosen, count)
    cards = [card for each in STATEMENT_CARDS if (card := each(actor, of, timezone.now())) is not None]
    context |= {"use": _use_words(statement), "cards": cards}
    return render(request, "allocation/statements.html", context)


def _close(request: HttpRequest, actor: Actor, month: Period) -> HttpResponse:
    here = f"{reverse('statements', args=[actor.tenant_slug])}?month={month.starts:%Y-%m}"
    name = period_text(month)
    if CONFIRMED_FIELD not in request.POST:
        question = Confirmation(
            title=f"Close {name}?",
            lost=(
                "The ledger takes no more charges into it, and its statement stays as it is.",
                "Later corrections appear in the month in which they are made.",
                "This can't be undone.",
            ),
            button=f"Close {name}",
            back=here,
            keep="Keep it open",
        )
        return confirm_page(request, question)
    try:
        month_close(actor=actor, month=month.starts, now=timezone.now())
    except Refused as refusal:
        if refusal.kind in ("missing", "denied"):
            raise
        messages.error(request, refusal.sentence)
    else:
        messages.success(request, f"Closed {name}.")
    return redirect(here)


@costly("statement")
@require_safe
@tenant_page
def statement_file(request: HttpRequest, actor: Actor, month: str, kind: str) -> HttpResponse:
    """Returns a month's statement as a file of a kind in `FILES`."""
    if kind not in FILES:
        raise missing("file")
    tenant = Tenant.objects.get(id=actor.tenant_id)
    of = statement_read(actor, month_read(month), request.GET.get("project", ""))
    # A file is streamed, which the types of pages do not know.
    return cast(HttpResponse, statement_file_make(of, tenant, kind).response())


@costly("statement")
@require_safe
@tenant_page
def statement_sums(request: HttpRequest, actor: Actor, month: str) -> HttpResponse:
    """Returns the sums of a month's statement by a group (`?by=person`) as CSV."""
    of = statement_read(actor, month_read(month), request.GET.get("project", ""))
    by = group_check(request.GET.get("by", "person"))
    rows = [csv_row((by, "lines", "corrections", "amount", "exact", "currency"))]
    statement = statement_of(of, by)
    for name, each in statement.groups:
        sums = (each.lines, each.corrections, each.amount, each.exact, statement.currency)
        rows.append(csv_row((name, *sums)))
    response = HttpResponse("".join(rows), content_type="text/csv; charset=utf-8")
    name = f"spend-by-{by.replace(':', '-')}-{of.month.starts:%Y-%m}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _context(actor: Actor, statement: Statement, by: str, chosen: str | None) -> dict[str, object]:
    of = statement.of
    slug = of.owner
    names = GROUP_NAMES | {LABEL + key: key for key in label_keys(of)}
    month, currency = of.month, statement.currency
    before = month_of(month.starts - timedelta(days=1))
    return {
        "statement": statement,
        "month_text": period_text(month),
        "before": before,
        "before_text": period_text(before),
        "after": month_of(month.ends),
        "after_text": period_text(month_of(month.ends)),
        "total": money_text(statement.totals.amount, currency),
        "total_note": _total_note(statement.totals.corrections),
        "rounding": _rounding(statement),
        "groups": _group_rows(statement, by, chosen),
        "is_spread": any(each.amount != each.rounded for _, each in statement.groups),
        "chosen": None if chosen is None else chosen or "none",
        "all_url": "?" + urlencode(_query(month, slug) | {"by": by}) + "#lines",
        "sums_url": reverse("statement-sums", args=[actor.tenant_slug, f"{month.starts:%Y-%m}"])
        + "?"
        + urlencode({"project": slug, "by": by}),
        "tabs": [
            (name, label, "?" + urlencode(_query(month, slug) | {"by": name}))
            for name, label in names.items()
        ],
        "by": by,
        "by_name": names.get(by, by.removeprefix(LABEL)),
        "files": list(_file_links(actor, month, slug)),
        "made": made_files(actor, statement),
        "all_labs": labs_read(actor),
        "project_slug": slug,
        "all_projects": projects_seen(actor, labs_led(actor)),
        "is_admin": actor.is_tenant_admin,
        "may_close": actor.is_tenant_admin and statement.closed is None and not slug,
    }


def _total_note(corrections: int) -> str:
    """Whether the budgets of the month have the same sum: a refund goes to the budget that was charged."""
    if not corrections:
        return "as in the budgets"
    return f"with {counted(corrections, 'correction')}; budgets may count them in the month of the booking"


def _file_links(actor: Actor, month: Period, slug: str) -> Iterator[tuple[str, str, str]]:
    """Yields the label, the address and the kind of each file."""
    for kind, label in FILE_NAMES:
        path = reverse("statement-file", args=[actor.tenant_slug, f"{month.starts:%Y-%m}", kind])
        yield label, path + (f"?project={slug}" if slug else ""), kind


def _use_words(statement: Statement) -> dict[str, str] | None:
    """What the month's telemetry says in words; None without any."""
    use = held_use_of(statement.of, settings.CARBON_GRAMS_PER_KWH, timezone.now())
    if not use.hours:
        return None
    source = "measured"
    if use.assumed_kwh:
        source = f"{use.assumed_kwh:,.1f} kWh of it assumed"
    return {
        "unused": f"{use.unused_hours:,.1f} GPU-hours",
        "unused_share": f"{100 * use.unused_hours / use.hours:.0f} % of the measured hours",
        "unused_note": f"No process, or less than {IDLE_PERCENT} % busy: {use.unused_share}; {use.coverage}.",
        "cost": money_text(use.unused_cost, statement.currency),
        "energy": f"{use.kwh:,.1f} kWh",
        "source": source,
        "co2": "" if use.co2_kg is None else f"{use.co2_kg:,.1f} kg",
        "intensity": _intensity(use),
        "energy_cost": "" if use.energy_cost is None else money_text(use.energy_cost, statement.currency),
    }


def _intensity(use: HeldUse) -> str:
    """The mean of what was emitted for a kilowatt-hour, in words."""
    if not use.co2_kg or not use.kwh:
        return f"{settings.CARBON_GRAMS_PER_KWH} g per kWh"
    return f"{use.co2_kg * 1000 / use.kwh:.0f} g per kWh on average"


def _page_read(text: str, lines: int) -> int:
    """The number of a page, from 1; the last one for a number beyond it."""
    last = max(1, -(-lines // SHOWN))
    return max(1, min(last, whole_number(text) or 1))


def _lines_page(
    statement: Statement, by: str, number: int, chosen: str | None, count: int
) -> dict[str, object]:
    """A page of the lines, the latest first, with the addresses of its neighbours."""
    of, first = statement.of, (number - 1) * SHOWN
    query, names = _query(of.month, of.owner) | {"by": by}, names_of_use()
    if chosen is None:
        lines = statement_page(of, offset=first, limit=SHOWN)
    else:
        lines = group_page(of, by, chosen, offset=first, limit=SHOWN)
        query["only"] = chosen
    projects = _labels(of.tenant_id, "project", [line.project for line in lines])
    people = _labels(of.tenant_id, "person", [line.person for line in lines])
    return {
        "lines": [
            (
                part,
                projects.get(part.project, part.project),
                people.get(part.person, part.person),
                names["class"].get(part.gpu_class, part.gpu_class),
                names["tier"].get(part.tier, part.tier),
                money_text(part.amount, part.currency),
            )
            for line in lines
            for part in line.by_class()
        ],
        "first": first + 1,
        "last": first + len(lines),
        "line_count": count,
        "newer": f"?{urlencode(query | {'page': number - 1})}#lines" if number > 1 else "",
        "older": f"?{urlencode(query | {'page': number + 1})}#lines" if first + len(lines) < count else "",
    }


def _query(month: Period, slug: str) -> dict[str, str]:
    query = {"month": f"{month.starts:%Y-%m}"}
    return query | {"project": slug} if slug else query


def _rounding(statement: Statement) -> str:
    """Returns what the sums of the groups lack of the total; empty if they add up to it."""
    total = sum((each.amount for _, each in statement.groups), Decimal(0))
    lacking = statement.totals.amount - total
    return money_text(lacking, statement.currency) if lacking else ""


def _group_rows(statement: Statement, by: str, chosen: str | None) -> list[GroupRow]:
    of = statement.of
    query = _query(of.month, of.owner) | {"by": by}
    total = sum((abs(each.amount) for _, each in statement.groups), Decimal(0)) or Decimal(1)
    labels = _labels(of.tenant_id, by, [name for name, _ in statement.groups])
    return [
        GroupRow(
            name=name or "none",
            label=labels.get(name, name or "none"),
            amount=money_text(each.amount, statement.currency),
            lines=each.lines,
            percent=(abs(each.amount) * 100 / total).quantize(Decimal("0.01")),
            href="?" + urlencode(query | {"only": name}) + "#lines",
            is_chosen=name == chosen,
        )
        for name, each in statement.groups
    ]


def _labels(tenant_id: UUID, by: str, names: Sequence[str]) -> dict[str, str]:
    """Returns the names of projects, tiers, classes and people, by their short names."""
    if by == "person":
        people = User.objects.filter(username__in=names)
        return {"": RENTED} | {each.username: each.display_name for each in people}
    found: dict[str, QuerySet[Any]] = {
        "project": Project.objects.filter(tenant_id=tenant_id).values_list("slug", "name"),
        "tier": Tier.objects.values_list("slug", "name"),
        "gpu_class": GpuClass.objects.values_list("slug", "label"),
    }
    of_none = {"": RENTED} if by in ("tier", "gpu_class") else {}
    return of_none | dict(found[by]) if by in found else {}


urlpatterns = [
    path("t/<slug:tenant>/statements", statements, name="statements"),
    path("t/<slug:tenant>/statements/<slug:month>/sums.csv", statement_sums, name="statement-sums"),
    path("t/<slug:tenant>/statements/<slug:month>.<str:kind>", statement_file, name="statement-file"),
]
