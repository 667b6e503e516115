"""REST of the use of hosts."""

from typing import Any

from rest_framework import serializers

from allocation.access import access_booking
from allocation.features.host_use.models import SpareCores
from allocation.features.host_use.raising import SpareCoresTerms, is_on_for, raised_of, spare_cores_set
from allocation.features.host_use.services import host_figures
from tenants.access import access_project
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope

rest = Endpoints(Scope.BOOK, in_project=True)


class HostNodeOut(serializers.Serializer[Any]):
    """What a booking has used of one of its nodes, as the group of its programs was measured there."""

    node = serializers.CharField()
    at = serializers.DateTimeField(help_text="Of the newest measurement.")
    seconds = serializers.FloatField(help_text="Measured time, on which the sums are based.")
    cores = serializers.IntegerField(help_text="That it can use; 0: all of the node.")
    cpu_cores = serializers.FloatField(help_text="In use on average.")
    cpu_percent = serializers.FloatField(allow_null=True, help_text="Of its cores. Null: it has no limit.")
    memory_mb = serializers.IntegerField(allow_null=True, help_text="Now.")
    peak_memory_mb = serializers.IntegerField(allow_null=True)
    read_mb = serializers.FloatField(allow_null=True, help_text="From disks, in all.")
    written_mb = serializers.FloatField(allow_null=True)
    received_mb = serializers.FloatField(allow_null=True, help_text="From the network, in all.")
    sent_mb = serializers.FloatField(allow_null=True)
    network_seconds = serializers.FloatField(help_text="Measured time with a network, of `seconds`.")
    network_mb_s = serializers.FloatField(
        allow_null=True, help_text="In and out together, on average. Null: not measured."
    )
    not_measured = serializers.ListField(child=serializers.CharField(), help_text="On this node.")


class HostUseOut(serializers.Serializer[Any]):
    """What a booking has used of its nodes. Fields that are null are not measured, which is not 0."""

    nodes = HostNodeOut(many=True, help_text="Empty: no agent of its nodes measures it.")
    lent_cores = serializers.IntegerField(
        help_text="Free cores that may be lent to each of its devices now; 0: none."
    )


@rest.get("bookings/<str:reference>/host-use", "Get what a booking uses of its hosts", HostUseOut)
def get_host_use(call: ApiView, reference: str) -> dict[str, Any]:
    """Returns host CPU, memory, disk and network of a booking, by node, in its newest runs."""
    booking = access_booking(call.actor, reference)
    lent = sum(row.most for row in raised_of(booking))
    return {"nodes": host_figures(booking), "lent_cores": lent}


class SpareCoresOut(serializers.Serializer[Any]):
    """Whether running work of the project gets free host cores while it waits for input."""

    on = serializers.BooleanField(source="is_on")


@rest.get("projects/<slug:slug>/spare-cores", "Get whether bookings get free host cores", SpareCoresOut)
def get_spare_cores(call: ApiView, slug: str) -> dict[str, Any]:
    """Returns what the leads of a project have chosen. It is off until they do."""
    return {"is_on": is_on_for(access_project(call.actor, slug).id)}


@rest.put(
    "projects/<slug:slug>/spare-cores",
    "Choose whether bookings get free host cores",
    SpareCoresOut,
    terms=SpareCoresTerms,
)
def put_spare_cores(call: ApiView, terms: SpareCoresTerms, slug: str) -> SpareCores:
    """Leads choose it; it is off until then. A booking gets more only on nodes whose operators lend cores,
    only while its own are in full use and its GPUs wait, and never what another booking has."""
    return spare_cores_set(actor=call.actor, project=slug, terms=terms, now=call.now)


urlpatterns = rest.urls
