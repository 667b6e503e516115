"""What guarantees leave: of a tenant for its labs and projects, of a lab for its projects."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet, Sum

from tenants.access import Actor
from tenants.lab_queries import guarantees_to_come
from tenants.models import GpuClass, LabLead, LabQuota, Project, Quota
from tenants.platform.errors import Refused, denied, missing
from tenants.services.input_values import gpus_text
from tenants.words import refusal_text


@dataclass(frozen=True, slots=True)
class Room:
    """Units that an owner is guaranteed, and those that others below it are guaranteed."""

    name: str
    guaranteed: int
    others: int
    owner: str

    def check(self, model: GpuClass, wanted: int) -> None:
        """Refuses a guarantee of so many units that does not fit.

        Raises:
            Refused: `guarantees_exceeded` with the numbers in units.
        """
        over = self.others + wanted - self.guaranteed
        if wanted <= 0 or over <= 0:
            return
        left = max(0, self.guaranteed - self.others)
        raise Refused(
            "guarantees_exceeded",
            refusal_text(
                "guarantees_exceeded",
                project=self.name,
                guaranteed=gpus_text(self.guaranteed),
                model=model.label,
                others=gpus_text(self.others),
                wanted=gpus_text(wanted),
                over=gpus_text(over),
                left=gpus_text(left),
            ),
            "quota",
            param="guaranteed",
            owner=self.owner,
            numbers={
                "guaranteed": self.guaranteed,
                "others": self.others,
                "wanted": wanted,
                "over": over,
            },
            alternatives=({"guaranteed": left},),
        )


def class_read(slug: str) -> GpuClass:
    """The class of this name. Raises Refused: `not_found`."""
    model = GpuClass.objects.filter(slug=slug).first()
    if model is None:
        raise missing("GPU class", "gpu_class")
    return model


def lab_quota_of(project: Project, model: GpuClass) -> LabQuota | None:
    """What the project's lab may use of a class; None without a lab or without a quota of it."""
    if project.lab_id is None:
        return None
    rows = LabQuota.objects.filter(lab_id=project.lab_id, gpu_class=model)
    return rows.select_related("lab").first()


def leads_lab(actor: Actor, lab_id: UUID) -> bool:
    """Whether the person leads the lab; nobody does with a token of one project."""
    if actor.only_project is not None:
        return False
    return LabLead.objects.filter(tenant_id=actor.tenant_id, lab_id=lab_id, user_id=actor.user_id).exists()


def require_admin_or_lab_lead(actor: Actor, project: Project) -> None:
    """Raises Refused `not_allowed` unless the actor administers the tenant or leads the project's
    lab."""
    if actor.is_tenant_admin or (project.lab_id and leads_lab(actor, project.lab_id)):
        return
    raise denied(refusal_text("lab_leads_only"))


def tenant_quota_locked(tenant_id: UUID, model: GpuClass) -> Quota | None:
    """The tenant's own quota, locked."""
    rows = Quota.objects.select_for_update()
    return rows.filter(tenant_id=tenant_id, project=None, gpu_class=model).first()


def room_of_tenant(
    tenant_id: UUID,
    model: GpuClass,
    now: datetime,
    *,
    project: UUID | None = None,
    lab: UUID | None = None,
) -> Room:
    """What the tenant's guarantee leaves next to all but this project, or all but this lab.

    A guarantee that is lower between two dates to come counts. A project counts in its lab if the lab
    has a quota of the class. Locks the tenant's quota, so that admins who split it wait for each other.
    """
    own = tenant_quota_locked(tenant_id, model)
    labs = LabQuota.objects.filter(tenant_id=tenant_id, gpu_class=model)
    inside = {*labs.values_list("lab_id", flat=True)} | ({lab} if lab else set())
    projects = Quota.objects.filter(tenant_id=tenant_id, project__isnull=False, gpu_class=model)
    projects = projects.filter(Q(project__lab=None) | ~Q(project__lab__in=inside))
    others = _sum(labs.exclude(lab_id=lab) if lab else labs)
    others += _sum(projects.exclude(project_id=project) if project else projects)
    guaranteed = own.guaranteed_units if own else 0
    dated = guarantees_to_come(now).filter(tenant_id=tenant_id, gpu_class=model)
    guaranteed = min([guaranteed, *dated.values_list("guaranteed_units", flat=True)])
    return Room("The tenant", guaranteed, others, "the platform's operator")


def room_of_lab(quota: LabQuota, now: datetime, *, project: UUID | None) -> Room:
    """What the lab's guarantee leaves next to all its projects but this one."""
    room_of_tenant(quota.tenant_id, quota.gpu_class, now)
    projects = Quota.objects.filter(project__lab_id=quota.lab_id, gpu_class=quota.gpu_class)
    others = _sum(projects.exclude(project_id=project) if project else projects)
    return Room(f"The lab {quota.lab}", quota.guaranteed_units, others, "the tenant's admins")


def _sum(rows: QuerySet[Quota] | QuerySet[LabQuota]) -> int:
    return int(rows.aggregate(units=Sum("guaranteed_units"))["units"] or 0)
