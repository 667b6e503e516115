"""Forecasts of budgets: what is spent at the end of their period."""

from datetime import UTC, date
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.queries.bookings.money.projects import runs_out
from billing.access import budgets_visible
from billing.models import Budget
from billing.queries import BudgetFigures, budget_figures_of
from tenants.access import access_project
from tenants.api.base import ApiView, list_response
from tenants.platform.costly import costly
from tenants.platform.rest.fields import Money, Strict, Text
from tenants.platform.rest.schema import described, page


class ForecastOut(serializers.Serializer[Any]):
    """The forecast of a budget, never below what is spent and held; null with less than a week of
    charges."""

    budget = serializers.UUIDField()
    level = serializers.ChoiceField(choices=Budget.Level.values)
    name = serializers.CharField(help_text="Of the organisation, project, campaign or person.")
    project = serializers.CharField(allow_null=True)
    starts = serializers.DateField()
    ends = serializers.DateField(help_text="The first day after it.")
    currency = serializers.CharField()
    amount = Money(max_digits=20)
    committed = Money(max_digits=20, help_text="Spent and held.")
    spend = Money(max_digits=20, allow_null=True, help_text="At the end of the period.")
    low = Money(max_digits=20, allow_null=True, help_text="The range of 8 in 10 back-tests.")
    high = Money(max_digits=20, allow_null=True)
    runs_out = serializers.DateField(
        allow_null=True, help_text="The first day without money; null if it lasts."
    )
    computed_at = serializers.DateTimeField(allow_null=True)


class ForecastQuery(Strict):
    """A filter."""

    level = serializers.ChoiceField(choices=Budget.Level.values, required=False)
    project = Text(required=False, max_length=40)


@costly("statement")
class Forecasts(ApiView):
    """The forecasts of the budgets of today that the caller may see."""

    queries = {"GET": ForecastQuery}

    @described(
        "list_forecasts",
        "Forecasts of the budgets of today, at all levels",
        answer=page(ForecastOut),
        query=ForecastQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists forecasts, by level and name."""
        today = self.now.astimezone(UTC).date()
        with self.tx():
            found = budgets_visible(self.actor).filter(starts__lte=today, ends__gt=today)
            if "level" in self.query:
                found = found.filter(level=self.query["level"])
            if "project" in self.query:
                project = access_project(self.actor, self.query["project"], "project")
                found = found.filter(project=project)
            budgets = list(found.select_related("project"))
            figures = budget_figures_of(budget.id for budget in budgets)
            rows = [_shown(budget, figures[budget.id], today) for budget in budgets]
            rows.sort(key=lambda row: (row["level"], row["name"], str(row["budget"])))
            return list_response(dict(ForecastOut(row).data) for row in rows)


def _shown(budget: Budget, figures: BudgetFigures, today: date) -> dict[str, Any]:
    spend = budget.forecast
    return {
        "budget": budget.id,
        "level": budget.level,
        "name": figures.name,
        "project": budget.project.slug if budget.project else None,
        "starts": budget.starts,
        "ends": budget.ends,
        "currency": figures.currency,
        "amount": figures.amount,
        "committed": figures.spent + figures.held,
        "spend": spend,
        "low": budget.forecast_low,
        "high": budget.forecast_high,
        "runs_out": None
        if spend is None
        else runs_out(figures, spend, today, max(1, (budget.ends - today).days)),
        "computed_at": budget.forecast_at,
    }
