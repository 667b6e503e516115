"""Quotas of tenants, labs and projects."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.api.cuts import DRY_RUN, CutOut, cut_data, cut_field, cut_of, dry_or_not
from tenants.lab_queries import labs_seen
from tenants.models import LabQuota, Quota, Tenant, User
from tenants.platform.errors import invalid, missing
from tenants.platform.rest.fields import Flag, Strict, Text, Whole
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area
from tenants.services import Share, ShareMore, quota_set, tenant_quota_set
from tenants.services.labs.limits import lab_quota_set, project_to_limit
from tenants.services.limit_changes import Cut
from tenants.words import refusal_text


class QuotaOut(serializers.Serializer[Any]):
    """Units of a class usable at any instant; one GPU is 56,000 units. No project and no lab: the
    tenant's."""

    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    lab = serializers.CharField(source="lab.slug", default=None, allow_null=True)
    gpu_class = serializers.CharField(source="gpu_class_id")
    guaranteed_units = serializers.IntegerField()
    borrow_limit_units = serializers.IntegerField(
        allow_null=True, help_text="The most above the guarantee; null: what there is."
    )
    lend_limit_units = serializers.IntegerField(
        allow_null=True, help_text="The most of an idle guarantee that others may use; null: all."
    )
    limit_units = serializers.IntegerField(
        allow_null=True, help_text="Guaranteed and borrow limit together; null: no limit."
    )
    weight = serializers.IntegerField(help_text="Part in what is idle above all guarantees.")
    cap_gpu_hours = serializers.IntegerField(allow_null=True)
    cap_days = serializers.IntegerField(
        allow_null=True, help_text="The cap holds in so many days in a row; null: by month (UTC)."
    )
    cap_carries = serializers.BooleanField(help_text="What a month leaves is added to the next.")


class QuotaSetOut(QuotaOut):
    """The quota as it is set, and what of the bookings is above it."""

    cut = CutOut(allow_null=True, help_text="Null: nothing is above the limit.")


class QuotaIn(Strict):
    """The quota of a project (tenant admins, leads of its lab), of a `lab` (tenant admins), or of a
    `tenant` (operators). A lab has no weight."""

    project = Text(required=False, max_length=40)
    lab = Text(required=False, max_length=40)
    tenant = Text(required=False, max_length=40)
    gpu_class = Text(max_length=40)
    guaranteed_units = Whole(max_value=10**12)
    borrow_limit_units = Whole(max_value=10**12, required=False, allow_null=True)
    lend_limit_units = Whole(max_value=10**12, required=False, allow_null=True, default=None)
    limit_units = Whole(
        max_value=10**12,
        required=False,
        allow_null=True,
        help_text="Instead of borrow_limit_units: guaranteed and borrowed together.",
    )
    weight = Whole(max_value=1000, required=False, default=1)
    cap_gpu_hours = Whole(max_value=10**9, required=False, allow_null=True, default=None)
    cap_days = Whole(max_value=31, required=False, allow_null=True, default=None)
    cap_carries = Flag(required=False, default=False)
    bookings = cut_field()

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Exactly one of project, lab and tenant. Raises ValidationError."""
        if len({"project", "lab", "tenant"} & set(given)) != 1:
            raise serializers.ValidationError(
                {"project": [refusal_text("limit_owner")]}, code="missing_field"
            )
        if "lab" in given and given["weight"] != 1:
            raise serializers.ValidationError({"lab": [refusal_text("lab_weight")]}, code="bad_value")
        if "limit_units" in given and "borrow_limit_units" in given:
            raise serializers.ValidationError(
                {"limit_units": [refusal_text("limit_twice")]}, code="bad_value"
            )
        return given


class Quotas(ApiView):
    """Quotas of the tenant and of the caller's projects."""

    area = Area.RULES

    @described("list_quotas", "Quotas of the tenant and of your projects", answer=page(QuotaOut))
    def get(self, request: Request) -> Response:
        """Lists quotas by project and class, the tenant's own first."""
        actor = self.actor
        with self.tx():
            rows = Quota.objects.filter(tenant_id=actor.tenant_id).select_related("project")
            seen = [row for row in rows if row.project_id is None or actor.role_in(row.project_id)]
            seen.sort(key=lambda row: (row.project.slug if row.project else "", row.gpu_class_id))
            labs = LabQuota.objects.filter(lab__in=labs_seen(actor)).select_related("lab")
            shown = [_lab_shown(row) for row in labs.order_by("lab__slug", "gpu_class_id")]
            return list_response([*QuotaOut(seen, many=True).data, *shown])

    @described(
        "set_quota",
        "Set a project's or lab's quota (tenant admins) or a tenant's (operators)",
        answer=QuotaSetOut,
        request=QuotaIn,
        headers=(DRY_RUN,),
    )
    def put(self, request: Request) -> Response:
        """Sets the quota. `cut` of the answer has what is above it; `Prefer: dry-run` only says it."""
        sent = self.sent(QuotaIn)
        share, cut = _share(sent), cut_of(sent.get("bookings"))
        is_tenants = "tenant" in sent
        set_it = self._tenant if is_tenants else self._lab if "lab" in sent else self._project
        if is_tenants:
            self.require_operator()
        with operator_tx() if is_tenants else self.tx():
            return dry_or_not(request, lambda: Response({**set_it(sent, share, cut), "cut": cut_data(cut)}))

    def _project(self, sent: dict[str, Any], share: Share, cut: Cut) -> dict[str, Any]:
        project = project_to_limit(self.actor, sent["project"])
        quota = quota_set(
            actor=self.actor,
            project=project,
            gpu_class=sent["gpu_class"],
            share=share,
            now=self.now,
            cut=cut,
        )
        return dict(QuotaOut(quota).data)

    def _lab(self, sent: dict[str, Any], share: Share, cut: Cut) -> dict[str, Any]:
        of_lab = lab_quota_set(
            actor=self.actor,
            lab=sent["lab"],
            gpu_class=sent["gpu_class"],
            share=share,
            now=self.now,
            cut=cut,
        )
        return _lab_shown(of_lab)

    def _tenant(self, sent: dict[str, Any], share: Share, cut: Cut) -> dict[str, Any]:
        tenant = Tenant.objects.filter(slug=sent["tenant"]).first()
        if tenant is None:
            raise missing("tenant", "tenant")
        quota = tenant_quota_set(
            operator=User.objects.get(id=self.actor.user_id),
            tenant=tenant,
            gpu_class=sent["gpu_class"],
            share=share,
            now=self.now,
            cut=cut,
        )
        return dict(QuotaOut(quota).data)


def _lab_shown(quota: LabQuota) -> dict[str, Any]:
    whole = Quota(gpu_class_id=quota.gpu_class_id)
    caps = ("cap_gpu_hours", "cap_days", "cap_carries")
    names = ("guaranteed_units", "borrow_limit_units", "lend_limit_units", "limit_units", *caps)
    shown = {name: getattr(quota, name) for name in names}
    return {**QuotaOut(whole).data, "lab": quota.lab.slug, **shown}


def _share(sent: dict[str, Any]) -> Share:
    guaranteed, limit = sent["guaranteed_units"], sent.get("limit_units")
    if limit is not None and limit < guaranteed:
        raise invalid("bad_share", refusal_text("limit_below_guarantee"), "limit_units")
    more = {field: sent[field] for field in ("weight", "cap_gpu_hours", "cap_days", "cap_carries")}
    return Share(
        guaranteed,
        sent.get("borrow_limit_units") if limit is None else limit - guaranteed,
        sent["lend_limit_units"],
        ShareMore(**more),
    )
