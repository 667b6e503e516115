"""REST of limit cuts. A limit is cut where it is set."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.limit_cuts.models import LimitCut
from allocation.features.limit_cuts.services import (
    cuts_of_site,
    cuts_visible,
    limit_cut_end,
    operator_cut_end,
)
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope, User
from tenants.platform.rest.terms import Slug
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.ADMIN, in_project=True)
ops = Endpoints(Scope.ADMIN, for_operators=True, area=Area.RULES)


class LimitCutOut(serializers.Serializer[Any]):
    """A limit that is lower than what its owner's bookings have. Without project and lab it is that of the
    tenant."""

    id = serializers.UUIDField()
    tenant = serializers.CharField(source="tenant.slug")
    project = Slug()
    lab = serializers.CharField(source="lab.slug", default=None, allow_null=True)
    of_persons = serializers.BooleanField(help_text="It is the limit of a person there.")
    person = serializers.CharField(
        source="person.username",
        default=None,
        allow_null=True,
        help_text="Null with `of_persons`: everybody there without an own limit.",
    )
    gpu_class = serializers.CharField(source="gpu_class_id")
    limit_units = serializers.IntegerField(allow_null=True)
    cap_gpu_hours = serializers.IntegerField(allow_null=True)
    of_guarantee = serializers.BooleanField(help_text="`limit_units` is what the tenant is guaranteed.")
    since = serializers.DateTimeField(allow_null=True, help_text="Of a guarantee between dates.")
    until = serializers.DateTimeField(allow_null=True)
    answer = serializers.ChoiceField(choices=LimitCut.Answer.choices)
    created = serializers.DateTimeField()
    changed = serializers.DateTimeField()
    changed_by = serializers.CharField(source="changed_by.username", default=None, allow_null=True)
    ended = serializers.DateTimeField(allow_null=True)
    outcome = serializers.ChoiceField(choices=["", *LimitCut.Outcome.values])


@rest.list("limit-cuts", "List limits that were cut", LimitCutOut, order=("-created", "-id"))
def list_limit_cuts(call: ApiView) -> QuerySet[LimitCut]:
    """Returns those of the organisation, of your projects and labs, and yours; admins see all."""
    return cuts_visible(call.actor)


@rest.post("limit-cuts/<uuid:cut_id>/end", "Cancel the cut of a limit", LimitCutOut)
def end_limit_cut(call: ApiView, cut_id: UUID) -> LimitCut:
    """Withdraws its notices, and keeps nothing above the limit any more. The limit stays as it is."""
    return limit_cut_end(actor=call.actor, cut_id=cut_id, now=call.now)


@ops.list(
    "platform/limit-cuts", "List limits that were cut (operators)", LimitCutOut, order=("-created", "-id")
)
def list_platform_limit_cuts(call: ApiView) -> QuerySet[LimitCut]:
    """Returns those of all organisations."""
    return cuts_of_site()


@ops.post("platform/limit-cuts/<uuid:cut_id>/end", "Cancel the cut of a limit (operators)", LimitCutOut)
def end_platform_limit_cut(call: ApiView, cut_id: UUID) -> LimitCut:
    """Cancels it, in any organisation."""
    operator = User.objects.get(id=call.actor.user_id)
    return operator_cut_end(operator=operator, cut_id=cut_id, now=call.now)


urlpatterns = [*rest.urls, *ops.urls]
