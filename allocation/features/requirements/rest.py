"""REST of terms and training: what classes and tiers demand, and who meets it."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.requirements.checks import (
    RequirementState,
    acceptances_of,
    requirement_states,
    requirements_open,
)
from allocation.features.requirements.models import Acceptance, Requirement
from allocation.features.requirements.services import (
    RequirementTerms,
    TrainingTerms,
    class_requirement_end,
    class_requirement_set,
    requirement_accept,
    requirement_seen,
    tier_requirement_end,
    tier_requirement_set,
    training_record,
)
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.errors import missing
from tenants.platform.rest.terms import Username
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

MOST_SHOWN = 1000
rest = Endpoints(Scope.ADMIN, area=Area.RULES)
mine = Endpoints(Scope.BOOK)
admins = Endpoints(Scope.ADMIN)


class RequirementOut(serializers.Serializer[Any]):
    """A requirement in force, and whether the caller meets it."""

    id = serializers.UUIDField(source="requirement.id")
    target = serializers.CharField(source="requirement.target")
    kind = serializers.ChoiceField(source="requirement.kind", choices=Requirement.Kind.values)
    name = serializers.CharField(source="requirement.name")
    version = serializers.IntegerField(source="requirement.version")
    text = serializers.CharField(source="requirement.text")
    valid_days = serializers.IntegerField(source="requirement.valid_days", allow_null=True)
    projects = serializers.ListField(
        source="requirement.projects",
        child=serializers.CharField(),
        help_text="Where the tier demands it; empty: in all projects.",
    )
    ended = serializers.DateTimeField(source="requirement.ended", allow_null=True)
    is_met = serializers.BooleanField()
    until = serializers.SerializerMethodField(help_text="Until when the caller meets it.")

    def get_until(self, state: RequirementState) -> str | None:
        """Returns the end of the caller's acceptance; null without one."""
        row = state.acceptance
        return row.until.isoformat() if row is not None and row.until is not None else None


class AcceptanceOut(serializers.Serializer[Any]):
    """Who accepted a text or had a training."""

    user = Username()
    version = serializers.IntegerField(source="requirement.version")
    at = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    address = serializers.IPAddressField(allow_null=True)
    recorded_by = Username()


@rest.list("requirements", "Terms and training", RequirementOut)
def list_requirements(call: ApiView) -> list[RequirementState]:
    """Lists what classes and tiers demand, and whether the caller meets it."""
    tenant = call.actor.tenant_id
    return requirement_states(requirements_open(tenant), tenant, call.actor.user_id, call.now)


@rest.post(
    "requirements",
    "Demand a text or training (tenant admins, operators)",
    RequirementOut,
    terms=RequirementTerms,
    status=201,
)
def set_requirement(call: ApiView, terms: RequirementTerms) -> RequirementState:
    """Sets it for a tier of the tenant, or, as an operator, for a class."""
    if terms.of == "tier":
        return _state(tier_requirement_set(actor=call.actor, terms=terms, now=call.now))
    call.require_operator()
    actor = PlatformActor.of(call.user)
    with operator_tx():
        return _state(class_requirement_set(actor=actor, terms=terms, now=call.now))


@mine.post("requirements/<uuid:requirement_id>/accept", "Accept a text", AcceptanceOut, status=201)
def accept_requirement(call: ApiView, requirement_id: UUID) -> Acceptance:
    """Records that the caller accepts this version, with time and address."""
    return requirement_accept(actor=call.actor, requirement_id=requirement_id, now=call.now)


@rest.post("requirements/<uuid:requirement_id>/end", "End a requirement", RequirementOut)
def end_requirement(call: ApiView, requirement_id: UUID) -> RequirementState:
    """Ends one of the tenant's tiers, or, as an operator, one of a class."""
    if call.is_for_operator():
        actor = PlatformActor.of(call.user)
        with operator_tx():
            return _state(class_requirement_end(actor=actor, requirement_id=requirement_id, now=call.now))
    _of_admin(call, requirement_id)
    return _state(tier_requirement_end(actor=call.actor, requirement_id=requirement_id, now=call.now))


@admins.list(
    "requirements/<uuid:requirement_id>/acceptances",
    "Who accepted or had it (tenant admins)",
    AcceptanceOut,
)
def list_acceptances(call: ApiView, requirement_id: UUID) -> QuerySet[Acceptance]:
    """Lists acceptances of all versions of the tenant's people, the newest first."""
    return acceptances_of(call.actor.tenant_id, _of_admin(call, requirement_id))[:MOST_SHOWN]


@admins.post(
    "requirements/<uuid:requirement_id>/acceptances",
    "Record a training (tenant admins)",
    AcceptanceOut,
    terms=TrainingTerms,
    status=201,
)
def record_training(call: ApiView, terms: TrainingTerms, requirement_id: UUID) -> Acceptance:
    """Records the day on which a person of the tenant had the training."""
    _of_admin(call, requirement_id)
    return training_record(actor=call.actor, requirement_id=requirement_id, terms=terms, now=call.now)


def _of_admin(call: ApiView, requirement_id: UUID) -> Requirement:
    """The requirement; for others than the tenant's admins there is none."""
    if not call.actor.is_tenant_admin:
        raise missing("requirement")
    return requirement_seen(call.actor, requirement_id)


def _state(row: Requirement) -> RequirementState:
    return RequirementState(row, None, is_met=False)


urlpatterns = [*rest.urls, *mine.urls, *admins.urls]
