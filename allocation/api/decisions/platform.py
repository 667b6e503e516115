"""REST of decisions for operators: all of them, by what they did, organisation, and time."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.models import Decision
from allocation.queries.decisions.filters import DID, DecisionFilter, decisions_found
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.fields import Instant, Text
from tenants.platform.rest.pagination import PageQuery
from tenants.rules.operator_roles import Area

ops = Endpoints(Scope.FLEET, for_operators=True, area=Area.BOOKINGS)


class PlatformDecisionsQuery(PageQuery):
    """The filters of decisions, and the page."""

    did = serializers.ChoiceField(
        choices=[*DID], required=False, help_text="Only those whose plan has rows of this part."
    )
    tenant = Text(required=False, max_length=40, help_text="Only those that changed a booking of it.")
    since = Instant(required=False)
    until = Instant(required=False, help_text="Not included.")


class PlatformDecisionOut(serializers.Serializer[Any]):
    """A decision."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    policy = serializers.IntegerField(source="policy_id", help_text="Number of the policy's version.")
    solve_ms = serializers.IntegerField()
    counts = serializers.DictField(
        child=serializers.IntegerField(), help_text="Rows of each part of its plan."
    )


@ops.list(
    "platform/decisions",
    "List decisions (operators)",
    PlatformDecisionOut,
    order=("-id",),
    query=PlatformDecisionsQuery,
)
def list_platform_decisions(call: ApiView) -> QuerySet[Decision]:
    """Returns all decisions, or those of the filters, the newest first."""
    names = ("did", "tenant", "since", "until")
    return decisions_found(DecisionFilter(**{name: call.query[name] for name in names if name in call.query}))


urlpatterns = ops.urls
