"""What may be asked for: tiers, and quotas of tenant and projects."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import access_project, require_tenant_admin
from tenants.api.base import ApiView, listed
from tenants.api.fields import Flag, Strict, Text, Whole
from tenants.api.schema import described, page
from tenants.errors import missing
from tenants.models import Quota, Tenant, Tier, User
from tenants.services import Share, TierTerms, quota_set, tenant_quota_set, tier_set
from tenants.wall import operator_tx


class TierTermsIn(Strict):
    """All that a tier says; times in seconds."""

    name = Text(max_length=80)
    priority = Whole(min_value=-1000, max_value=1000, help_text="Higher goes first.")
    pausable = Flag()
    grace_seconds = Whole()
    protected_seconds = Whole()
    max_duration_seconds = Whole()
    advance_seconds = Whole()
    description = Text(required=False, allow_blank=True, max_length=200, default="")


class TierOut(serializers.Serializer[Any]):
    """A service class."""

    slug = serializers.CharField()
    name = serializers.CharField()
    priority = serializers.IntegerField()
    pausable = serializers.BooleanField()
    grace_seconds = serializers.IntegerField()
    protected_seconds = serializers.IntegerField()
    max_duration_seconds = serializers.IntegerField()
    advance_seconds = serializers.IntegerField()
    description = serializers.CharField()


class Tiers(ApiView):
    """All tiers."""

    @described("list_tiers", "Tiers, the first served first", answer=page(TierOut))
    def get(self, request: Request) -> Response:
        """All of them."""
        with self.tx():
            return listed(TierOut(Tier.objects.all(), many=True).data)


class TierOne(ApiView):
    """One tier."""

    @described("get_tier", "One tier", answer=TierOut)
    def get(self, request: Request, slug: str) -> Response:
        """What it says."""
        with self.tx():
            tier = Tier.objects.filter(slug=slug).first()
            if tier is None:
                raise missing("tier")
            return Response(TierOut(tier).data)

    @described("set_tier", "Make or change a tier (operators)", answer=TierOut, request=TierTermsIn)
    def put(self, request: Request, slug: str) -> Response:
        """The tier after the change."""
        self.require_operator()
        terms = TierTerms(**self.sent(TierTermsIn))
        with operator_tx():
            operator = User.objects.get(id=self.actor.user_id)
            tier = tier_set(operator=operator, slug=slug, terms=terms, now=self.now)
            return Response(TierOut(tier).data)


class QuotaOut(serializers.Serializer[Any]):
    """Units of a class usable at any instant; one GPU is 56,000 units. No project: the tenant's."""

    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    gpu_class = serializers.CharField(source="gpu_class_id")
    guaranteed_units = serializers.IntegerField()
    limit_units = serializers.IntegerField(allow_null=True)


class QuotaIn(Strict):
    """A share: of a project (tenant admins), or of a `tenant` (operators)."""

    project = Text(required=False, max_length=40)
    tenant = Text(required=False, max_length=40)
    gpu_class = Text(max_length=40)
    guaranteed_units = Whole(max_value=10**12)
    limit_units = Whole(max_value=10**12, required=False, allow_null=True, default=None)

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Exactly one of project and tenant. Raises ValidationError."""
        if ("project" in given) == ("tenant" in given):
            raise serializers.ValidationError(
                {"project": ["Name either a project or a tenant."]}, code="missing_field"
            )
        return given


class Quotas(ApiView):
    """Shares of the tenant and of the caller's projects."""

    @described("list_quotas", "Quotas of the tenant and of your projects", answer=page(QuotaOut))
    def get(self, request: Request) -> Response:
        """By project and class; the tenant's own first."""
        actor = self.actor
        with self.tx():
            rows = Quota.objects.filter(tenant_id=actor.tenant_id).select_related("project")
            seen = [row for row in rows if row.project_id is None or actor.role_in(row.project_id)]
            seen.sort(key=lambda row: (row.project.slug if row.project else "", row.gpu_class_id))
            return listed(QuotaOut(seen, many=True).data)

    @described(
        "set_quota",
        "Set a project's quota (tenant admins) or a tenant's (operators)",
        answer=QuotaOut,
        request=QuotaIn,
    )
    def put(self, request: Request) -> Response:
        """The quota after the change."""
        sent = self.sent(QuotaIn)
        share = Share(sent["guaranteed_units"], sent["limit_units"])
        if "tenant" in sent:
            return Response(self._tenant(sent, share))
        with self.tx():
            project = access_project(self.actor, sent["project"], "project")
            require_tenant_admin(self.actor)
            quota = quota_set(
                actor=self.actor,
                project=project,
                gpu_class=sent["gpu_class"],
                share=share,
                now=self.now,
            )
            return Response(QuotaOut(quota).data)

    def _tenant(self, sent: dict[str, Any], share: Share) -> dict[str, Any]:
        self.require_operator()
        with operator_tx():
            tenant = Tenant.objects.filter(slug=sent["tenant"]).first()
            if tenant is None:
                raise missing("tenant", "tenant")
            quota = tenant_quota_set(
                operator=User.objects.get(id=self.actor.user_id),
                tenant=tenant,
                gpu_class=sent["gpu_class"],
                share=share,
                now=self.now,
            )
            return dict(QuotaOut(quota).data)
