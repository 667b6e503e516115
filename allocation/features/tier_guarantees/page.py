"""The pages of guarantees by tier: of an organisation, and of the site."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allocation.features.tier_guarantees.services import (
    OrganisationTierGuaranteeTerms,
    TierGuaranteeTerms,
    organisation_tier_guarantee_set,
    tier_guarantee_set,
    tier_guarantees_of_site,
    tier_guarantees_visible,
)
from tenants.access import Actor, PlatformActor
from tenants.models import GpuClass, Quota, Tenant, Tier, TierGuarantee
from tenants.rules.operator_roles import Area
from tenants.services import gpus_text
from tenants.web.form_page import Act, form_page, operator_form_page
from tenants.web.terms_form import Choices


@dataclass(frozen=True, slots=True)
class PartRow:
    """A part of a guarantee as text, and what is left for the other tiers."""

    tenant: str
    gpu_class: str
    gpus: str
    tiers: str
    rest: str


def _rows(rows: Iterable[TierGuarantee]) -> list[PartRow]:
    found = list(rows)
    names = dict(Tier.objects.values_list("slug", "name"))
    quotas = Quota.objects.filter(project=None, tenant_id__in={row.tenant_id for row in found})
    sure = {(row.tenant_id, row.gpu_class_id): row.guaranteed_units for row in quotas}
    return [
        PartRow(
            row.tenant.name,
            row.gpu_class.label,
            gpus_text(row.units),
            ", ".join(names.get(each, each) for each in row.tiers),
            gpus_text(max(0, sure.get((row.tenant_id, row.gpu_class_id), 0) - row.units)),
        )
        for row in found
    ]


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    quotas = Quota.objects.filter(project=None, tenant_id=actor.tenant_id, guaranteed_units__gt=0)
    rows = quotas.select_related("gpu_class").order_by("gpu_class__order", "gpu_class")
    return {
        "rows": _rows(tier_guarantees_visible(actor)),
        "may_set": actor.is_tenant_admin,
        "guaranteed": [(row.gpu_class.label, gpus_text(row.guaranteed_units)) for row in rows],
    }


def _shown_to_operators(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    return {"rows": _rows(tier_guarantees_of_site()), "may_set": True, "is_operator": True}


def _set(row: TierGuarantee) -> str:
    if not row.units:
        return f"{row.tenant.name}: all tiers use all guaranteed {row.gpu_class.label}."
    return f"{row.tenant.name}: {gpus_text(row.units)} {row.gpu_class.label} are for these tiers only."


def _classes(_: object) -> Choices:
    return GpuClass.objects.values_list("slug", "label")


def _tiers(_: object) -> Choices:
    rows = Tier.objects.filter(counts_against_guarantee=True).order_by("-priority", "slug")
    return rows.values_list("slug", "name")


urlpatterns = [
    form_page(
        "tier-guarantees",
        "tier-guarantees",
        "tier_guarantees/page.html",
        _shown,
        Act(
            "set",
            tier_guarantee_set,
            _set,
            terms=TierGuaranteeTerms,
            choices={"gpu_class": _classes, "tiers": _tiers},
        ),
    ),
    operator_form_page(
        "tier-guarantees",
        "ops-tier-guarantees",
        "tier_guarantees/page.html",
        _shown_to_operators,
        Act(
            "set",
            organisation_tier_guarantee_set,
            _set,
            terms=OrganisationTierGuaranteeTerms,
            choices={
                "tenant": lambda _: Tenant.objects.order_by("name").values_list("slug", "name"),
                "gpu_class": _classes,
                "tiers": _tiers,
            },
        ),
        area=Area.RULES,
    ),
]
