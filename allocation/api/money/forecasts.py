"""Forecasts of budgets: what is spent at the end of their period."""

from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.queries.bookings.money.forecasts import BudgetForecast, forecasts_of
from billing.access import budgets_visible
from billing.models import Budget
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
    computed_at = serializers.DateTimeField(help_text="Now: with what is held at this instant.")


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
            rows = budgets_visible(self.actor).filter(starts__lte=today, ends__gt=today)
            if "level" in self.query:
                rows = rows.filter(level=self.query["level"])
            if "project" in self.query:
                project = access_project(self.actor, self.query["project"], "project")
                rows = rows.filter(project=project)
            budgets = list(rows.select_related("project"))
            found = forecasts_of(budgets, self.now)
            shown = [_shown(budget, found[budget.id], self.now) for budget in budgets]
            shown.sort(key=lambda row: (row["level"], row["name"], str(row["budget"])))
            return list_response(dict(ForecastOut(row).data) for row in shown)


def _shown(budget: Budget, found: BudgetForecast, now: datetime) -> dict[str, Any]:
    figures, forecast = found.figures, found.forecast
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
        "spend": forecast.spend if forecast else None,
        "low": forecast.low if forecast else None,
        "high": forecast.high if forecast else None,
        "runs_out": forecast.runs_out if forecast else None,
        "computed_at": now,
    }
