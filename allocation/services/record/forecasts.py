"""The forecasts of budgets at all levels, stored for ladders and pages."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import Sum

from allocation.models import ChargeSum
from allocation.queries.bookings.money.projects import forecast_of
from allocation.rules.forecast import HISTORY
from billing.models import Budget
from billing.queries import budget_figures_of
from billing.rules import BudgetOwner

ZERO = Decimal(0)
_FACTS = (
    "tenant_id",
    "account__budget__project_id",
    "account__budget__project__lab_id",
    "owner_id",
    "campaign_id",
    "day",
)


def forecasts_store(now: datetime) -> int:
    """Computes the forecast of each budget of today; returns how many have one.

    Each level has a history of its own: what was charged on the platform, in the organisation, the
    lab, the project, the campaign, or by the person in the project.
    """
    today = now.astimezone(UTC).date()
    budgets = {each.id: each for each in Budget.objects.filter(starts__lte=today, ends__gt=today)}
    figures = budget_figures_of(budgets)
    tenants = {each.tenant_id for each in budgets.values() if each.tenant_id}
    is_all = len(budgets) > sum(each.tenant_id is not None for each in budgets.values())
    charged = _charged(None if is_all else tenants, today - timedelta(days=HISTORY))
    found = 0
    for key, budget in budgets.items():
        recent = _recent(charged.get(_scope(budget), {}), today)
        forecast = forecast_of(effect=figures[key], recent=recent, today=today)
        budget.forecast, budget.forecast_low, budget.forecast_high = (
            (forecast.spend, forecast.low, forecast.high) if forecast else (None, None, None)
        )
        budget.forecast_at = now
        found += forecast is not None
    fields = ["forecast", "forecast_low", "forecast_high", "forecast_at"]
    Budget.objects.bulk_update(budgets.values(), fields, batch_size=500)
    return found


def _scope(budget: Budget) -> Hashable:
    return budget.owner


def _charged(tenants: Iterable[UUID] | None, since: date) -> dict[Hashable, dict[date, Decimal]]:
    """Charges minus corrections per UTC day of all or some tenants, by the scopes that budgets can
    have."""
    found: dict[Hashable, dict[date, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    rows = ChargeSum.objects.filter(day__gte=since)
    if tenants is not None:
        rows = rows.filter(tenant__in=tenants)
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


def _recent(charged: dict[date, Decimal], today: date) -> list[Decimal]:
    """The full days from the first charge on, oldest first."""
    if not charged:
        return []
    observed = (today - min(charged)).days
    return [charged.get(today - timedelta(days=back), ZERO) for back in range(observed, 0, -1)]
