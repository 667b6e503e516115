"""A tenant's versions of its tiers' limits."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.models import TierVersion
from allocation.queries.decisions.horizon import horizon_hint
from allocation.services.tiers.limits import versions_read
from allocation.services.tiers.versions import (
    VersionTerms,
    start_hours_text,
    tier_version_set,
    tier_version_withdraw,
)
from tenants.api.base import ApiView, list_response
from tenants.platform.rest.fields import Instant, Strict, Text, Whole
from tenants.platform.rest.schema import described, page


class _Names(serializers.ListField):
    """Short names."""

    child = Text(max_length=40)


class TierVersionOut(serializers.Serializer[Any]):
    """What a tenant's admins demand of bookings in a tier, from `starts` on.

    Null and empty: only the operator's bounds count.
    """

    id = serializers.UUIDField()
    tier = serializers.CharField(source="tier_id")
    starts = serializers.DateTimeField()
    audience = serializers.ChoiceField(choices=TierVersion.Audience.values)
    projects = serializers.ListField(child=serializers.CharField())
    classes = serializers.ListField(child=serializers.CharField())
    min_seconds = serializers.IntegerField(allow_null=True)
    max_seconds = serializers.IntegerField(allow_null=True)
    min_lead_seconds = serializers.IntegerField(allow_null=True)
    max_lead_seconds = serializers.IntegerField(allow_null=True)
    max_open = serializers.IntegerField(allow_null=True)
    max_open_gpus = serializers.IntegerField(allow_null=True)
    start_hours = serializers.SerializerMethodField(help_text="`Mon-Fri 8-18`; empty: any time.")
    zone = serializers.CharField()
    hint = serializers.SerializerMethodField(
        help_text="What the planning horizon of the policy takes from it; empty: nothing."
    )

    def get_hint(self, row: TierVersion) -> str:
        """Returns the hint."""
        return horizon_hint(row.max_lead_seconds)

    def get_start_hours(self, row: TierVersion) -> str:
        """Returns the hours as text."""
        return start_hours_text(row)


class TierVersionIn(Strict):
    """A version. Times in seconds; without `starts` it is in force at once."""

    tier = Text(max_length=40)
    starts = Instant(required=False, allow_null=True, default=None)
    audience = Text(required=False, max_length=10, default="everybody")
    projects = _Names(required=False, default=list, max_length=200)
    classes = _Names(required=False, default=list, max_length=50)
    min_seconds = Whole(required=False, allow_null=True, default=None)
    max_seconds = Whole(required=False, allow_null=True, default=None)
    min_lead_seconds = Whole(required=False, allow_null=True, default=None)
    max_lead_seconds = Whole(required=False, allow_null=True, default=None)
    max_open = Whole(required=False, allow_null=True, default=None)
    max_open_gpus = Whole(required=False, allow_null=True, default=None)
    start_hours = Text(required=False, allow_blank=True, max_length=200, default="")
    zone = Text(required=False, max_length=64, default="UTC")


class TierVersions(ApiView):
    """The versions of the tenant's tiers."""

    @described("list_tier_versions", "Limits of the tenant's tiers", answer=page(TierVersionOut))
    def get(self, request: Request) -> Response:
        """Lists past, present and future versions by tier and start."""
        with self.tx():
            rows = versions_read(self.actor.tenant_id)
            return list_response(TierVersionOut(rows, many=True).data)

    @described(
        "create_tier_version",
        "Set the limits of a tier from a date on (tenant admins)",
        answer=TierVersionOut,
        request=TierVersionIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Sets a version inside the operator's bounds. Bookings that exist keep theirs."""
        terms = VersionTerms(**self.sent(TierVersionIn))

        def work() -> Response:
            row = tier_version_set(actor=self.actor, terms=terms, now=self.now)
            return Response(TierVersionOut(row).data, status=201)

        return self.once(work)


class TierVersionWithdraw(ApiView):
    """Withdraws a version that is not in force yet."""

    @described("act_withdraw_tier_version", "Withdraw a future version of a tier", answer=TierVersionOut)
    def post(self, request: Request, version_id: UUID) -> HttpResponseBase:
        """Withdraws it: the version before it stays in force."""

        def work() -> Response:
            row = tier_version_withdraw(actor=self.actor, version_id=version_id, now=self.now)
            return Response(TierVersionOut(row).data)

        return self.once(work)
