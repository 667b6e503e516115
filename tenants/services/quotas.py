"""Who may use how many GPUs of a class: the tenant's share by the operator, its split by the
tenant's admins."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Sum

from tenants.access import Actor, require_tenant_admin
from tenants.audit import audit_record
from tenants.errors import Refused, invalid, missing
from tenants.models import GpuClass, Project, Quota, Tenant, User
from tenants.services.words import gpus_text


@dataclass(frozen=True, slots=True)
class Share:
    """Units of a class: what is sure, and the most at any instant (None: the parent's limit)."""

    guaranteed_units: int
    limit_units: int | None


@transaction.atomic
def quota_set(
    *, actor: Actor, project: Project, gpu_class: str, share: Share, now: datetime
) -> Quota:
    """Sets a project's share; all projects' guarantees together stay inside the tenant's.

    Raises:
        Refused: `not_allowed`, `not_found` (class), `bad_share`, `guarantees_exceeded` with the
            numbers in units.
    """
    require_tenant_admin(actor)
    _check(share)
    model = _class(gpu_class)
    own = _tenant_quota(actor.tenant_id, model)
    guaranteed = own.guaranteed_units if own else 0
    others = _guarantees(actor.tenant_id, model, but=project.id)
    if share.guaranteed_units and others + share.guaranteed_units > guaranteed:
        raise _exceeded(model, guaranteed=guaranteed, others=others, wanted=share.guaranteed_units)
    return _write(
        Quota(tenant_id=actor.tenant_id, project=project, gpu_class=model),
        share,
        actor.user_id,
        now,
    )


@transaction.atomic
def tenant_quota_set(
    *, operator: User, tenant: Tenant, gpu_class: str, share: Share, now: datetime
) -> Quota:
    """Sets a tenant's share; never below what its projects are guaranteed. In `operator_tx`.

    Raises:
        Refused: `not_found` (class), `bad_share`, `guarantees_promised` with numbers in units.
    """
    _check(share)
    model = _class(gpu_class)
    _tenant_quota(tenant.id, model)
    promised = _guarantees(tenant.id, model)
    if promised > share.guaranteed_units:
        missing_units = promised - share.guaranteed_units
        raise Refused(
            "guarantees_promised",
            f"The projects of {tenant.name} are guaranteed {gpus_text(promised)} {model.label}."
            f" {gpus_text(share.guaranteed_units)} is {gpus_text(missing_units)} too few: first"
            " the tenant's admin has to lower a project's guarantee.",
            "quota",
            param="guaranteed",
            owner=tenant.name,
            numbers={"promised": promised, "wanted": share.guaranteed_units},
        )
    return _write(Quota(tenant=tenant, project=None, gpu_class=model), share, operator.id, now)


def _check(share: Share) -> None:
    if share.guaranteed_units < 0 or (share.limit_units or 0) < 0:
        raise invalid("bad_share", "A share is never negative.", "guaranteed")
    if share.limit_units is not None and share.limit_units < share.guaranteed_units:
        raise invalid(
            "bad_share",
            f"The limit ({gpus_text(share.limit_units)}) is less than what is guaranteed"
            f" ({gpus_text(share.guaranteed_units)}).",
            "limit",
        )


def _class(slug: str) -> GpuClass:
    model = GpuClass.objects.filter(slug=slug).first()
    if model is None:
        raise missing("GPU class", "gpu_class")
    return model


def _tenant_quota(tenant_id: UUID, gpu_class: GpuClass) -> Quota | None:
    """The tenant's own row, locked: whoever splits it or changes it waits for the other."""
    return (
        Quota.objects.select_for_update()
        .filter(tenant_id=tenant_id, project=None, gpu_class=gpu_class)
        .first()
    )


def _guarantees(tenant_id: UUID, gpu_class: GpuClass, but: UUID | None = None) -> int:
    rows = Quota.objects.filter(tenant_id=tenant_id, project__isnull=False, gpu_class=gpu_class)
    if but is not None:
        rows = rows.exclude(project_id=but)
    return int(rows.aggregate(units=Sum("guaranteed_units"))["units"] or 0)


def _exceeded(model: GpuClass, *, guaranteed: int, others: int, wanted: int) -> Refused:
    over = others + wanted - guaranteed
    left = max(0, guaranteed - others)
    return Refused(
        "guarantees_exceeded",
        f"The tenant is guaranteed {gpus_text(guaranteed)} {model.label}, its other projects have"
        f" {gpus_text(others)} of them. {gpus_text(wanted)} is {gpus_text(over)} too many:"
        f" {gpus_text(left)} would work.",
        "quota",
        param="guaranteed",
        owner="the platform's operator",
        numbers={"guaranteed": guaranteed, "others": others, "wanted": wanted, "over": over},
        alternatives=({"guaranteed": left},),
    )


def _write(row: Quota, share: Share, user_id: int, now: datetime) -> Quota:
    values = {"guaranteed_units": share.guaranteed_units, "limit_units": share.limit_units}
    quota, is_new = Quota.objects.select_for_update().get_or_create(
        tenant_id=row.tenant_id, project=row.project, gpu_class=row.gpu_class, defaults=values
    )
    before = None if is_new else _numbers(quota)
    if before == values:
        return quota
    quota.guaranteed_units = share.guaranteed_units
    quota.limit_units = share.limit_units
    quota.save(update_fields=list(values))
    audit_record(
        tenant_id=quota.tenant_id,
        actor_id=user_id,
        action="quota.set",
        target=("quota", quota.id),
        now=now,
        detail={
            "project": str(quota.project_id) if quota.project_id else None,
            "gpu_class": quota.gpu_class_id,
            "before": before,
            "after": values,
        },
    )
    return quota


def _numbers(quota: Quota) -> Mapping[str, Any]:
    return {"guaranteed_units": quota.guaranteed_units, "limit_units": quota.limit_units}
