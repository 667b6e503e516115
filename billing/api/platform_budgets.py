"""Budgets of the whole platform, which its operators set."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from billing.access import access_platform_budget
from billing.api.budgets import (
    ALERTS,
    BUDGETS,
    AmountChange,
    BudgetOut,
    LadderOut,
    alerts_of_body,
    alerts_shown,
    budgets_shown,
    ladder_shown,
    rungs_asked,
)
from billing.models import Budget
from billing.queries import OWNERS
from billing.rules import BudgetOwner, BudgetTerms, Period
from billing.services import budget_put, ladder_set
from tenants.api.base import ApiView, list_response
from tenants.platform.rest.fields import Day
from tenants.platform.rest.schema import described
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area


class PlatformBudgetNew(AmountChange):
    """A budget for a period of UTC days [starts, ends). It replaces the one of the same period."""

    starts = Day()
    ends = Day()


class PlatformBudgets(ApiView):
    """The budgets of the platform, which count bookings of all organisations."""

    area = Area.MONEY

    @described(
        "list_platform_budgets",
        "Budgets of the platform, the latest first (operators)",
        answer=BUDGETS,
    )
    def get(self, request: Request) -> Response:
        """Lists the budgets with spent, held and left."""
        self.require_operator()
        with operator_tx():
            rows = Budget.objects.filter(level=Budget.Level.PLATFORM).select_related(*OWNERS)
            return list_response(budgets_shown(list(rows.order_by("-starts"))))

    @described(
        "set_platform_budget",
        "Set a budget of the platform for a period (operators)",
        answer=BudgetOut,
        status=201,
        request=PlatformBudgetNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates the budget, or changes the one of the period."""
        sent = self.sent(PlatformBudgetNew)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                names = ("warn_percent", "is_hard", "is_repeated", "rolls_over")
                more: dict[str, Any] = {name: sent.get(name) for name in names}
                terms = BudgetTerms(Period(sent["starts"], sent["ends"]), sent["amount"], **more)
                budget = budget_put(
                    actor_id=self.actor.user_id, owner=BudgetOwner(None), terms=terms, now=self.now
                )
                alerts_of_body(self.actor.user_id, budget, sent, self.now)
                return Response(budgets_shown([budget])[0], status=201)

        return self.once(work)


class PlatformLadder(ApiView):
    """The ladder of a budget of the platform."""

    area = Area.MONEY

    @described("get_platform_ladder", "The ladder of a budget (operators)", answer=LadderOut)
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Describes the rungs."""
        self.require_operator()
        with operator_tx():
            return Response(ladder_shown(access_platform_budget(budget_id)))

    @described(
        "set_platform_ladder",
        "Replace the ladder of a budget of the platform (operators)",
        answer=LadderOut,
        request=LadderOut,
    )
    def put(self, request: Request, budget_id: UUID) -> Response:
        """Replaces the rungs. None of them can ask for an approval."""
        sent = self.sent(LadderOut)
        self.require_operator()
        with operator_tx():
            budget = access_platform_budget(budget_id)
            rungs = rungs_asked(budget, sent["rungs"])
            ladder_set(actor_id=self.actor.user_id, budget=budget, rungs=rungs, now=self.now)
            return Response(ladder_shown(budget))


class PlatformAlerts(ApiView):
    """The history of alerts and limits of a budget of the platform."""

    area = Area.MONEY

    @described(
        "list_platform_budget_alerts",
        "When alerts and limits of a budget of the platform were reached (operators)",
        answer=ALERTS,
    )
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Lists the latest first."""
        self.require_operator()
        with operator_tx():
            return list_response(alerts_shown(access_platform_budget(budget_id)))
