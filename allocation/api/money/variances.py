"""Unusual spend: comparisons with plan and usual days, and the thresholds of each budget."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import SpendVariance
from allocation.queries.bookings.money.variances import labels_seen, parts_seen
from allocation.queries.fleet.catalogue import names_of_use
from allocation.words.variances import cause_name, cause_sentence, parts_shown
from billing.access import (
    access_budget,
    access_platform_budget,
    budgets_visible,
    require_budget_right,
)
from billing.models import Budget
from billing.queries import budget_figures_of
from billing.services import variance_rule_set
from tenants.access import access_project
from tenants.api.base import ApiView, list_response
from tenants.platform.costly import costly
from tenants.platform.rest.fields import Day, Money, Strict, Text, Whole
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

MOST = 200


class VarianceBookingOut(serializers.Serializer[Any]):
    """A booking behind a cause."""

    booking = serializers.CharField()
    amount = Money(max_digits=20, min_value=None)


class VariancePartOut(serializers.Serializer[Any]):
    """A cause of the difference."""

    cause = serializers.CharField(
        help_text="`plan`, `volume`, `class`, `tier`, `price`, `fees` or `corrections`."
    )
    amount = Money(max_digits=20, min_value=None)
    text = serializers.CharField()
    bookings = VarianceBookingOut(many=True, help_text="Those with the largest amounts that you may see.")
    count = serializers.IntegerField(help_text="Of all bookings behind it.")


class VarianceOut(serializers.Serializer[Any]):
    """A comparison: the amounts of its parts add up to `actual` − `expected`."""

    budget = serializers.UUIDField()
    level = serializers.ChoiceField(choices=Budget.Level.values)
    name = serializers.CharField(help_text="Of the organisation, project or campaign.")
    project = serializers.CharField(allow_null=True)
    campaign = serializers.CharField(allow_null=True)
    day = serializers.DateField(help_text="In UTC.")
    against = serializers.ChoiceField(
        choices=SpendVariance.Against.values,
        help_text="`weekday`: the day with the same weekday of up to four weeks before; `plan`: "
        "the period until its end with an even share of the amount.",
    )
    currency = serializers.CharField()
    actual = Money(max_digits=20, min_value=None)
    expected = Money(max_digits=20, min_value=None)
    is_unusual = serializers.BooleanField(help_text="Whether it crossed the thresholds.")
    parts = VariancePartOut(many=True)


VARIANCES = page(VarianceOut)


class VarianceQuery(Strict):
    """A filter; the latest 200 comparisons."""

    project = Text(required=False, max_length=40)
    budget = serializers.UUIDField(required=False)
    day = Day(required=False)
    unusual = serializers.BooleanField(required=False, help_text="Only those that crossed the thresholds.")


class VarianceRuleOut(Strict):
    """From when on spend is unusual: both thresholds have to be crossed."""

    percent = Whole(
        min_value=1,
        max_value=1000,
        allow_null=True,
        help_text="More than expected; null: nobody is notified.",
    )
    amount = Money(max_digits=15, decimal_places=6, help_text="The least difference.")


@costly("statement")
class Variances(ApiView):
    """Comparisons of the budgets that the caller may see."""

    queries = {"GET": VarianceQuery}

    @described(
        "list_variances",
        "Spend compared with plan and usual days, with the causes of the difference",
        answer=VARIANCES,
        query=VarianceQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists comparisons, the latest first."""
        with self.tx():
            budgets = budgets_visible(self.actor)
            if "project" in self.query:
                project = access_project(self.actor, self.query["project"], "project")
                budgets = budgets.filter(project=project)
            if "budget" in self.query:
                budgets = budgets.filter(id=self.query["budget"])
            rows = SpendVariance.objects.filter(budget__in=budgets.order_by().values("id"))
            if "day" in self.query:
                rows = rows.filter(day=self.query["day"])
            if self.query.get("unusual"):
                rows = rows.filter(is_unusual=True)
            found = list(rows.select_related("budget__project", "budget__campaign")[:MOST])
            figures = budget_figures_of({row.budget_id for row in found})
            named = (each["booking"] for row in found for part in row.parts for each in part["bookings"])
            seen = labels_seen(self.actor, named)
            for row in found:
                row.parts = parts_seen(row.parts, seen)
            return list_response(
                dict(
                    VarianceOut(
                        _shown(row, figures[row.budget_id].name, figures[row.budget_id].currency)
                    ).data
                )
                for row in found
            )


