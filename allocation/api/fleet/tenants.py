"""What each organisation has and uses now, for operators."""

from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.queries.limits.use_now import tenant_summaries
from tenants.api.base import list_response
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class TenantUseOut(serializers.Serializer[Any]):
    """People, GPUs, bookings, money and last activity of an organisation."""

    slug = serializers.CharField(source="tenant.slug")
    name = serializers.CharField(source="tenant.name")
    is_open = serializers.BooleanField(source="tenant.is_open")
    people = serializers.IntegerField(help_text="With an account that is open.")
    gpus_guaranteed = serializers.FloatField(
        source="guaranteed_gpus", help_text="Over all classes; a slice is a fraction."
    )
    gpus_used = serializers.FloatField(
        source="used_gpus", help_text="As quotas count them, in thousandths of a GPU."
    )
    running = serializers.IntegerField(source="phases.running", help_text="Bookings that have GPUs.")
    paused = serializers.IntegerField(source="phases.paused")
    scheduled = serializers.IntegerField(
        source="phases.scheduled", help_text="Bookings with a place that have not started."
    )
    waiting = serializers.IntegerField(
        source="phases.waiting", help_text="Bookings that wait for a decision or for a place."
    )
    spent = serializers.DecimalField(
        max_digits=20, decimal_places=2, help_text="Charged since the month (UTC) began."
    )
    held = serializers.DecimalField(
        max_digits=20,
        decimal_places=2,
        help_text="For all days of open bookings: a budget holds the part of its own days.",
    )
    last_activity = serializers.DateTimeField(
        source="last_act", allow_null=True, help_text="Newest act of a person in its log."
    )


class TenantUse(OperatorView):
    """What all organisations use now."""

    area = Area.PEOPLE

    @described("list_tenant_use", "List what tenants use now (operators)", answer=page(TenantUseOut))
    def get(self, request: Request) -> Response:
        """Returns all organisations by name."""
        with self.operator_tx():
            rows = tenant_summaries(timezone.now())
            return list_response(TenantUseOut(rows, many=True).data)
