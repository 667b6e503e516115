"""Budgets: the amounts that projects may spend in a period, and their use."""

from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.models import Budget
from billing.queries import BudgetFigures, budgets_figures
from billing.rules import Period, month_after, month_of
from billing.services import budget_set
from tenants.access import Actor, access_project, require_tenant_admin
from tenants.api.base import ApiView, list_response
from tenants.models import Project
from tenants.platform.errors import missing
from tenants.platform.fields import Day, Money, Strict, Text, Whole
from tenants.platform.schema import described, page


class BudgetOut(serializers.Serializer[Any]):
    """A budget: `amount` = `spent` + `held` + `left`."""

    id = serializers.UUIDField(source="budget_id")
    project = serializers.CharField()
    starts = serializers.DateField()
    ends = serializers.DateField(help_text="The first day after it.")
    currency = serializers.CharField()
    amount = Money(max_digits=20)
    spent = Money(max_digits=20)
    held = Money(max_digits=20)
    left = Money(max_digits=20, min_value=None)
    warn_percent = serializers.IntegerField()


class BudgetQuery(Strict):
    """A filter; without dates the budgets of this and the next month."""

    project = Text(required=False, max_length=40)
    starts = Day(required=False)
    ends = Day(required=False)

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Fills in the default period. Raises ValidationError."""
        this_month = month_of(timezone.now().date())
        starts = given.setdefault("starts", this_month.starts)
        ends = given.setdefault("ends", month_after(month_after(starts)))
        if not starts < ends:
            raise serializers.ValidationError(
                {"ends": ["`ends` must be after `starts`."]}, code="bad_period"
            )
        return given


class BudgetChange(Strict):
    """A new amount, and the warning level."""

    amount = Money(max_digits=15, decimal_places=6)
    warn_percent = Whole(required=False, min_value=1, max_value=100)


class BudgetNew(BudgetChange):
    """A budget of a project for a period of UTC days [starts, ends)."""

    project = Text(max_length=40)
    starts = Day()
    ends = Day()


class Budgets(ApiView):
    """The budgets of the caller's projects."""

    queries = {"GET": BudgetQuery}

    @described(
        "list_budgets",
        "Budgets with spent, held and left",
        answer=page(BudgetOut),
        query=BudgetQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists budgets by project and start."""
        with self.tx():
            projects = _projects(self.actor, self.query.get("project"))
            effects = budgets_figures(
                tenant_id=self.actor.tenant_id,
                project_ids=projects,
                period=Period(self.query["starts"], self.query["ends"]),
            )
        return list_response(_shown(effect, projects[effect.project_id]) for effect in effects)

    @described(
        "create_budget",
        "Set a project's budget for a period (tenant admins)",
        answer=BudgetOut,
        status=201,
        request=BudgetNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates the budget, or changes the one of the period."""
        sent = self.sent(BudgetNew)

        def work() -> Response:
            project = access_project(self.actor, sent["project"], "project")
            require_tenant_admin(self.actor)
            period = Period(sent["starts"], sent["ends"])
            return Response(_set(self.actor, project, period, sent, self.now), status=201)

        return self.once(work)


class BudgetOne(ApiView):
    """One budget."""

    @described("get_budget", "One budget", answer=BudgetOut)
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Describes the budget."""
        with self.tx():
            budget = access_budget(self.actor, budget_id)
            return Response(_one(budget))

    @described(
        "set_budget",
        "Change a budget's amount (tenant admins)",
        answer=BudgetOut,
        request=BudgetChange,
    )
    def put(self, request: Request, budget_id: UUID) -> Response:
        """Changes the budget."""
        sent = self.sent(BudgetChange)
        with self.tx():
            budget = access_budget(self.actor, budget_id)
            require_tenant_admin(self.actor)
            period = Period(budget.starts, budget.ends)
            sent.setdefault("warn_percent", budget.warn_percent)
            return Response(_set(self.actor, budget.project, period, sent, self.now))


def access_budget(actor: Actor, budget_id: UUID) -> Budget:
    """The budget, if the actor may see its project.

    Raises:
        Refused: `not_found`.
    """
    budget = (
        Budget.objects.filter(tenant_id=actor.tenant_id, id=budget_id)
        .select_related("project")
        .first()
    )
    if budget is None or actor.role_in(budget.project_id) is None:
        raise missing("budget")
    return budget


def _set(
    actor: Actor, project: Project, period: Period, sent: dict[str, Any], now: datetime
) -> dict[str, Any]:
    budget = budget_set(
        actor_id=actor.user_id,
        project=project,
        period=period,
        amount=sent["amount"],
        warn_percent=sent.get("warn_percent", 80),
        now=now,
    )
    return _one(budget)


def _one(budget: Budget) -> dict[str, Any]:
    effects = budgets_figures(
        tenant_id=budget.tenant_id,
        project_ids=[budget.project_id],
        period=Period(budget.starts, budget.ends),
    )
    effect = next(effect for effect in effects if effect.budget_id == budget.id)
    return _shown(effect, budget.project.slug)


def _shown(effect: BudgetFigures, slug: str) -> dict[str, Any]:
    return dict(BudgetOut({**asdict(effect), "project": slug}).data)


def _projects(actor: Actor, slug: str | None) -> dict[UUID, str]:
    if slug is not None:
        project = access_project(actor, slug, "project")
        return {project.id: project.slug}
    rows = Project.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        rows = rows.filter(id__in=actor.roles)
    return dict(rows.order_by("slug").values_list("id", "slug"))
