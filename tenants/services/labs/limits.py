"""Writes what labs may use, and how much a person may use at once."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction

from tenants.access import Actor, access_project, require_tenant_admin
from tenants.audit import actor_record
from tenants.models import Lab, LabQuota, Membership, PersonQuota, Project, User
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.services.input_values import gpus_text
from tenants.services.labs.labs import lab_read
from tenants.services.labs.room import class_read, leads_lab, split_of_lab, split_of_tenant
from tenants.services.labs.share import Share, share_check
from tenants.services.limit_changes import Cut, LimitChange, LimitOf, Most, limit_changed, most_of
from tenants.words import refusal_text


@transaction.atomic
def lab_quota_set(
    *, actor: Actor, lab: str, gpu_class: str, share: Share, now: datetime, cut: Cut | None = None
) -> LabQuota:
    """Sets what a lab's projects may use together of a class, and the cap of their GPU-hours. `cut`
    says what happens to bookings above it.

    Raises:
        Refused: `not_allowed`, `not_found`, `lab_archived`, `bad_share`, `guarantees_exceeded`,
            `guarantees_promised` (its projects are guaranteed more).
    """
    require_tenant_admin(actor)
    share_check(share)
    owner, model = lab_read(actor, lab, "lab"), class_read(gpu_class)
    if not owner.is_open:
        raise invalid("lab_archived", refusal_text("owner_archived", owner=owner.name), "lab")
    split = split_of_tenant(actor.tenant_id, model, now, lab=owner.id)
    split.room(now, owner.id).check(model, share.guaranteed_units)
    promised_check(owner, split_of_lab(owner, model, now, 0).promised(now), share.guaranteed_units)
    values: dict[str, Any] = {
        "guaranteed_units": share.guaranteed_units,
        "borrow_limit_units": share.borrow_limit_units,
        "lend_limit_units": share.lend_limit_units,
    }
    if share.more is not None:
        names = ("cap_gpu_hours", "cap_days", "cap_carries")
        values |= {name: getattr(share.more, name) for name in names}
    quota = LabQuota.objects.filter(lab=owner, gpu_class=model).first()
    before = quota and {name: getattr(quota, name) for name in values}
    most = most_of(quota) if quota else Most()
    if quota is not None and before == values and (cut is None or cut.answer is None):
        return quota
    quota, _ = LabQuota.objects.update_or_create(
        tenant_id=actor.tenant_id, lab=owner, gpu_class=model, defaults=values
    )
    if before != values:
        detail = {"lab": owner.slug, "gpu_class": model.slug, "before": before, "after": values}
        actor_record(actor, "quota.set", ("quota", quota.id), now, detail)
    of = LimitOf(actor.tenant_id, model.slug, lab_id=owner.id)
    limit_changed(LimitChange(of, most, most_of(quota), actor.user_id), cut, now)
    was = before["guaranteed_units"] if before else 0
    sure = LimitChange(replace(of, guarantee=True), Most(was), Most(quota.guaranteed_units), actor.user_id)
    limit_changed(sure, cut, now)
    return quota


@transaction.atomic
def person_quota_set(  # noqa: PLR0913 (named parts of one limit)
    *,
    actor: Actor,
    project: str | None,
    username: str | None,
    gpu_class: str,
    limit_units: int | None,
    now: datetime,
    cut: Cut | None = None,
) -> PersonQuota | None:
    """Sets how many units a person may use at once in a project, or without one in the tenant. `cut`
    says what happens to bookings above it.

    Without a person it is for everybody who has no limit of their own there. None removes it.
    Leads set limits of their projects and labs, admins all.

    Raises:
        Refused: `not_allowed`, `not_found`, `bad_share`.
    """
    where = person_scope(actor, project)
    model = class_read(gpu_class)
    person = None if not username else member_to_limit(actor, where, username)
    if limit_units is not None and limit_units < 0:
        raise invalid("bad_share", refusal_text("limit_negative"), "limit")
    rows = PersonQuota.objects.filter(tenant_id=actor.tenant_id, project=where, user=person, gpu_class=model)
    known = rows.select_for_update().first()
    before = known.limit_units if known else None
    of = LimitOf(
        actor.tenant_id,
        model.slug,
        project_id=where.id if where else None,
        persons=True,
        person_id=person.id if person else None,
    )
    change = LimitChange(of, Most(before), Most(limit_units), actor.user_id)
    if before == limit_units:
        if cut is not None and cut.answer is not None:
            limit_changed(change, cut, now)
        return known
    quota = known
    if limit_units is None:
        rows.delete()
    else:
        owner: dict[str, Any] = {"project": where, "user": person, "gpu_class": model}
        defaults = {"limit_units": limit_units}
        quota, _ = rows.update_or_create(tenant_id=actor.tenant_id, **owner, defaults=defaults)
    if quota is not None:
        _person_limit_record(actor, quota, before, limit_units, now)
        limit_changed(change, cut, now)
    return quota if limit_units is not None else None


def _person_limit_record(
    actor: Actor, quota: PersonQuota, before: int | None, after: int | None, now: datetime
) -> None:
    detail = {
        "person": quota.user.username if quota.user else "everybody",
        "in_project": quota.project.slug if quota.project else None,
        "gpu_class": quota.gpu_class_id,
        "before": {"limit_units": before},
        "after": {"limit_units": after},
    }
    actor_record(actor, "person_quota.set", ("person_quota", quota.id), now, detail)


def project_to_limit(actor: Actor, slug: str) -> Project:
    """A project whose limits the actor sets: its lead, a lead of its lab, or an admin.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    project = Project.objects.filter(tenant_id=actor.tenant_id, slug=slug).first()
    if project is not None and project.lab_id and leads_lab(actor, project.lab_id):
        return project
    project = access_project(actor, slug, "project")
    if not actor.may_lead(project.id):
        raise denied(refusal_text("project_leads_only"))
    return project


def person_scope(actor: Actor, project: str | None) -> Project | None:
    """The project in which the actor sets limits of persons; None: the whole tenant, for admins.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    if project is not None:
        return project_to_limit(actor, project)
    require_tenant_admin(actor)
    return None


def member_to_limit(actor: Actor, project: Project | None, username: str) -> User:
    """A member of the project, or of the tenant; admins may book in all projects.

    Raises:
        Refused: `not_found`.
    """
    members = Membership.objects.filter(tenant_id=actor.tenant_id, user__username=username)
    for member in members.select_related("user"):
        if project is None or member.project_id in (None, project.id):
            return member.user
    raise missing("member", "username")


def promised_check(lab: Lab, promised: int, wanted: int) -> None:
    """Refuses a guarantee of a lab that is less than what its projects are guaranteed.

    Raises:
        Refused: `guarantees_promised`.
    """
    if promised > wanted:
        raise Refused(
            "guarantees_promised",
            refusal_text(
                "lab_guarantees_promised",
                lab=lab.name,
                promised=gpus_text(promised),
                wanted=gpus_text(wanted),
                short=gpus_text(promised - wanted),
            ),
            "quota",
            param="guaranteed",
            owner=lab.name,
            numbers={"promised": promised, "wanted": wanted},
            alternatives=({"guaranteed": promised},),
        )
