"""The pages of dated guarantees: of an organisation, and of the site."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from allocation.features.dated_guarantees.inner import (
    InnerGuaranteeTerms,
    inner_guarantee_end,
    inner_guarantee_set,
    may_set,
)
from allocation.features.dated_guarantees.services import (
    DatedGuaranteeTerms,
    guarantee_end,
    guarantee_set,
    guarantees_of_site,
    guarantees_visible,
)
from allocation.web.limits.cut_question import cut_confirmation
from tenants.access import Actor, PlatformActor
from tenants.lab_queries import labs_led, labs_of, projects_seen
from tenants.models import DatedGuarantee, GpuClass, LabQuota, Quota, Tenant
from tenants.rules.operator_roles import Area
from tenants.services import gpus_text
from tenants.web.form_page import Act, form_page, operator_form_page
from tenants.web.terms_form import Choices

MOST_OVER = 30


@dataclass(frozen=True, slots=True)
class GuaranteeRow:
    """A guarantee between dates as text. `usual`: the number at other times."""

    id: UUID
    owner: str
    gpu_class: str
    gpus: str
    usual: str
    starts: datetime
    ends: datetime
    is_on: bool
    ended: datetime | None
    may_end: bool


def _rows(
    rows: Iterable[DatedGuarantee], now: datetime, may_end: Callable[[DatedGuarantee], bool]
) -> list[GuaranteeRow]:
    found = list(rows)
    tenants = {row.tenant_id for row in found}
    usual: dict[tuple[UUID, str], int] = {
        (row.project_id or row.tenant_id, row.gpu_class_id): row.guaranteed_units
        for row in Quota.objects.filter(tenant_id__in=tenants)
    }
    for quota in LabQuota.objects.filter(tenant_id__in=tenants):
        usual[quota.lab_id, quota.gpu_class_id] = quota.guaranteed_units
    return [
        GuaranteeRow(
            row.id,
            row.owner_name,
            row.gpu_class.label,
            gpus_text(row.guaranteed_units),
            gpus_text(usual.get((row.owner_id, row.gpu_class_id), 0)),
            row.starts,
            row.ends,
            row.starts <= now,
            row.ended,
            may_end(row),
        )
        for row in found
    ]


def _context(
    every: QuerySet[DatedGuarantee], now: datetime, may_end: Callable[[DatedGuarantee], bool]
) -> dict[str, Any]:
    to_come = every.filter(ended=None, ends__gt=now).order_by("starts", "id")
    over = every.exclude(ended=None, ends__gt=now)[:MOST_OVER]
    return {"rows": _rows(to_come, now, may_end), "over": _rows(over, now, lambda _: False)}


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    found = _context(guarantees_visible(actor), now, lambda row: not row.is_of_tenant and may_set(actor, row))
    quotas = Quota.objects.filter(project=None, tenant_id=actor.tenant_id, guaranteed_units__gt=0)
    usual = quotas.select_related("gpu_class").order_by("gpu_class__order", "gpu_class")
    return found | {
        "may_set": actor.is_tenant_admin or bool(labs_led(actor)),
        "usual": [f"{gpus_text(row.guaranteed_units)} {row.gpu_class.label}" for row in usual],
    }


def _shown_to_operators(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    found = _context(guarantees_of_site(), now, lambda _: True)
    return found | {"is_operator": True, "may_set": True}


def _set(row: DatedGuarantee) -> str:
    gpus = gpus_text(row.guaranteed_units)
    return f"{row.owner_name}: {gpus} {row.gpu_class.label} guaranteed between the two dates."


def _projects(actor: Actor) -> Choices:
    led = labs_led(actor)
    mine = [row for row in projects_seen(actor, led) if actor.is_tenant_admin or row.lab_id in led]
    return [("", "—"), *((row.slug, row.name) for row in mine)]


def _labs(actor: Actor) -> Choices:
    labs = labs_of(actor.tenant_id) if actor.is_tenant_admin else ()
    return [("", "—"), *((row.slug, row.name) for row in labs)]


def _classes(_: object) -> Choices:
    return GpuClass.objects.values_list("slug", "label")


urlpatterns = [
    form_page(
        "dated-guarantees",
        "dated-guarantees",
        "dated_guarantees/page.html",
        _shown,
        Act(
            "add",
            inner_guarantee_set,
            _set,
            terms=InnerGuaranteeTerms,
            cuts=cut_confirmation,
            choices={"project": _projects, "lab": _labs, "gpu_class": _classes},
        ),
        Act(
            "end",
            inner_guarantee_end,
            "{row.owner_name}: the usual guarantee of {row.gpu_class.label} applies.",
            key="guarantee",
            noun="dated guarantee",
            cuts=cut_confirmation,
        ),
    ),
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
                "gpu_class": _classes,
            },
        ),
        Act(
            "end",
            guarantee_end,
            "{row.owner_name}: the usual guarantee of {row.gpu_class.label} applies.",
            key="guarantee",
            noun="dated guarantee",
            cuts=cut_confirmation,
        ),
        area=Area.RULES,
    ),
]
