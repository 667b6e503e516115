"""REST of dated guarantees: for organisations to read, for operators to set and end."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.dated_guarantees.services import (
    DatedGuaranteeTerms,
    EndTerms,
    guarantee_end,
    guarantee_set,
    guarantees_of_site,
    guarantees_visible,
)
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.cuts import CutOut
from tenants.api.endpoints import Endpoints
from tenants.models import DatedGuarantee, Scope
from tenants.rules.operator_roles import Area
from tenants.services.limit_changes import Cut

rest = Endpoints(Scope.ADMIN, in_project=True)
ops = Endpoints(Scope.ADMIN, for_operators=True, area=Area.RULES)


class DatedGuaranteeOut(serializers.Serializer[Any]):
    """A guarantee of a tenant between two instants, in place of its usual one."""

    id = serializers.UUIDField()
    tenant = serializers.CharField(source="tenant.slug")
    gpu_class = serializers.CharField(source="gpu_class_id")
    guaranteed_units = serializers.IntegerField()
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    created = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True, help_text="When an operator ended it early.")


class DatedGuaranteeSetOut(DatedGuaranteeOut):
    """The guarantee as it is, and what of the bookings is above it."""

    cut = CutOut(allow_null=True, help_text="Null: nothing is above it.")


@rest.list("dated-guarantees", "List guarantees between dates", DatedGuaranteeOut, order=("-starts", "-id"))
def list_dated_guarantees(call: ApiView) -> QuerySet[DatedGuarantee]:
    """Returns those of the organisation, also those that are over."""
    return guarantees_visible(call.actor)


@ops.list(
    "platform/dated-guarantees",
    "List guarantees between dates (operators)",
    DatedGuaranteeOut,
    order=("-starts", "-id"),
)
def list_platform_dated_guarantees(call: ApiView) -> QuerySet[DatedGuarantee]:
    """Returns those of all organisations."""
    return guarantees_of_site()


@ops.put(
    "platform/dated-guarantees",
    "Set a guarantee between dates (operators)",
    DatedGuaranteeSetOut,
    terms=DatedGuaranteeTerms,
    dry=True,
)
def set_dated_guarantee(call: ApiView, terms: DatedGuaranteeTerms) -> dict[str, Any]:
    """Guarantees a tenant another number of GPUs from one instant to another. It covers what its labs and
    projects are guaranteed, and at each instant the guarantees of all tenants fit what the site has."""
    cut = Cut()
    row = guarantee_set(actor=PlatformActor.of(call.user), terms=terms, now=call.now, cut=cut)
    return _with_cut(row, cut)


@ops.post(
    "platform/dated-guarantees/<uuid:guarantee_id>/end",
    "End a guarantee between dates (operators)",
    DatedGuaranteeSetOut,
    terms=EndTerms,
    dry=True,
)
def end_dated_guarantee(call: ApiView, terms: EndTerms, guarantee_id: UUID) -> dict[str, Any]:
    """Ends it now, or before it begins. The usual guarantee applies again."""
    cut = Cut()
    row = guarantee_end(
        actor=PlatformActor.of(call.user), guarantee_id=guarantee_id, now=call.now, terms=terms, cut=cut
    )
    return _with_cut(row, cut)


def _with_cut(row: DatedGuarantee, cut: Cut) -> dict[str, Any]:
    names = ("id", "tenant", "gpu_class_id", "guaranteed_units", "starts", "ends", "created", "ended")
    effect = cut.effects[0] if cut.effects else None
    return {**{name: getattr(row, name) for name in names}, "cut": effect}


urlpatterns = [*rest.urls, *ops.urls]
