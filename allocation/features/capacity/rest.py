"""REST of capacity: offers, plans, and their machines."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.capacity.causes.backlog import BacklogRuleTerms, backlog_rule_set
from allocation.features.capacity.causes.forecast import ForecastRuleTerms, forecast_rule_set
from allocation.features.capacity.causes.renting import rules_of
from allocation.features.capacity.mix.rest import rest as mix_rest
from allocation.features.capacity.models import (
    BacklogRule,
    CapacityMachine,
    CapacityPlan,
    ForecastRule,
    SprintRule,
)
from allocation.features.capacity.orphans import orphan_release
from allocation.features.capacity.providers import offers
from allocation.features.capacity.rules import Offer
from allocation.features.capacity.services import (
    PlanTerms,
    machines_visible,
    plan_approve,
    plan_cancel,
    plan_create,
    plan_one,
    plans_visible,
)
from allocation.features.capacity.sprints import SprintRuleTerms, sprint_rule_of, sprint_rule_set
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.fields import Money
from tenants.platform.rest.terms import Slug, Username
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.PROJECT, in_project=True)
ops = Endpoints(Scope.FLEET, for_operators=True, area=Area.FLEET)


class OfferOut(serializers.Serializer[Any]):
    """A kind of machine that a provider offers."""

    provider = serializers.CharField()
    name = serializers.CharField()
    gpu_class = serializers.CharField()
    gpus = serializers.IntegerField(help_text="Of a machine.")
    price = Money(max_digits=20, help_text="Of a machine in an hour.")
    currency = serializers.CharField()
    lead_seconds = serializers.IntegerField(help_text="The usual time until it takes work.")
    least_seconds = serializers.IntegerField(help_text="The first paid period.")
    period_seconds = serializers.IntegerField(help_text="Every later one.")
    zone = serializers.CharField()
    interruptible = serializers.BooleanField(help_text="Its provider may take it back.")


class MachineOut(serializers.Serializer[Any]):
    """A machine of a provider. An orphan is there and belongs to no plan."""

    id = serializers.UUIDField()
    plan = serializers.UUIDField(source="plan_id", allow_null=True)
    provider = serializers.CharField()
    offer = serializers.CharField()
    name = serializers.CharField(help_text="Of the machine at its provider.")
    node = serializers.CharField(help_text="Its node in the fleet.")
    gpu_class = serializers.CharField(source="gpu_class_id", allow_null=True)
    gpus = serializers.IntegerField()
    zone = serializers.CharField()
    state = serializers.ChoiceField(CapacityMachine.State.values)
    note = serializers.CharField(help_text="What is wrong, or why it left.")
    requested = serializers.DateTimeField()
    came = serializers.DateTimeField(allow_null=True)
    ready = serializers.DateTimeField(allow_null=True)
    paid_until = serializers.DateTimeField(allow_null=True)
    leaves = serializers.DateTimeField(
        allow_null=True, help_text="When its provider takes it back, by its own notice."
    )
    released = serializers.DateTimeField(allow_null=True)
    cost = Money(max_digits=20, help_text="Until the end of its paid period.")
    currency = serializers.CharField()


class PlanFields(serializers.Serializer[Any]):
    """What is shown of a plan, without its `source`, which is a name of serializers."""

    id = serializers.UUIDField()
    project = Slug()
    gpu_class = serializers.CharField(source="gpu_class_id")
    count = serializers.IntegerField(source="gpus", help_text="GPUs at once.")
    starts = serializers.DateTimeField()
    until = serializers.DateTimeField()
    most_cost = Money(max_digits=20)
    committed = Money(max_digits=20, help_text="What its machines cost until the end of their paid periods.")
    charged = Money(max_digits=20, help_text="What they cost beyond what bookings on them paid.")
    currency = serializers.CharField()
    booking = serializers.CharField(
        source="booking.label", default=None, allow_null=True, help_text="The only booking that it is for."
    )
    reference = serializers.CharField(
        help_text="Address of the sprint, or `backlog:` or `forecast:` and its class."
    )
    state = serializers.ChoiceField(CapacityPlan.State.values)
    note = serializers.CharField()
    created = serializers.DateTimeField()
    created_by = Username()
    ended = serializers.DateTimeField(allow_null=True)


class SprintRuleOut(serializers.Serializer[Any]):
    """What each sprint of a project may rent."""

    project = Slug()
    mode = serializers.ChoiceField(SprintRule.Mode.values)
    gpu_class = serializers.CharField(source="gpu_class_id")
    count = serializers.IntegerField(source="gpus")
    most_cost = Money(max_digits=20)
    issue = serializers.CharField()
    changed = serializers.DateTimeField()
    changed_by = Username()


class BacklogRuleOut(serializers.Serializer[Any]):
    """What a project rents of a class when its bookings would wait for too long."""

    project = Slug()
    mode = serializers.ChoiceField(BacklogRule.Mode.values)
    gpu_class = serializers.CharField(source="gpu_class_id")
    wait_minutes = serializers.IntegerField()
    count = serializers.IntegerField(source="gpus")
    hours = serializers.IntegerField(help_text="That a plan is open.")
    most_cost = Money(max_digits=20, help_text="Of its plans of a calendar month (UTC).")
    note = serializers.CharField(help_text="Why it could make no plan at its last attempt.")
    changed = serializers.DateTimeField()
    changed_by = Username()


class ForecastRuleOut(serializers.Serializer[Any]):
    """What a project rents of a class for hours in which GPUs are expected to be short."""

    project = Slug()
    mode = serializers.ChoiceField(ForecastRule.Mode.values)
    gpu_class = serializers.CharField(source="gpu_class_id")
    hours = serializers.IntegerField(help_text="So many hours have to be short at least.")
    days = serializers.IntegerField(help_text="Of the coming days that are looked at.")
    count = serializers.IntegerField(source="gpus")
    most_cost = Money(max_digits=20, help_text="Of its plans of a calendar month (UTC).")
    note = serializers.CharField(help_text="Why it could make no plan at its last attempt.")
    checked = serializers.DateTimeField(allow_null=True, help_text="When it last read the forecast.")
    changed = serializers.DateTimeField()
    changed_by = Username()


_SOURCE = {"source": serializers.ChoiceField(CapacityPlan.Source.values)}
_DOC = {"__doc__": "A project's plan to rent GPUs, for at most so much money."}
_WITH = {
    "__doc__": "The same with its machines, the newest first.",
    "machines": MachineOut(many=True, source="machines.all"),
}
PlanOut: type[PlanFields] = type("PlanOut", (PlanFields,), _SOURCE | _DOC)
PlanWithMachinesOut: type[PlanFields] = type("PlanWithMachinesOut", (PlanFields,), _SOURCE | _WITH)


@rest.list("capacity/offers", "List what providers offer", OfferOut)
def list_capacity_offers(call: ApiView) -> list[Offer]:
    """Lists the offers of all providers; none where the site rents no machines."""
    return offers()


@rest.list("capacity/plans", "List plans of capacity", PlanOut, order=("-created", "-id"))
def list_capacity_plans(call: ApiView) -> QuerySet[CapacityPlan]:
    """Lists the plans of your projects; admins see all."""
    return plans_visible(call.actor)


@rest.post("capacity/plans", "Plan to rent GPUs", PlanOut, terms=PlanTerms, status=201)
def create_capacity_plan(call: ApiView, terms: PlanTerms) -> CapacityPlan:
    """A lead's plan is active at once and holds its money; others' plans wait for a lead."""
    return plan_create(actor=call.actor, terms=terms, now=call.now)


@rest.get("capacity/plans/<uuid:capacity_plan_id>", "Read a plan of capacity", PlanWithMachinesOut)
def read_capacity_plan(call: ApiView, capacity_plan_id: UUID) -> CapacityPlan:
    """Reads a plan with its machines."""
    return plan_one(call.actor, capacity_plan_id)


@rest.post("capacity/plans/<uuid:capacity_plan_id>/approve", "Approve a plan of capacity", PlanOut)
def approve_capacity_plan(call: ApiView, capacity_plan_id: UUID) -> CapacityPlan:
    """Approves a proposed plan as a lead."""
    return plan_approve(actor=call.actor, plan_id=capacity_plan_id, now=call.now)


@rest.post("capacity/plans/<uuid:capacity_plan_id>/cancel", "Cancel a plan of capacity", PlanOut)
def cancel_capacity_plan(call: ApiView, capacity_plan_id: UUID) -> CapacityPlan:
    """Cancels it. Machines are given back when nothing runs on them, at the end of a paid period."""
    return plan_cancel(actor=call.actor, plan_id=capacity_plan_id, now=call.now)


@rest.list("capacity/machines", "List rented machines", MachineOut, order=("-requested", "-id"))
def list_capacity_machines(call: ApiView) -> QuerySet[CapacityMachine]:
    """Lists the machines of your projects' plans."""
    return machines_visible(call.actor)