class VarianceRule(ApiView):
    """The thresholds of a budget."""

    @described("get_variance_rule", "From when on spend is unusual", answer=VarianceRuleOut)
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Describes the thresholds."""
        with self.tx():
            return Response(_rule(access_budget(self.actor, budget_id)))

    @described(
        "set_variance_rule",
        "Set from when on spend is unusual (tenant admins; below a project also its leads)",
        answer=VarianceRuleOut,
        request=VarianceRuleOut,
    )
    def put(self, request: Request, budget_id: UUID) -> HttpResponseBase:
        """Sets both thresholds."""
        sent = self.sent(VarianceRuleOut)
        with self.tx():
            budget = access_budget(self.actor, budget_id)
            require_budget_right(self.actor, budget.owner)
            variance_rule_set(
                actor_id=self.actor.user_id,
                budget=budget,
                percent=sent["percent"],
                amount=sent["amount"],
                now=self.now,
            )
            return Response(_rule(budget))


@costly("statement")
class PlatformVariances(OperatorView):
    """Comparisons of the budgets of the platform."""

    area = Area.MONEY

    @described(
        "list_platform_variances",
        "Spend of the platform compared with plan and usual days (operators)",
        answer=VARIANCES,
    )
    def get(self, request: Request) -> Response:
        """Lists comparisons, the latest first."""
        self.require_operator()
        with operator_tx():
            found = list(SpendVariance.objects.filter(tenant=None).select_related("budget")[:MOST])
            figures = budget_figures_of({row.budget_id for row in found})
            return list_response(
                dict(
                    VarianceOut(
                        _shown(row, figures[row.budget_id].name, figures[row.budget_id].currency)
                    ).data
                )
                for row in found
            )


class PlatformVarianceRule(OperatorView):
    """The thresholds of a budget of the platform."""

    area = Area.MONEY

    @described(
        "get_platform_variance_rule",
        "From when on spend is unusual (operators)",
        answer=VarianceRuleOut,
    )
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Describes the thresholds."""
        self.require_operator()
        with operator_tx():
            return Response(_rule(access_platform_budget(budget_id)))

    @described(
        "set_platform_variance_rule",
        "Set from when on spend of the platform is unusual (operators)",
        answer=VarianceRuleOut,
        request=VarianceRuleOut,
    )
    def put(self, request: Request, budget_id: UUID) -> Response:
        """Sets both thresholds."""
        sent = self.sent(VarianceRuleOut)
        self.require_operator()
        with operator_tx():
            budget = access_platform_budget(budget_id)
            variance_rule_set(
                actor_id=self.user.pk,
                budget=budget,
                percent=sent["percent"],
                amount=sent["amount"],
                now=self.now,
            )
            return Response(_rule(budget))


def _rule(budget: Budget) -> dict[str, Any]:
    values = {"percent": budget.variance_percent, "amount": budget.variance_amount}
    return dict(VarianceRuleOut(values).data)


def _shown(row: SpendVariance, name: str, currency: str) -> dict[str, Any]:
    budget, names = row.budget, names_of_use()
    return {
        "budget": budget.id,
        "level": budget.level,
        "name": name,
        "project": budget.project.slug if budget.project else None,
        "campaign": budget.campaign.slug if budget.campaign else None,
        "day": row.day,
        "against": row.against,
        "currency": currency,
        "actual": row.actual,
        "expected": row.expected,
        "is_unusual": row.is_unusual,
        "parts": [
            {**part, "text": f"{cause_name(part)}. {cause_sentence(part, currency, names)}".strip()}
            for part in parts_shown(row.parts)
        ],
    }
