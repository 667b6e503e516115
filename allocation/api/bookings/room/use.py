"""Utilisation over time: of a booking for its project, of a GPU for operators."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_booking
from allocation.api.bookings.room.periods import PeriodQuery, period_check
from allocation.api.operators import OperatorView
from allocation.models import Gpu
from allocation.queries.bookings.bookings import allocation_ids_of
from allocation.queries.fleet.telemetry import UseCurve, use_of_allocations, use_of_gpu
from tenants.api.base import ApiView
from tenants.platform.errors import missing
from tenants.platform.rest.schema import described
from tenants.rules.operator_roles import Area

SPAN_DEFAULT = timedelta(hours=1)
SPAN_MAX = timedelta(days=90)


class UseQuery(PeriodQuery):
    """A period. The default is the last hour, or the last hour before the booking's end."""


class UsePointOut(serializers.Serializer[Any]):
    """One step of the curve. Values that were not measured are null, never 0."""

    at = serializers.DateTimeField()
    measured = serializers.IntegerField(help_text="Seconds with a reading, over all devices.")
    busy_min = serializers.IntegerField(allow_null=True, help_text="Lowest utilisation, percent.")
    busy = serializers.FloatField(allow_null=True, help_text="Time-weighted mean, percent.")
    busy_max = serializers.IntegerField(allow_null=True, help_text="Highest utilisation, percent.")
    memory_mb = serializers.IntegerField(allow_null=True)
    memory_total_mb = serializers.IntegerField(allow_null=True)
    power_mw = serializers.IntegerField(allow_null=True)
    bandwidth = serializers.FloatField(allow_null=True, help_text="Memory bandwidth, percent.")
    sm = serializers.FloatField(
        allow_null=True, help_text="Time that an SM had work, percent on average over all SMs."
    )
    tensor = serializers.FloatField(allow_null=True, help_text="Tensor core activity, percent.")
    pcie_kb = serializers.IntegerField(allow_null=True, help_text="KB per second.")
    nvlink_kb = serializers.IntegerField(allow_null=True, help_text="KB per second.")
    throttled = serializers.IntegerField(allow_null=True, help_text="Seconds of throttling by heat or power.")
    energy_mj = serializers.IntegerField(allow_null=True, help_text="Millijoules.")


class UseOut(serializers.Serializer[Any]):
    """A curve of at most 180 steps. A step is one minute for periods of up to three hours within
    the last two days, and five minutes or more otherwise."""

    starts = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step_seconds = serializers.IntegerField()
    devices = serializers.IntegerField(help_text="Number of devices with readings.")
    points = UsePointOut(many=True)


class BookingUse(ApiView):
    """Utilisation of a booking."""

    queries = {"GET": UseQuery}

    @described(
        "get_booking_use",
        "Retrieve the utilisation of a booking",
        answer=UseOut,
        query=UseQuery,
    )
    def get(self, request: Request, reference: str) -> Response:
        """Returns the utilisation of all devices of the booking together. Data is kept for 90
        days."""
        with self.tx():
            booking = access_booking(self.actor, reference)
            ended = booking.released_at or booking.ended_at or self.now
            since, until = _span(self.query, min(ended, self.now))
            curve = use_of_allocations(
                allocations=allocation_ids_of(booking), since=since, until=until, now=self.now
            )
        return _answer(curve)


class GpuUseOne(OperatorView):
    """Utilisation of one GPU."""

    area = Area.NODES
    queries = {"GET": UseQuery}

    @described(
        "get_gpu_use",
        "Retrieve the utilisation of a GPU (operators)",
        answer=UseOut,
        query=UseQuery,
    )
    def get(self, request: Request, gpu_id: UUID) -> Response:
        """Returns the utilisation of a whole GPU, over the bookings of all tenants."""
        since, until = _span(self.query, self.now)
        with self.operator_tx():
            if not Gpu.objects.filter(id=gpu_id).exists():
                raise missing("GPU")
            return _answer(use_of_gpu(gpu=gpu_id, since=since, until=until, now=self.now))


def _span(query: dict[str, datetime], end: datetime) -> tuple[datetime, datetime]:
    """Raises Refused `end_before_start` or `span_too_long`."""
    until = query.get("until", end)
    since = query.get("from", min(until, end) - SPAN_DEFAULT)
    period_check(since, until, SPAN_MAX)
    return since, until


def _answer(curve: UseCurve) -> Response:
    data = UseOut(
        {
            "starts": curve.since,
            "until": curve.until,
            "step_seconds": int(curve.step.total_seconds()),
            "devices": curve.devices,
            "points": curve.points,
        }
    )
    return Response(data.data)
