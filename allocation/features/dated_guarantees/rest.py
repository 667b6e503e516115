"""REST of dated guarantees: organisations set those of labs and projects, operators their own."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.dated_guarantees.inner import (
    InnerGuaranteeTerms,
    inner_guarantee_end,
    inner_guarantee_set,
)
from allocation.features.dated_guarantees.rows import EndTerms
from allocation.features.dated_guarantees.services import (
    DatedGuaranteeTerms,
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
from tenants.platform.rest.terms import Slug
from tenants.rules.operator_roles import Area
from tenants.services.limit_changes import Cut

rest = Endpoints(Scope.ADMIN, in_project=True)
ops = Endpoints(Scope.ADMIN, for_operators=True, area=Area.RULES)


class DatedGuaranteeOut(serializers.Serializer[Any]):
    """A guarantee of a project, a lab, or else the tenant between two instants, in place of the usual
    one."""

    id = serializers.UUIDField()
    tenant = serializers.CharField(source="tenant.slug")
    project = Slug()
    lab = Slug()
    gpu_class = serializers.CharField(source="gpu_class_id")
    guaranteed_units = serializers.IntegerField()
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    created = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True, help_text="When somebody ended it early.")


class DatedGuaranteeSetOut(DatedGuaranteeOut):
    """The guarantee as it is, and what of the bookings is above it."""

    cut = CutOut(allow_null=True, help_text="Null: nothing is above it.")


@rest.list("dated-guarantees", "List guarantees between dates", DatedGuaranteeOut, order=("-starts", "-id"))
def list_dated_guarantees(call: ApiView) -> QuerySet[DatedGuarantee]:
    """Returns those of the organisation, and of its labs and projects that you see, also those that are
    over."""
    return guarantees_visible(call.actor)


@rest.put(
    "dated-guarantees",
    "Set a guarantee of a lab or project between dates (admins, lab leads)",
    DatedGuaranteeSetOut,
    terms=InnerGuaranteeTerms,
    dry=True,
)
def set_inner_guarantee(call: ApiView, terms: InnerGuaranteeTerms) -> dict[str, Any]:
    """Guarantees a `project` or a `lab` another number of GPUs from one instant to another, within what
    its lab and its organisation are guaranteed then."""
    cut = Cut()
    return _with_cut(inner_guarantee_set(actor=call.actor, terms=terms, now=call.now, cut=cut), cut)


@rest.post(
    "dated-guarantees/<uuid:guarantee_id>/end",
    "End a guarantee of a lab or project between dates (admins, lab leads)",
    DatedGuaranteeSetOut,
    terms=EndTerms,
    dry=True,
)
def end_inner_guarantee(call: ApiView, terms: EndTerms, guarantee_id: UUID) -> dict[str, Any]:
    """Ends it now, or before it begins. The usual guarantee applies again."""
    cut = Cut()
    row = inner_guarantee_end(actor=call.actor, guarantee_id=guarantee_id, now=call.now, terms=terms, cut=cut)
    return _with_cut(row, cut)


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
    names = (
        "id",
        "tenant",
        "project",
        "lab",
        "gpu_class_id",
        "guaranteed_units",
        "starts",
        "ends",
        "created",
        "ended",
    )
    effect = cut.effects[0] if cut.effects else None
    return {**{name: getattr(row, name) for name in names}, "cut": effect}


urlpatterns = [*rest.urls, *ops.urls]
