"""The pages of guarantees by tier: of an organisation, and of the site."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

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

MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class PartRow:
    """A guarantee as text: the part of some tiers, and what is left for all; `percent` is that part's."""

    tenant: str
    gpu_class: str
    guaranteed: str
    gpus: str
    tiers: str
    rest: str
    percent: int = 0


def _rows(quotas: QuerySet[Quota], parts: Iterable[TierGuarantee]) -> list[PartRow]:
    """A row for each guarantee, those with a part first; one whose usual guarantee is 0 by its part alone."""
    found = {(row.tenant_id, row.gpu_class_id): row for row in parts}
    names = dict(Tier.objects.values_list("slug", "name"))
    sure = quotas.filter(project=None).select_related("tenant", "gpu_class")
    rows = sure.order_by("tenant__name", "gpu_class__order", "gpu_class")
    shown = []
    for row in rows:
        part = found.get((row.tenant_id, row.gpu_class_id))
        if row.guaranteed_units or part is not None:
            shown.append((row, part))
    shown.sort(key=lambda each: each[1] is None)
    return [_row(row, part, names) for row, part in shown[:MOST_ROWS]]


def _row(row: Quota, part: TierGuarantee | None, names: Mapping[str, str]) -> PartRow:
    units = part.units if part is not None else 0
    return PartRow(
        row.tenant.name,
        row.gpu_class.label,
        gpus_text(row.guaranteed_units),
        gpus_text(units) if units else "",
        ", ".join(names.get(each, each) for each in part.tiers) if part is not None else "",
        gpus_text(max(0, row.guaranteed_units - units)),
        min(100, 100 * units // row.guaranteed_units) if row.guaranteed_units else 0,
    )


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    quotas = Quota.objects.filter(tenant_id=actor.tenant_id)
    return {"rows": _rows(quotas, tier_guarantees_visible(actor)), "may_set": actor.is_tenant_admin}


def _shown_to_operators(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    rows = _rows(Quota.objects.all(), tier_guarantees_of_site())
    return {"rows": rows, "may_set": True, "is_operator": True}


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
