"""How hard devices worked: of a booking for its members, of a GPU for operators."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_booking
from allocation.models import Gpu
from allocation.queries.bookings.bookings import allocation_ids_of
from allocation.queries.fleet.telemetry import UseCurve, use_of_allocations, use_of_gpu
from tenants.api.base import ApiView
from tenants.platform.errors import invalid, missing
from tenants.platform.fields import Instant, Strict
from tenants.platform.schema import described
from tenants.platform.wall import operator_tx

SPAN_DEFAULT = timedelta(hours=1)
SPAN_MAX = timedelta(days=90)


class UseQuery(Strict):
    """Which time; the hour until now, or until the booking's end, when left out."""

    starts = Instant(required=False)
    until = Instant(required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """`from` is a word of Python, so the field is named here."""
        fields = super().get_fields()
        fields["from"] = fields.pop("starts")
        return fields


class UsePointOut(serializers.Serializer[Any]):
    """One step of time; null is what was not measured, never 0."""

    at = serializers.DateTimeField()
    measured = serializers.IntegerField(help_text="Seconds of it with a reading, of all devices.")
    busy_min = serializers.IntegerField(allow_null=True, help_text="Percent, as all three.")
    busy = serializers.FloatField(allow_null=True, help_text="Weighted by time.")
    busy_max = serializers.IntegerField(allow_null=True)
    memory_mb = serializers.IntegerField(allow_null=True)
    memory_total_mb = serializers.IntegerField(allow_null=True)
    power_mw = serializers.IntegerField(allow_null=True)
    bandwidth = serializers.FloatField(allow_null=True, help_text="Of memory, percent.")
    tensor = serializers.FloatField(allow_null=True, help_text="Of the tensor cores, percent.")
    pcie_kb = serializers.IntegerField(allow_null=True, help_text="KB a second.")
    nvlink_kb = serializers.IntegerField(allow_null=True, help_text="KB a second.")
    throttled = serializers.IntegerField(allow_null=True, help_text="Seconds held back by heat.")
    energy_mj = serializers.IntegerField(allow_null=True, help_text="Millijoules.")


class UseOut(serializers.Serializer[Any]):
    """A curve of at most 180 steps: by the minute up to three hours of the last two days, else by
    five minutes or more."""

    starts = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step_seconds = serializers.IntegerField()
    devices = serializers.IntegerField(help_text="How many told anything.")
    points = UsePointOut(many=True)


class BookingUse(ApiView):
    """How hard a booking's devices worked."""

    queries = {"GET": UseQuery}

    @described(
        "get_booking_use",
        "How hard the booking's devices worked, 90 days back",
        answer=UseOut,
        query=UseQuery,
    )
    def get(self, request: Request, reference: str) -> Response:
        """All its devices together; no steps before it ever ran."""
        with self.tx():
            booking = access_booking(self.actor, reference)
            ended = booking.released_at or booking.ended_at or self.now
            since, until = _span(self.query, min(ended, self.now))
            curve = use_of_allocations(
                allocations=allocation_ids_of(booking), since=since, until=until, now=self.now
            )
        return _said(curve)


class GpuUseOne(ApiView):
    """How hard one GPU worked."""

    queries = {"GET": UseQuery}

    @described(
        "get_gpu_use",
        "How hard a GPU worked, whoever had it, 90 days back (operators)",
        answer=UseOut,
        query=UseQuery,
    )
    def get(self, request: Request, gpu_id: UUID) -> Response:
        """The device as a whole."""
        since, until = _span(self.query, self.now)
        with self.tx():
            self.require_operator()
            with operator_tx():
                if not Gpu.objects.filter(id=gpu_id).exists():
                    raise missing("GPU")
                return _said(use_of_gpu(gpu=gpu_id, since=since, until=until, now=self.now))


def _span(query: dict[str, datetime], end: datetime) -> tuple[datetime, datetime]:
    """Raises Refused `end_before_start` or `span_too_long`."""
    until = query.get("until", end)
    since = query.get("from", min(until, end) - SPAN_DEFAULT)
    if until <= since:
        raise invalid("end_before_start", "`until` must be after `from`.", "until")
    if until - since > SPAN_MAX:
        raise invalid("span_too_long", "Ask for at most 90 days at once.", "until")
    return since, until


def _said(curve: UseCurve) -> Response:
    said = UseOut(
        {
            "starts": curve.since,
            "until": curve.until,
            "step_seconds": int(curve.step.total_seconds()),
            "devices": curve.devices,
            "points": curve.points,
        }
    )
    return Response(said.data)
