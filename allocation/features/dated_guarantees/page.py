"""The pages of dated guarantees: of an organisation, and of the site."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from allocation.features.dated_guarantees.services import (
    DatedGuaranteeTerms,
    guarantee_end,
    guarantee_set,
    guarantees_of_site,
    guarantees_visible,
)
from allocation.web.limits.cut_question import cut_confirmation
from tenants.access import Actor, PlatformActor
from tenants.models import DatedGuarantee, GpuClass, Quota, Tenant
from tenants.rules.operator_roles import Area
from tenants.services import gpus_text
from tenants.web.form_page import Act, form_page, operator_form_page

MOST_OVER = 30


@dataclass(frozen=True, slots=True)
class GuaranteeRow:
    """A guarantee between dates as text. `usual`: the number at other times."""

    id: UUID
    tenant: str
    gpu_class: str
    gpus: str
    usual: str
    starts: datetime
    ends: datetime
    is_on: bool
    ended: datetime | None


def _rows(rows: Iterable[DatedGuarantee], now: datetime) -> list[GuaranteeRow]:
    found = list(rows)
    quotas = Quota.objects.filter(project=None, tenant_id__in={row.tenant_id for row in found})
    usual = {(row.tenant_id, row.gpu_class_id): row.guaranteed_units for row in quotas}
    return [
        GuaranteeRow(
            row.id,
            row.tenant.name,
            row.gpu_class.label,
            gpus_text(row.guaranteed_units),
            gpus_text(usual.get((row.tenant_id, row.gpu_class_id), 0)),
            row.starts,
            row.ends,
            row.starts <= now,
            row.ended,
        )
        for row in found
    ]


def _context(every: Any, now: datetime) -> dict[str, Any]:  # noqa: ANN401 (a query set)
    to_come = every.filter(ended=None, ends__gt=now).order_by("starts", "id")
    over = every.exclude(ended=None, ends__gt=now)[:MOST_OVER]
    return {"rows": _rows(to_come, now), "over": _rows(over, now)}


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    return _context(guarantees_visible(actor), now)


def _shown_to_operators(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    return {**_context(guarantees_of_site(), now), "is_operator": True}


def _set(row: DatedGuarantee) -> str:
    gpus = gpus_text(row.guaranteed_units)
    return f"{row.tenant.name}: {gpus} {row.gpu_class.label} guaranteed between the two dates."


urlpatterns = [
    form_page("dated-guarantees", "dated-guarantees", "dated_guarantees/page.html", _shown),
    operator_form_page(
        "dated-guarantees",
        "ops-dated-guarantees",
        "dated_guarantees/page.html",
        _shown_to_operators,
        Act(
            "add",
            guarantee_set,
            _set,
            terms=DatedGuaranteeTerms,
            cuts=cut_confirmation,
            choices={
                "tenant": lambda _: Tenant.objects.order_by("name").values_list("slug", "name"),
                "gpu_class": lambda _: GpuClass.objects.values_list("slug", "label"),
            },
        ),
        Act(
            "end",
            guarantee_end,
            "{row.tenant.name}: the usual guarantee of {row.gpu_class.label} applies.",
            key="guarantee",
            noun="dated guarantee",
            cuts=cut_confirmation,
        ),
        area=Area.RULES,
    ),
]
