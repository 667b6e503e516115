"""REST of the GPUs of a running booking."""

from typing import Any

from rest_framework import serializers

from allocation.features.idle_gpus.services import GpuState, booking_gpus, idle_gpus_give_back
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope

rest = Endpoints(Scope.BOOK, in_project=True)


class GpuStateOut(serializers.Serializer[Any]):
    """A GPU of a running booking, by the readings of the last ten minutes."""

    name = serializers.CharField(help_text="As `give_back` of a change takes it, such as `n0003/2`.")
    busy = serializers.FloatField(allow_null=True, help_text="Percent, on average. Null: not measured.")
    memory_used_mb = serializers.IntegerField(allow_null=True, help_text="The most.")
    memory_total_mb = serializers.IntegerField(allow_null=True)
    processes = serializers.IntegerField(allow_null=True, help_text="The most at once.")
    is_idle = serializers.BooleanField(
        help_text="Less busy than the policy's `idle_below` in all readings. False where some are missing."
    )
    idle_since = serializers.DateTimeField(allow_null=True, help_text="At most six hours ago.")


class GpuStatesOut(serializers.Serializer[Any]):
    """The GPUs of a booking."""

    gpus: Any = GpuStateOut(many=True)


@rest.list("bookings/<str:reference>/gpus", "What each GPU of a running booking does", GpuStateOut)
def list_booking_gpus(call: ApiView, reference: str) -> list[GpuState]:
    """Lists the GPUs of a running booking of whole GPUs. Slices and shares have no use of their own."""
    return booking_gpus(actor=call.actor, reference=reference, now=call.now)


@rest.post(
    "bookings/<str:reference>/gpus/give-back-idle",
    "Give back the idle GPUs of a running booking",
    GpuStatesOut,
    operation="give_back_idle_gpus",
)
def post_idle_gpus(call: ApiView, reference: str) -> dict[str, Any]:
    """Ends the GPUs that are idle now, and answers with those that the booking keeps. Single ones are given
    back by `give_back` of a change of the booking."""
    return {"gpus": idle_gpus_give_back(actor=call.actor, reference=reference, now=call.now)}


urlpatterns = rest.urls
