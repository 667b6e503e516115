"""What guarantees leave: of a tenant for its labs and projects, of a lab for its projects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from tenants.access import Actor
from tenants.lab_queries import guarantees_to_come
from tenants.models import DatedGuarantee, GpuClass, Lab, LabLead, LabQuota, Project, Quota
from tenants.platform.errors import Refused, denied, missing
from tenants.rules.limit_times import FOREVER
from tenants.services.input_values import gpus_text
from tenants.words import refusal_text

Window = tuple[datetime, datetime]


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


@dataclass(frozen=True, slots=True)
class Split:
    """What an owner is guaranteed of a class over time, and those directly below it: usually, and by
    owner between `dated`."""

    name: str
    set_by: str
    owner_id: UUID
    usual: int
    below: Mapping[UUID, int]
    dated: Sequence[DatedGuarantee]

    def room(self, now: datetime, besides: UUID | None = None, window: Window | None = None) -> Room:
        """What is left next to all but one of those below, at the scarcest time of a window; without one,
        of all times at which the usual guarantee of that one applies."""
        usual = {owner: units for owner, units in self.below.items() if owner != besides}
        found = (
            (self._at(self.owner_id, self.usual, at), sum(self._at(*row, at) for row in usual.items()))
            for at in self._times(now, besides, window)
        )
        guaranteed, others = min(found, key=lambda each: each[0] - each[1])
        return Room(self.name, guaranteed, others, self.set_by)

    def promised(self, now: datetime, window: Window | None = None) -> int:
        """The most that those below are guaranteed together at a time of a window; without one, of all
        times at which the owner's usual guarantee applies."""
        times = self._times(now, self.owner_id, window)
        return max(sum(self._at(*row, at) for row in self.below.items()) for at in times)

    def _times(self, now: datetime, whose: UUID | None, window: Window | None) -> list[datetime]:
        starts, ends = window or (now, FOREVER)
        edges = {at for each in self.dated for at in (each.starts, each.ends) if starts < at < ends}
        times = sorted({starts, *edges})
        if window is not None or whose is None:
            return times
        return [at for at in times if self._row(whose, at) is None]

    def _at(self, owner: UUID, usual: int, instant: datetime) -> int:
        row = self._row(owner, instant)
        return usual if row is None else row.guaranteed_units

    def _row(self, owner: UUID, instant: datetime) -> DatedGuarantee | None:
        mine = (each for each in self.dated if each.owner_id == owner)
        return next((each for each in mine if each.starts <= instant < each.ends), None)


def split_of_tenant(tenant_id: UUID, model: GpuClass, now: datetime, *, lab: UUID | None = None) -> Split:
    """How a tenant's guarantee is split among labs and projects. A project counts in its lab if the lab
    has a quota of the class, or is to have one. Locks the tenant's quota, so that admins who split it
    wait for each other."""
    own = tenant_quota_locked(tenant_id, model)
    labs = list(LabQuota.objects.filter(tenant_id=tenant_id, gpu_class=model))
    inside = {row.lab_id for row in labs} | ({lab} if lab else set())
    projects = Quota.objects.filter(tenant_id=tenant_id, project__isnull=False, gpu_class=model)
    projects = projects.filter(Q(project__lab=None) | ~Q(project__lab__in=inside))
    below = {row.lab_id: row.guaranteed_units for row in labs} | _units(projects)
    usual = own.guaranteed_units if own else 0
    dated = _dated(tenant_id, model, now)
    return Split("The organisation", "the platform's operator", tenant_id, usual, below, dated)


def split_of_lab(lab: Lab, model: GpuClass, now: datetime, usual: int) -> Split:
    """How a lab's guarantee, usually so many units, is split among its projects. Locks as
    `split_of_tenant`."""
    tenant_quota_locked(lab.tenant_id, model)
    below = _units(Quota.objects.filter(project__lab=lab, gpu_class=model))
    dated = _dated(lab.tenant_id, model, now)
    return Split(f"The lab {lab}", "the organisation's admins", lab.id, usual, below, dated)


def room_of(project: Project, model: GpuClass, now: datetime, window: Window | None = None) -> Room:
    """What is left for a project in all of a window: of its lab's guarantee, or else of the tenant's."""
    of_lab = lab_quota_of(project, model)
    if of_lab is None:
        split = split_of_tenant(project.tenant_id, model, now)
    else:
        split = split_of_lab(of_lab.lab, model, now, of_lab.guaranteed_units)
    return split.room(now, project.id, window)


def _units(rows: QuerySet[Quota]) -> dict[UUID, int]:
    return {row.project_id: row.guaranteed_units for row in rows if row.project_id}


def _dated(tenant_id: UUID, model: GpuClass, now: datetime) -> list[DatedGuarantee]:
    return list(guarantees_to_come(now).filter(tenant_id=tenant_id, gpu_class=model))
