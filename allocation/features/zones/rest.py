"""REST of zones: for everybody to read, for operators to set."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.zones.models import TierEnergy
from allocation.features.zones.services import (
    EnergyTerms,
    StorageTerms,
    ZoneTerms,
    energy_read,
    energy_set,
    storage_set,
    zone_end,
    zone_set,
    zones_read,
)
from allocation.models import Node, Zone
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope, Tier
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.BOOK, in_project=True)
operators = Endpoints(Scope.ADMIN, for_operators=True, area=Area.FLEET)
of_nodes = Endpoints(Scope.ADMIN, for_operators=True, area=Area.NODES)


class ZoneOut(serializers.Serializer[Any]):
    """A zone: racks with their own power."""

    slug = serializers.CharField()
    name = serializers.CharField()
    time_zone = serializers.CharField(help_text="Its hours are those of prices.")
    price = serializers.ListField(
        child=serializers.DecimalField(max_digits=8, decimal_places=4, coerce_to_string=True),
        help_text="Money per kWh by hour from midnight on, in the site's currency. Empty: not known.",
    )
    grams = serializers.ListField(
        child=serializers.IntegerField(), help_text="CO2 in g per kWh by hour. Empty: not known."
    )
    racks = serializers.ListField(child=serializers.CharField(), source="rack_names")
    ended = serializers.DateTimeField(allow_null=True)


class NodeStorageOut(serializers.Serializer[Any]):
    """The storage of a node."""

    node = serializers.CharField(source="name")
    storage = serializers.CharField(
        allow_blank=True, help_text="`local`, `shared`, `none`; empty: not known."
    )
    scratch_gb = serializers.IntegerField(help_text="Local space in GB.")
    storage_by_operator = serializers.BooleanField(help_text="False: what its agent found counts.")
    reported_storage = serializers.CharField(
        allow_blank=True, help_text="What its agent found; empty: no agent has looked."
    )
    reported_scratch_gb = serializers.IntegerField(help_text="Local space that its agent found, in GB.")


class TierEnergyOut(serializers.Serializer[Any]):
    """A tier whose work waits for cheap or clean energy."""

    tier = serializers.CharField(source="tier_id")
    prefers = serializers.CharField(help_text="`price` or `carbon`.")
    hours = serializers.IntegerField(help_text="The most that it waits, from when it could have run.")


class TierSetOut(serializers.Serializer[Any]):
    """The tier that was set."""

    tier = serializers.CharField(source="slug")


@rest.list("zones", "List zones", ZoneOut, order=("slug",))
def list_zones(call: ApiView) -> QuerySet[Zone]:
    """Returns the zones that requests can name, with what energy costs and emits there."""
    return zones_read().prefetch_related("racks")


@operators.put("platform-zones", "Set a zone (operators)", ZoneOut, terms=ZoneTerms)
def set_zone(call: ApiView, terms: ZoneTerms) -> Zone:
    """Adds a zone or gives it these values and racks. A gang of GPUs stays in one zone."""
    return zone_set(actor=PlatformActor.of(call.user), terms=terms, now=call.now)


@rest.list("tier-energy", "List tiers whose work waits for energy", TierEnergyOut, order=("tier",))
def list_tier_energy(call: ApiView) -> QuerySet[TierEnergy]:
    """Returns what tiers wait for, and how long. Those that are not listed wait for nothing."""
    return energy_read()


@operators.put("platform-tier-energy", "Set what a tier waits for (operators)", TierSetOut, terms=EnergyTerms)
def set_tier_energy(call: ApiView, terms: EnergyTerms) -> Tier:
    """Work of the tier starts within these hours where and when energy is cheapest or cleanest."""
    return energy_set(actor=PlatformActor.of(call.user), terms=terms, now=call.now)


@operators.post("platform-zones/<slug:slug>/end", "End a zone (operators)", ZoneOut)
def end_zone(call: ApiView, slug: str) -> Zone:
    """Ends a zone in which no rack stands."""
    return zone_end(actor=PlatformActor.of(call.user), slug=slug, now=call.now)


@of_nodes.put(
    "fleet/nodes/<slug:name>/storage",
    "Set the storage of a node (operators)",
    NodeStorageOut,
    terms=StorageTerms,
)
def set_node_storage(call: ApiView, terms: StorageTerms, name: str) -> Node:
    """Says what storage a node has. Requests can demand it."""
    return storage_set(actor=PlatformActor.of(call.user), node=name, terms=terms, now=call.now)


urlpatterns = [*rest.urls, *operators.urls, *of_nodes.urls]