@rest.get("projects/<slug:slug>/sprint-rule", "Read what sprints of a project rent", SprintRuleOut)
def read_sprint_rule(call: ApiView, slug: str) -> SprintRule:
    """Reads the rule of a project."""
    return sprint_rule_of(call.actor, slug)


@rest.put(
    "projects/<slug:slug>/sprint-rule",
    "Set what sprints of a project rent",
    SprintRuleOut,
    terms=SprintRuleTerms,
)
def set_sprint_rule(call: ApiView, terms: SprintRuleTerms, slug: str) -> SprintRule:
    """A lead sets it. It acts on sprints of boards that Jira is mapped to, when they start and close."""
    return sprint_rule_set(actor=call.actor, project=slug, terms=terms, now=call.now)


@rest.list(
    "projects/<slug:slug>/backlog-rules", "List what a project's backlog rents", BacklogRuleOut, order=("id",)
)
def list_backlog_rules(call: ApiView, slug: str) -> QuerySet[BacklogRule]:
    """Lists the rules of a project, one for each class."""
    return rules_of(BacklogRule, call.actor, slug)


@rest.put(
    "projects/<slug:slug>/backlog-rules",
    "Set what a project's backlog rents of a class",
    BacklogRuleOut,
    terms=BacklogRuleTerms,
)
def set_backlog_rule(call: ApiView, terms: BacklogRuleTerms, slug: str) -> BacklogRule:
    """A lead sets it. While one of its plans is open, it makes no other one."""
    return backlog_rule_set(actor=call.actor, project=slug, terms=terms, now=call.now)


