"""Writes quotas: an operator sets a tenant's share, and the tenant's admins split it."""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from tenants.access import Actor, require_tenant_admin
from tenants.audit import audit_record, platform_record
from tenants.models import Project, Quota, Tenant, User
from tenants.platform.errors import Refused, denied, missing
from tenants.services.input_values import gpus_text
from tenants.services.labs.room import (
    class_read,
    lab_quota_of,
    require_admin_or_lab_lead,
    room_of,
    split_of_tenant,
)
from tenants.services.labs.share import Share, ShareMore, more_check, share_check
from tenants.services.limit_changes import Cut, LimitChange, LimitOf, Most, limit_changed, most_of
from tenants.words import refusal_text


@transaction.atomic
def quota_set(
    *, actor: Actor, project: Project, gpu_class: str, share: Share, now: datetime, cut: Cut | None = None
) -> Quota:
    """Sets a project's share; the projects' guarantees together never exceed the tenant's, or the
    lab's if it has a quota. A lab's leads set its projects' shares inside the lab's. `cut` says what
    happens to bookings above it.

    Raises:
        Refused: `not_allowed`, `not_found` (class), `bad_share`, `guarantees_exceeded` with the
            numbers in units.
    """
    require_admin_or_lab_lead(actor, project)
    if not actor.is_tenant_admin:
        # Weights and caps decide between labs, too.
        if share.more not in (None, ShareMore()):
            raise denied(refusal_text("weights_admins_only"))
        share = replace(share, more=None)
    share_check(share)
    model = class_read(gpu_class)
    if lab_quota_of(project, model) is None:
        require_tenant_admin(actor)
    room_of(project, model, now).check(model, share.guaranteed_units)
    return _write(
        Quota(tenant_id=actor.tenant_id, project=project, gpu_class=model),
        share,
        actor.user_id,
        now,
        cut,
    )


@transaction.atomic
def tenant_quota_set(
    *,
    operator: User | None,
    tenant: Tenant,
    gpu_class: str,
    share: Share,
    now: datetime,
    cut: Cut | None = None,
) -> Quota:
    """Sets a tenant's share; never below what its projects are guaranteed. In `operator_tx`.
    `cut` as in `quota_set`.

    Raises:
        Refused: `not_found` (class), `bad_share`, `guarantees_promised` with numbers in units.
    """
    share_check(share)
    model = class_read(gpu_class)
    promised = split_of_tenant(tenant.id, model, now).promised(now)
    if promised > share.guaranteed_units:
        missing_units = promised - share.guaranteed_units
        raise Refused(
            "guarantees_promised",
            refusal_text(
                "guarantees_promised",
                tenant=tenant.name,
                promised=gpus_text(promised),
                model=model.label,
                guaranteed_units=gpus_text(share.guaranteed_units),
                missing_units=gpus_text(missing_units),
            ),
            "quota",
            param="guaranteed",
            owner=tenant.name,
            numbers={"promised": promised, "wanted": share.guaranteed_units},
        )
    user_id = operator.id if operator else None
    return _write(Quota(tenant=tenant, project=None, gpu_class=model), share, user_id, now, cut)


@transaction.atomic
def project_quota_set(
    *, operator: User | None, project: Project, gpu_class: str, share: Share, now: datetime
) -> Quota:
    """Sets a project's share with a version of the policy; the organisation's log has it. In
    `operator_tx`.

    Raises:
        Refused: `not_found` (class), `bad_share`, or `guarantees_exceeded` with the numbers in units.
    """
    share_check(share)
    model = class_read(gpu_class)
    room_of(project, model, now).check(model, share.guaranteed_units)
    row = Quota(tenant_id=project.tenant_id, project=project, gpu_class=model)
    return _write(row, share, operator.id if operator else None, now)


@transaction.atomic
def quota_more_set(
    *, actor: Actor, project: Project, gpu_class: str, more: ShareMore, now: datetime, cut: Cut | None = None
) -> Quota:
    """Sets the weight and cap of a project that has a share; the share stays as it is.

    Raises:
        Refused: `not_allowed`, `not_found` (class, share) or `bad_share`.
    """
    require_tenant_admin(actor)
    rows = Quota.objects.filter(tenant_id=actor.tenant_id, project=project)
    return _write_more(rows, gpu_class, more, actor.user_id, now, cut)


@transaction.atomic
def tenant_quota_more_set(
    *, operator: User, tenant: Tenant, gpu_class: str, more: ShareMore, now: datetime, cut: Cut | None = None
) -> Quota:
    """The same for a tenant. In `operator_tx`.

    Raises:
        Refused: `not_found` (class, share) or `bad_share`.
    """
    rows = Quota.objects.filter(tenant=tenant, project=None)
    return _write_more(rows, gpu_class, more, operator.id, now, cut)


def _write_more(
    rows: QuerySet[Quota], gpu_class: str, more: ShareMore, user_id: int, now: datetime, cut: Cut | None
) -> Quota:
    more_check(more)
    row = rows.select_for_update().filter(gpu_class=class_read(gpu_class)).first()
    if row is None:
        raise missing("share", "gpu_class")
    share = Share(row.guaranteed_units, row.borrow_limit_units, row.lend_limit_units, more)
    return _write(row, share, user_id, now, cut)


def _write(row: Quota, share: Share, user_id: int | None, now: datetime, cut: Cut | None = None) -> Quota:
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
    most = Most() if is_new else most_of(quota)
    for name, value in values.items():
        setattr(quota, name, value)
    if before != values:
        quota.save(update_fields=list(values))
        _record(quota, user_id, before, values, now)
    if before != values or (cut is not None and cut.answer is not None):
        of = LimitOf(quota.tenant_id, quota.gpu_class_id, project_id=quota.project_id)
        limit_changed(LimitChange(of, most, most_of(quota), user_id), cut, now)
        was = before["guaranteed_units"] if before else 0
        change = LimitChange(replace(of, guarantee=True), Most(was), Most(quota.guaranteed_units), user_id)
        limit_changed(change, cut, now)
    return quota


def _record(
    quota: Quota, user_id: int | None, before: dict[str, Any] | None, values: dict[str, Any], now: datetime
) -> None:
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
