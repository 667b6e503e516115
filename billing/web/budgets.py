"""The tenant's budgets: one row per project and period, edited in place by its admins."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from billing.queries import BudgetFigures, budgets_figures
from billing.rules import Period, amount_parse, money_text, month_of, period_text
from billing.services import budget_set
from billing.web.budget_bar import BudgetBar, budget_bar
from tenants.access import Actor, access_project, require_tenant_admin
from tenants.models import Project
from tenants.platform.errors import Refused, invalid
from tenants.web.frame import tenant_page

WARN_DEFAULT = 80
YEARS = range(2000, 2200)


@dataclass(frozen=True, slots=True)
class RefusedBudget:
    """What a form sent for one row, and what was wrong with it."""

    project: str
    starts: str
    amount: str
    warn_percent: str
    param: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Row:
    """A project in a period; `bar` is None while it has no budget there."""

    key: str
    project: Project
    period: Period
    bar: BudgetBar | None
    amount: str
    warn_percent: str
    error: RefusedBudget | None

    @property
    def is_amount_wrong(self) -> bool:
        """Whether its form was refused, for another reason than its warning."""
        return self.error is not None and self.error.param != "warn_percent"

    @property
    def period_text(self) -> str:
        """The period in words."""
        return period_text(self.period)


@dataclass(frozen=True, slots=True)
class Totals:
    """The tenant's line: sums over the rows shown, and how many of them need attention."""

    amount: str
    spent: str
    held: str
    left: str
    warning: int
    without: int


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def budgets(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows a month (`?month=2026-11`); POST sets one budget."""
    now = timezone.now()
    if request.method != "POST":
        month = _month(request.GET.get("month", ""), now.astimezone(UTC).date())
        return _page(request, actor, month, None)
    require_tenant_admin(actor)
    month = _month(request.POST.get("month", ""), now.astimezone(UTC).date())
    try:
        project = access_project(actor, request.POST.get("project", ""), "project")
        period = _period(request.POST)
        amount = amount_parse(request.POST.get("amount", ""), param="amount")
        budget = budget_set(
            actor_id=actor.user_id,
            project=project,
            period=period,
            amount=amount,
            warn_percent=_warn_percent(request.POST.get("warn_percent", "")),
            now=now,
        )
    except Refused as refusal:
        if refusal.kind in ("missing", "denied"):
            raise
        return _page(request, actor, month, _typed(request.POST, refusal))
    text = money_text(amount, budget.account.currency)
    messages.success(request, f"Budget of {project.name} for {period_text(period)} set to {text}.")
    return redirect(f"{reverse('budgets', args=[actor.tenant_slug])}?month={month.starts:%Y-%m}")


def _page(
    request: HttpRequest, actor: Actor, month: Period, typed: RefusedBudget | None
) -> HttpResponse:
    projects = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name", "id")
    if not actor.is_tenant_admin:
        projects = projects.filter(id__in=actor.roles)
    shown = list(projects)
    effects = budgets_figures(
        tenant_id=actor.tenant_id, project_ids=[each.id for each in shown], period=month
    )
    rows = _rows(shown, effects, month, typed)
    before = month_of(month.starts - timedelta(days=1))
    return render(
        request,
        "billing/budgets.html",
        {
            "month": month,
            "month_text": period_text(month),
            "before": before,
            "before_text": period_text(before),
            "after": month_of(month.ends),
            "after_text": period_text(month_of(month.ends)),
            "rows": rows,
            "totals": _totals(effects, rows),
            # A refusal of a row that is not shown appears above the table.
            "stray": None if typed is None or any(row.error for row in rows) else typed,
            "may_edit": actor.is_tenant_admin,
            "people_url": f"/t/{actor.tenant_slug}/people",
        },
        status=422 if typed else 200,
    )


def _rows(
    projects: Sequence[Project],
    effects: Sequence[BudgetFigures],
    month: Period,
    typed: RefusedBudget | None,
) -> list[Row]:
    rows = []
    for project in projects:
        own = [effect for effect in effects if effect.project_id == project.id]
        rows += [_row(project, effect.period, effect, typed) for effect in own]
        if not own:
            rows.append(_row(project, month, None, typed))
    return rows


def _row(
    project: Project, period: Period, effect: BudgetFigures | None, typed: RefusedBudget | None
) -> Row:
    starts = period.starts.isoformat()
    error = typed if typed and (typed.project, typed.starts) == (project.slug, starts) else None
    amount = f"{effect.amount:.2f}" if effect else ""
    warn_percent = str(effect.warn_percent if effect else WARN_DEFAULT)
    return Row(
        key=f"{project.slug}-{starts}",
        project=project,
        period=period,
        bar=budget_bar(effect) if effect else None,
        amount=error.amount if error else amount,
        warn_percent=error.warn_percent if error else warn_percent,
        error=error,
    )


def _totals(effects: Sequence[BudgetFigures], rows: Sequence[Row]) -> Totals | None:
    if not effects:
        return None
    currency = effects[0].currency

    def text(amounts: list[Decimal]) -> str:
        return money_text(sum(amounts, Decimal(0)), currency)

    return Totals(
        amount=text([effect.amount for effect in effects]),
        spent=text([effect.spent for effect in effects]),
        held=text([effect.held for effect in effects]),
        left=text([effect.left for effect in effects]),
        warning=sum(effect.is_warning for effect in effects),
        without=sum(row.bar is None for row in rows),
    )


def _typed(form: QueryDict, refusal: Refused) -> RefusedBudget:
    return RefusedBudget(
        project=form.get("project", ""),
        starts=form.get("starts", ""),
        amount=form.get("amount", ""),
        warn_percent=form.get("warn_percent", ""),
        param=refusal.param or "amount",
        sentence=refusal.sentence,
    )


def _month(text: str, today: date) -> Period:
    """Returns the month of `2026-11`; this month for any other text."""
    try:
        return month_of(_day(f"{text}-01"))
    except ValueError:
        return month_of(today)


def _period(form: QueryDict) -> Period:
    try:
        return Period(_day(form.get("starts", "")), _day(form.get("ends", "")))
    except ValueError:
        raise invalid("bad_period", "Choose a month.", "starts") from None


def _day(text: str) -> date:
    """Returns a day of the supported years. Raises ValueError."""
    day = date.fromisoformat(text)
    if day.year not in YEARS:
        raise ValueError("a year that no calendar here goes to")
    return day


def _warn_percent(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= 100):
        raise invalid("bad_warning", "Enter a warning level from 1 to 100 percent.", "warn_percent")
    return int(text)
