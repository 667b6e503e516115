"""REST of guarantees by tier."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.tier_guarantees.services import (
    OrganisationTierGuaranteeTerms,
    TierGuaranteeTerms,
    organisation_tier_guarantee_set,
    tier_guarantee_set,
    tier_guarantees_of_site,
    tier_guarantees_visible,
)
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope, TierGuarantee
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.ADMIN)
ops = Endpoints(Scope.ADMIN, for_operators=True, area=Area.RULES)


class TierGuaranteeOut(serializers.Serializer[Any]):
    """Units of a tenant's guarantee that count for bookings of some tiers only."""

    tenant = serializers.CharField(source="tenant.slug")
    gpu_class = serializers.CharField(source="gpu_class_id")
    units = serializers.IntegerField(help_text="0: all tiers use all of the guarantee.")
    tiers = serializers.ListField(child=serializers.CharField())


@rest.list("tier-guarantees", "List guarantees by tier", TierGuaranteeOut)
def list_tier_guarantees(call: ApiView) -> QuerySet[TierGuarantee]:
    """Returns those of the organisation."""
    return tier_guarantees_visible(call.actor)


@rest.put("tier-guarantees", "Set a guarantee by tier (admins)", TierGuaranteeOut, terms=TierGuaranteeTerms)
def set_tier_guarantee(call: ApiView, terms: TierGuaranteeTerms) -> TierGuarantee:
    """Lets so many units of the organisation's guarantee of a class count for bookings of these tiers
    only. Bookings of other tiers above the rest are borrowed from then on."""
    return tier_guarantee_set(actor=call.actor, terms=terms, now=call.now)


@ops.list("platform/tier-guarantees", "List guarantees by tier (operators)", TierGuaranteeOut)
def list_platform_tier_guarantees(call: ApiView) -> QuerySet[TierGuarantee]:
    """Returns those of all organisations."""
    return tier_guarantees_of_site()


@ops.put(
    "platform/tier-guarantees",
    "Set a guarantee by tier (operators)",
    TierGuaranteeOut,
    terms=OrganisationTierGuaranteeTerms,
)
def set_platform_tier_guarantee(call: ApiView, terms: OrganisationTierGuaranteeTerms) -> TierGuarantee:
    """Sets that of an organisation."""
    actor = PlatformActor.of(call.user)
    return organisation_tier_guarantee_set(actor=actor, terms=terms, now=call.now)


urlpatterns = [*rest.urls, *ops.urls]