@rest.list(
    "projects/<slug:slug>/forecast-rules",
    "List what a project rents for expected shortages",
    ForecastRuleOut,
    order=("id",),
)
def list_forecast_rules(call: ApiView, slug: str) -> QuerySet[ForecastRule]:
    """Lists the rules of a project, one for each class."""
    return rules_of(ForecastRule, call.actor, slug)


@rest.put(
    "projects/<slug:slug>/forecast-rules",
    "Set what a project rents of a class for expected shortages",
    ForecastRuleOut,
    terms=ForecastRuleTerms,
)
def set_forecast_rule(call: ApiView, terms: ForecastRuleTerms, slug: str) -> ForecastRule:
    """A lead sets it. While one of its plans is open, it makes no other one."""
    return forecast_rule_set(actor=call.actor, project=slug, terms=terms, now=call.now)


@ops.list("platform-machines", "List all rented machines", MachineOut, order=("-requested", "-id"))
def list_rented_machines(call: ApiView) -> QuerySet[CapacityMachine]:
    """Lists the machines of all providers, with orphans."""
    return CapacityMachine.objects.all()


@ops.post("platform-machines/<uuid:machine_id>/release", "Give an orphan back", MachineOut)
def release_orphan(call: ApiView, machine_id: UUID) -> CapacityMachine:
    """Has the worker give an orphan back to its provider. Whatever runs on it is lost."""
    return orphan_release(operator_id=call.actor.user_id, machine_id=machine_id, now=call.now)


urlpatterns = rest.urls + ops.urls + mix_rest.urls
