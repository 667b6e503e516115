"""REST of operators' roles."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.operator_roles.services import (
    OperatorRoleTerms,
    operator_role_approve,
    operator_role_end,
    operator_role_give,
    operator_roles,
)
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import OperatorRole, Scope
from tenants.platform.rest.terms import Username
from tenants.rules.operator_roles import ROLES, Area

rest = Endpoints(Scope.ADMIN, for_operators=True, area=Area.ROLES)


class OperatorRoleOut(serializers.Serializer[Any]):
    """A role of an operator, in force from `since` until `ended`."""

    id = serializers.UUIDField()
    user = Username()
    role = serializers.ChoiceField(choices=[(name, role.label) for name, role in ROLES.items()])
    names = serializers.ListField(
        child=serializers.CharField(), help_text="GPU classes, or racks and pools, to which it is limited."
    )
    created = serializers.DateTimeField()
    since = serializers.DateTimeField(allow_null=True, help_text="Null: it waits for a second operator.")
    ended = serializers.DateTimeField(allow_null=True)


@rest.list("operator-roles", "List operators' roles", OperatorRoleOut, order=("-created", "-id"))
def list_operator_roles(call: ApiView) -> QuerySet[OperatorRole]:
    """Returns all, with those that have ended."""
    return operator_roles()


@rest.post(
    "operator-roles",
    "Give a role to an operator (operators)",
    OperatorRoleOut,
    terms=OperatorRoleTerms,
    status=201,
)
def create_operator_role(call: ApiView, terms: OperatorRoleTerms) -> OperatorRole:
    """Gives a role; `site` waits for another operator, if there is one. Somebody without a role becomes
    an operator: their sessions and API tokens end."""
    return operator_role_give(actor=_actor(call), terms=terms, now=call.now)


@rest.post("operator-roles/<uuid:role_id>/approve", "Approve an operator's role (operators)", OperatorRoleOut)
def approve_operator_role(call: ApiView, role_id: UUID) -> OperatorRole:
    """Puts it into force. Neither who gave it nor who gets it approves it."""
    return operator_role_approve(actor=_actor(call), role_id=role_id, now=call.now)


@rest.post("operator-roles/<uuid:role_id>/end", "End an operator's role (operators)", OperatorRoleOut)
def end_operator_role(call: ApiView, role_id: UUID) -> OperatorRole:
    """Ends it now. The last `site` of all stays."""
    return operator_role_end(actor=_actor(call), role_id=role_id, now=call.now)


def _actor(call: ApiView) -> PlatformActor:
    return PlatformActor.of(call.user, call.actor.token_id)


urlpatterns = rest.urls
