"""Forecasts of budgets: the only place that computes them, for pages, REST and ladders."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import Sum

from allocation.models import ChargeSum
from allocation.queries.bookings.money.projects import Forecast, forecast_of
from allocation.queries.bookings.money.spending import charged_by_day_in, spent_by_day
from allocation.rules.forecast import HISTORY
from billing.models import Budget
from billing.queries import BudgetFigures, budget_figures_of
from billing.rules import BudgetOwner
from tenants.models import Project

ZERO = Decimal(0)
DAY = timedelta(days=1)
_FACTS = (
    "tenant_id",
    "account__budget__project_id",
    "account__budget__project__lab_id",
    "owner_id",
    "campaign_id",
    "day",
)
ByDay = Mapping[date, Decimal]


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """The figures of a budget, its forecast, and the full days of charges behind it.

    `forecast` is None while `observed` is below seven.
    """

    figures: BudgetFigures
    observed: int
    forecast: Forecast | None


@dataclass(frozen=True, slots=True)
class BudgetHistory:
    """A budget by UTC days. `days[i]` is the charge on its i-th day, up to today."""

    effect: BudgetFigures
    today: date
    days: tuple[Decimal, ...]
    observed: int
    forecast: Forecast | None


def forecasts_of(budgets: Iterable[Budget], now: datetime) -> dict[UUID, BudgetForecast]:
    """The forecasts of budgets of today, each with what is spent and held at this instant.

    Each level has a history of its own: what was charged on the platform, in the organisation, the
    lab, the project, the campaign, or by the person in the project.
    """
    today = now.astimezone(UTC).date()
    known = {each.id: each for each in budgets}
    figures = budget_figures_of(known)
    charged = _charged(list(known.values()), today)
    projects = Project.objects.filter(id__in={each.project_id for each in known.values()})
    closed = set(projects.filter(is_open=False).values_list("id", flat=True))
    return {
        key: _forecast(figures[key], charged.get(each.owner, {}), today, is_closed=each.project_id in closed)
        for key, each in known.items()
    }


def forecast_today(budget: Budget, now: datetime) -> BudgetForecast | None:
    """The forecast of a budget; None outside its period."""
    if not budget.starts <= now.astimezone(UTC).date() < budget.ends:
        return None
    return forecasts_of([budget], now)[budget.id]


def history_of_budget(budget: Budget, now: datetime) -> BudgetHistory | None:
    """A budget of any level by days; None outside its period."""
    today, found = now.astimezone(UTC).date(), forecast_today(budget, now)
    if found is None:
        return None
    charged = spent_by_day(budget, today + DAY)
    count = (today - budget.starts).days + 1
    return BudgetHistory(
        effect=found.figures,
        today=today,
        days=tuple(charged.get(budget.starts + n * DAY, ZERO) for n in range(count)),
        observed=found.observed,
        forecast=found.forecast,
    )


def _forecast(figures: BudgetFigures, charged: ByDay, today: date, *, is_closed: bool) -> BudgetForecast:
    """From the full days, the first one with a charge on, oldest first. In a closed project nothing is
    booked any more, so what is spent and held is all."""
    observed = (today - min(charged)).days if charged else 0
    recent = [charged.get(today - back * DAY, ZERO) for back in range(observed, 0, -1)]
    found = forecast_of(effect=figures, recent=recent, today=today)
    if found is not None and is_closed:
        sure = figures.spent + figures.held
        found = Forecast(spend=sure, low=sure, high=sure, per_day=ZERO, runs_out=None)
    return BudgetForecast(figures, observed, found)


def _charged(budgets: list[Budget], today: date) -> Mapping[Hashable, ByDay]:
    """Charges minus corrections of the latest days, by what the budgets count."""
    since = today - HISTORY * DAY
    if len(budgets) == 1:
        (budget,) = budgets
        return {budget.owner: charged_by_day_in(budget, since, today + DAY)}
    rows = ChargeSum.objects.filter(day__gte=since)
    tenants = {each.tenant_id for each in budgets}
    if None not in tenants:
        rows = rows.filter(tenant__in=tenants)
    found: dict[Hashable, dict[date, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for tenant, project, lab, person, campaign, day, total in (
        rows.values(*_FACTS).annotate(total=Sum("exact")).values_list(*_FACTS, "total")
    ):
        scopes = [
            BudgetOwner(None),
            BudgetOwner(tenant),
            BudgetOwner(tenant, project),
            BudgetOwner(tenant, project, person_id=person),
        ]
        if lab is not None:
            scopes.append(BudgetOwner(tenant, lab_id=lab))
        if campaign is not None:
            scopes.append(BudgetOwner(tenant, project, campaign))
        for scope in scopes:
            found[scope][day] += total
    return found
