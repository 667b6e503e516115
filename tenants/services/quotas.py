"""Writes quotas: an operator sets a tenant's share, and the tenant's admins split it."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum

from tenants.access import Actor, require_tenant_admin
from tenants.audit import audit_record, platform_record
from tenants.models import GpuClass, Project, Quota, Tenant, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.input_values import gpus_text


@dataclass(frozen=True, slots=True)
class Share:
    """Units of a class: what is sure, the most above it (None: what there is), and the most of it
    that others may use while it is idle (None: all). `more` None leaves the rest as it was."""

    guaranteed_units: int
    borrow_limit_units: int | None = None
    lend_limit_units: int | None = None
    more: "ShareMore | None" = None


@dataclass(frozen=True, slots=True)
class ShareMore:
    """The weight in what is split above guarantees, and a cap of GPU-hours: in any `cap_days` days
    in a row, or by month of UTC, where `cap_carries` adds what the month before left."""

    weight: int = 1
    cap_gpu_hours: int | None = None
    cap_days: int | None = None
    cap_carries: bool = False


@transaction.atomic
def quota_set(
    *, actor: Actor, project: Project, gpu_class: str, share: Share, now: datetime
) -> Quota:
    """Sets a project's share; the projects' guarantees together never exceed the tenant's.

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
            f" {gpus_text(share.guaranteed_units)} is {gpus_text(missing_units)} too few: the"
            " tenant's admin has to lower a project's guarantee first.",
            "quota",
            param="guaranteed",
            owner=tenant.name,
            numbers={"promised": promised, "wanted": share.guaranteed_units},
        )
    return _write(Quota(tenant=tenant, project=None, gpu_class=model), share, operator.id, now)


@transaction.atomic
def quota_more_set(
    *, actor: Actor, project: Project, gpu_class: str, more: ShareMore, now: datetime
) -> Quota:
    """Sets the weight and cap of a project that has a share; the share stays as it is.

    Raises:
        Refused: `not_allowed`, `not_found` (class, share) or `bad_share`.
    """
    require_tenant_admin(actor)
    rows = Quota.objects.filter(tenant_id=actor.tenant_id, project=project)
    return _write_more(rows, gpu_class, more, actor.user_id, now)


@transaction.atomic
def tenant_quota_more_set(
    *, operator: User, tenant: Tenant, gpu_class: str, more: ShareMore, now: datetime
) -> Quota:
    """The same for a tenant. In `operator_tx`.

    Raises:
        Refused: `not_found` (class, share) or `bad_share`.
    """
    rows = Quota.objects.filter(tenant=tenant, project=None)
    return _write_more(rows, gpu_class, more, operator.id, now)


def _write_more(
    rows: QuerySet[Quota], gpu_class: str, more: ShareMore, user_id: int, now: datetime
) -> Quota:
    _check_more(more)
    row = rows.select_for_update().filter(gpu_class=_class(gpu_class)).first()
    if row is None:
        raise missing("share", "gpu_class")
    share = Share(row.guaranteed_units, row.borrow_limit_units, row.lend_limit_units, more)
    return _write(row, share, user_id, now)


def _check(share: Share) -> None:
    if share.guaranteed_units < 0:
        raise invalid("bad_share", "A share is never negative.", "guaranteed")
    if (share.borrow_limit_units or 0) < 0:
        raise invalid("bad_share", "The borrow limit is never negative.", "borrow")
    if (share.lend_limit_units or 0) < 0:
        raise invalid("bad_share", "The lend limit is never negative.", "lend")
    if share.more is not None:
        _check_more(share.more)


def _check_more(more: ShareMore) -> None:
    if not 0 <= more.weight <= 1000:
        raise invalid("bad_share", "A weight is a whole number from 0 to 1000.", "weight")
    if more.cap_gpu_hours is None:
        if more.cap_days is not None or more.cap_carries:
            raise invalid("bad_share", "Enter the GPU-hours of the cap.", "cap_gpu_hours")
        return
    if more.cap_gpu_hours <= 0:
        raise invalid("bad_share", "A cap has at least one GPU-hour.", "cap_gpu_hours")
    if more.cap_days is not None and (not 1 <= more.cap_days <= 31 or more.cap_carries):
        raise invalid(
            "bad_share",
            "A cap applies to 1 to 31 consecutive days, or to a month; only a month carries over.",
            "cap_days",
        )


def _class(slug: str) -> GpuClass:
    model = GpuClass.objects.filter(slug=slug).first()
    if model is None:
        raise missing("GPU class", "gpu_class")
    return model


def _tenant_quota(tenant_id: UUID, gpu_class: GpuClass) -> Quota | None:
    """The tenant's own row, locked, so that splitting and changing it wait for each other."""
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
    values: dict[str, Any] = {
        "guaranteed_units": share.guaranteed_units,
        "borrow_limit_units": share.borrow_limit_units,
        "lend_limit_units": share.lend_limit_units,
        **(asdict(share.more) if share.more else {}),
    }
    quota, is_new = Quota.objects.select_for_update().get_or_create(
        tenant_id=row.tenant_id, project=row.project, gpu_class=row.gpu_class, defaults=values
    )
    before = None if is_new else {name: getattr(quota, name) for name in values}
    if before == values:
        return quota
    for name, value in values.items():
        setattr(quota, name, value)
    quota.save(update_fields=list(values))
    if quota.project_id is None:
        # Only operators set the quota of a tenant.
        where = {"tenant": quota.tenant.slug, "gpu_class": quota.gpu_class_id}
        platform_record(
            operator_id=user_id,
            action="quota.set",
            target=("quota", quota.id),
            now=now,
            before={**where, **(before or {})},
            after={**where, **values},
        )
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
