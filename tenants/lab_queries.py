"""Reads of labs, limits of persons, and limits at some times, as far as people may see them."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import Q, QuerySet

from tenants.access import Actor
from tenants.models import DatedGuarantee, Lab, LabLead, LabQuota, PersonQuota, Project, Quota, QuotaWindow
from tenants.platform.errors import missing
from tenants.rules.limit_times import Times

OwnersQuota = TypeVar("OwnersQuota", Quota, LabQuota)


def labs_led(actor: Actor) -> set[UUID]:
    """The labs that the person leads; none with a token of one project."""
    if actor.only_project is not None:
        return set()
    rows = LabLead.objects.filter(tenant_id=actor.tenant_id, user_id=actor.user_id)
    return set(rows.values_list("lab_id", flat=True))


def projects_seen(actor: Actor, led: Collection[UUID]) -> QuerySet[Project]:
    """The person's projects and those of the labs that they lead; all for admins."""
    projects = Project.objects.filter(tenant_id=actor.tenant_id).select_related("lab")
    if not actor.is_tenant_admin:
        projects = projects.filter(Q(id__in=actor.roles) | Q(lab__in=led))
    return projects.order_by("name", "id")


def labs_seen(actor: Actor) -> QuerySet[Lab]:
    """The labs of the person's projects and those that they lead; all for admins. By name."""
    labs = Lab.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        labs = labs.filter(Q(project__in=actor.roles) | Q(id__in=labs_led(actor))).distinct()
    return labs


def lab_seen(actor: Actor, slug: str) -> Lab:
    """One of these labs. Raises Refused: `not_found`."""
    lab = labs_seen(actor).filter(slug=slug).first()
    if lab is None:
        raise missing("lab")
    return lab


def labs_of(tenant_id: UUID) -> QuerySet[Lab]:
    """The tenant's labs that are not archived, by name."""
    return Lab.objects.filter(tenant_id=tenant_id, is_open=True)


def labs_read(actor: Actor) -> QuerySet[Lab]:
    """Those whose figures the person may read: the open ones that they lead; all for admins. By name."""
    labs = labs_of(actor.tenant_id)
    return labs if actor.is_tenant_admin else labs.filter(id__in=labs_led(actor))


def person_quotas_seen(actor: Actor) -> QuerySet[PersonQuota]:
    """The person's limits, those of everybody, and those in the projects that they lead."""
    rows = PersonQuota.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        led = labs_led(actor)
        leads = [each for each in actor.roles if actor.may_lead(each)]
        here = Q(project=None) | Q(project__in=actor.roles)
        own = Q(user=actor.user_id) & (Q() if actor.only_project is None else here)
        mine = own | (Q(user=None) & here)
        rows = rows.filter(mine | Q(project__in=leads) | Q(project__lab__in=led))
    rows = rows.select_related("project", "user")
    return rows.order_by("project__name", "user__username", "gpu_class__order", "gpu_class_id")


def quota_windows_seen(actor: Actor) -> QuerySet[QuotaWindow]:
    """The tenant's limits at some times, and those of the person's projects and labs."""
    rows = QuotaWindow.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        led = labs_led(actor)
        mine = Q(project__in=actor.roles) | Q(project__lab__in=led) | Q(lab__in=labs_seen(actor))
        leads = [each for each in actor.roles if actor.may_lead(each)]
        persons = Q(user=actor.user_id) | Q(project__in=leads) | Q(project__lab__in=led)
        if actor.only_project is not None:
            persons &= Q(project=None) | mine
        of_all = Q(user=None) & (Q(project=None, lab=None) | mine)
        rows = rows.filter(of_all | (Q(user__isnull=False) & persons))
    return rows.select_related("project", "lab", "user", "gpu_class")


def times_of(row: QuotaWindow) -> Times:
    """When the limit of a row applies."""
    return Times(
        row.first_day,
        row.last_day,
        tuple(row.weekdays),
        row.first_hour,
        row.end_hour,
        row.zone,
    )


def guarantees_to_come(now: datetime) -> QuerySet[DatedGuarantee]:
    """The dated guarantees of tenants, labs and projects that are in force or still to begin; row-level
    security may narrow them to one tenant."""
    return DatedGuarantee.objects.filter(ended=None, ends__gt=now).order_by("starts", "id")


def quotas_now(rows: Iterable[OwnersQuota], now: datetime) -> list[OwnersQuota]:
    """The quotas with the guarantees that are in force. To read, never to save."""
    found, dated = list(rows), guarantees_now(now)
    for row in found:
        key = (_owner_of(row), row.gpu_class_id)
        row.guaranteed_units = dated.get(key, row.guaranteed_units)
    return found


def _owner_of(row: Quota | LabQuota) -> UUID:
    return row.lab_id if isinstance(row, LabQuota) else row.project_id or row.tenant_id


def guarantees_now(now: datetime) -> dict[tuple[UUID, str], int]:
    """The units of dated guarantees that are in force, by the tenant, lab or project, and class."""
    rows = guarantees_to_come(now).filter(starts__lte=now)
    return {(row.owner_id, row.gpu_class_id): row.guaranteed_units for row in rows}
