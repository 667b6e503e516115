"""Writes labs: who leads them and which projects they have."""

from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from tenants.access import Actor, access_project, require_tenant_admin
from tenants.audit import actor_record
from tenants.lab_queries import guarantees_to_come
from tenants.models import (
    Lab,
    LabLead,
    LabQuota,
    Membership,
    Project,
    Quota,
    QuotaWindow,
    ServiceAccount,
)
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.input_values import name_read, slug_read
from tenants.services.labs.room import room_of
from tenants.words import refusal_text

OVERSPENT = "account_never_overspent"
"""The constraint that a hard budget of a lab has."""


def lab_read(actor: Actor, slug: str, param: str | None) -> Lab:
    """A lab of the actor's tenant. Raises Refused: `not_found`."""
    lab = Lab.objects.filter(tenant_id=actor.tenant_id, slug=slug).first()
    if lab is None:
        raise missing("lab", param)
    return lab


@transaction.atomic
def lab_create(*, actor: Actor, slug: str, name: str, now: datetime) -> Lab:
    """Creates a lab without projects.

    Raises:
        Refused: `not_allowed`, `bad_slug`, `bad_name`, `slug_taken` (also by an archived lab).
    """
    require_tenant_admin(actor)
    lab, is_new = Lab.objects.get_or_create(
        tenant_id=actor.tenant_id,
        slug=slug_read(slug),
        defaults={"name": name_read(name, longest=120)},
    )
    if not is_new:
        raise invalid("slug_taken", refusal_text("lab_slug_taken"), "slug")
    _record(actor, "lab.created", lab, now, {"name": lab.name})
    return lab


@transaction.atomic
def lab_rename(*, actor: Actor, slug: str, name: str, now: datetime) -> Lab:
    """Gives a lab another name.

    Raises:
        Refused: `not_allowed`, `not_found` or `bad_name`.
    """
    require_tenant_admin(actor)
    lab = _locked(actor, slug)
    before, lab.name = lab.name, name_read(name, longest=120)
    if lab.name != before:
        lab.save(update_fields=["name"])
        detail = {"before": {"name": before}, "after": {"name": lab.name}}
        _record(actor, "lab.renamed", lab, now, detail)
    return lab


@transaction.atomic
def lab_open_set(*, actor: Actor, slug: str, is_open: bool, now: datetime) -> Lab:
    """Archives a lab without projects, or opens it again. Its quotas and leads end.

    Raises:
        Refused: `not_allowed`, `not_found`, `lab_in_use`.
    """
    require_tenant_admin(actor)
    lab = _locked(actor, slug)
    if lab.is_open == is_open:
        return lab
    if not is_open:
        projects = list(Project.objects.filter(lab=lab).order_by("name"))
        if projects:
            names = ", ".join(project.name for project in projects[:3])
            more = f" and {len(projects) - 3} more" if len(projects) > 3 else ""
            raise Refused(
                "lab_in_use",
                refusal_text("lab_in_use", lab=lab.name, names=names, more=more),
                "conflict",
                numbers={"projects": len(projects)},
            )
        for rows in (LabQuota, LabLead, QuotaWindow):
            rows.objects.filter(lab=lab).delete()
        guarantees_to_come(now).filter(lab=lab).update(ended=now, ended_by_id=actor.user_id)
    lab.is_open = is_open
    lab.save(update_fields=["is_open"])
    _record(actor, "lab.opened" if is_open else "lab.archived", lab, now)
    return lab


@transaction.atomic
def project_lab_set(*, actor: Actor, project: str, lab: str | None, now: datetime) -> Project:
    """Moves a project into a lab, or out of its lab with None. Its own quotas stay.

    Raises:
        Refused: `not_allowed`, `not_found`, `lab_archived`, `guarantees_exceeded` where its
            guarantee has no room there, `budget_exceeded` where its money has none.
    """
    require_tenant_admin(actor)
    moved = access_project(actor, project, "project")
    moved = Project.objects.select_for_update().get(id=moved.id)
    target = None if lab is None else _locked(actor, lab, "lab")
    if target is not None and not target.is_open:
        raise invalid("lab_archived", refusal_text("lab_archived", target=target.name), "lab")
    if moved.lab_id == (target.id if target else None):
        return moved
    before = moved.lab.slug if moved.lab else None
    moved.lab = target
    for quota in Quota.objects.filter(project=moved).select_related("gpu_class"):
        room_of(moved, quota.gpu_class, now).check(quota.gpu_class, quota.guaranteed_units)
    for row in guarantees_to_come(now).filter(project=moved).select_related("gpu_class"):
        room = room_of(moved, row.gpu_class, now, (max(now, row.starts), row.ends))
        room.check(row.gpu_class, row.guaranteed_units)
    _place(moved)
    detail = {
        "slug": moved.slug,
        "before": {"lab": before},
        "after": {"lab": target.slug if target else None},
    }
    actor_record(actor, "project.moved", ("project", moved.id), now, detail)
    return moved


@transaction.atomic
def _place(project: Project) -> None:
    """Writes the lab of a project. The database counts the project's money in the lab's budgets.

    Raises:
        Refused: `budget_exceeded`.
    """
    try:
        with transaction.atomic():
            project.save(update_fields=["lab"])
    except IntegrityError as error:
        diagnosis = getattr(error.__cause__, "diag", None)
        if getattr(diagnosis, "constraint_name", None) != OVERSPENT:
            raise
        raise Refused(
            "budget_exceeded",
            refusal_text("lab_budget_exceeded", project=project.name),
            "budget",
            param="lab",
            owner="tenant_admin",
        ) from error


def lab_lead_add(*, actor: Actor, slug: str, username: str, now: datetime) -> LabLead:
    """Makes a member of the tenant a lead of the lab, who sets its projects' quotas inside it.

    Raises:
        Refused: `not_allowed`, `not_found`, `bad_role` (a service account).
    """
    require_tenant_admin(actor)
    lab = _locked(actor, slug)
    member = Membership.objects.filter(tenant_id=actor.tenant_id, user__username=username).first()
    if member is None:
        raise missing("member", "username")
    if ServiceAccount.objects.filter(user_id=member.user_id).exists():
        raise invalid("bad_role", refusal_text("lab_lead_service_account"), "username")
    lead, is_new = LabLead.objects.get_or_create(tenant_id=actor.tenant_id, lab=lab, user_id=member.user_id)
    if is_new:
        _record(actor, "lab.lead_added", lab, now, {"user": username})
    return lead


@transaction.atomic
def lab_lead_remove(*, actor: Actor, slug: str, username: str, now: datetime) -> None:
    """Takes the lead of a lab from a person.

    Raises:
        Refused: `not_allowed` or `not_found`.
    """
    require_tenant_admin(actor)
    lab = _locked(actor, slug)
    found, _ = LabLead.objects.filter(lab=lab, user__username=username).delete()
    if not found:
        raise missing("lead", "username")
    _record(actor, "lab.lead_removed", lab, now, {"user": username})


def _locked(actor: Actor, slug: str, param: str | None = None) -> Lab:
    rows = Lab.objects.select_for_update().filter(tenant_id=actor.tenant_id, slug=slug)
    lab = rows.first()
    if lab is None:
        raise missing("lab", param)
    return lab


def _record(actor: Actor, action: str, lab: Lab, now: datetime, detail: dict[str, Any] | None = None) -> None:
    actor_record(actor, action, ("lab", lab.id), now, {"slug": lab.slug, **(detail or {})})
