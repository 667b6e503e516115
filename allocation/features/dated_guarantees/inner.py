"""Guarantees of labs and projects between dates: admins and lab leads set and end them."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from allocation.features.dated_guarantees.rows import (
    EndTerms,
    GuaranteeTerms,
    answered,
    dates_read,
    overlap_check,
    row_added,
    row_ended,
    same_row,
)
from allocation.features.dated_guarantees.services import guarantees_visible
from allocation.words.refusals import refusal_text
from tenants.access import Actor, require_tenant_admin
from tenants.lab_queries import guarantees_to_come
from tenants.models import DatedGuarantee, GpuClass, Lab, LabQuota, Project, Quota
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.labs.labs import lab_read
from tenants.services.labs.limits import project_to_limit, promised_check
from tenants.services.labs.room import (
    Window,
    class_read,
    lab_quota_of,
    require_admin_or_lab_lead,
    room_of,
    split_of_lab,
    split_of_tenant,
)
from tenants.services.limit_changes import Cut


@terms
class InnerGuaranteeTerms(GuaranteeTerms):
    """What a lab or a project is guaranteed between two instants, in place of its usual guarantee."""

    project: str | None = term(
        "Project", "Choose a project or a lab.", says="A project, or a lab.", default=None, max_length=40
    )
    lab: str | None = term("Lab", "Leave it empty for a project.", default=None, max_length=40)


@dataclass(frozen=True, slots=True)
class Owner:
    """A project or a lab of the actor's organisation, and its quota of a class."""

    of: Project | Lab
    model: GpuClass
    quota: Quota | LabQuota

    @property
    def known(self) -> dict[str, Project | Lab]:
        """The filter of its rows."""
        return {"project" if isinstance(self.of, Project) else "lab": self.of}

    def check(self, units: int, window: Window, now: datetime) -> None:
        """Refuses so many units that do not fit above or below at a time of the window. Raises Refused:
        `guarantees_exceeded` or `guarantees_promised`."""
        if isinstance(self.of, Project):
            room_of(self.of, self.model, now, window).check(self.model, units)
            return
        split = split_of_tenant(self.of.tenant_id, self.model, now)
        split.room(now, self.of.id, window).check(self.model, units)
        promised = split_of_lab(self.of, self.model, now, units).promised(now, window)
        promised_check(self.of, promised, units)


def inner_guarantee_set(
    *, actor: Actor, terms: InnerGuaranteeTerms, now: datetime, cut: Cut | None = None
) -> DatedGuarantee:
    """Guarantees a lab or a project another number of GPUs between two instants, within what its
    organisation and lab are guaranteed then. `cut` and repetitions as in `guarantee_set`.

    Raises:
        Refused: `not_found`, `not_allowed`, `bad_owner`, `bad_dates`, `no_share`, `guarantee_overlaps`,
            `guarantees_exceeded`, `guarantees_promised` or `too_many_guarantees`.
    """
    starts, ends = dates_read(terms, now)
    with transaction.atomic():
        owner = _owner(actor, terms)
        known = guarantees_to_come(now).filter(gpu_class=owner.model, **owner.known)
        row = same_row(known, terms.guaranteed_units, starts, ends)
        if row is not None:
            return row
        overlap_check(known, starts, ends)
        owner.check(terms.guaranteed_units, (starts, ends), now)
        row = DatedGuarantee(
            tenant=owner.of.tenant,
            gpu_class=owner.model,
            guaranteed_units=terms.guaranteed_units,
            starts=starts,
            ends=ends,
            created=now,
            created_by_id=actor.user_id,
            **owner.known,
        )
        row_added(row, owner.quota, answered(cut, terms.bookings), now)
    return row


def inner_guarantee_end(
    *,
    actor: Actor,
    guarantee_id: UUID,
    now: datetime,
    terms: EndTerms | None = None,
    cut: Cut | None = None,
) -> DatedGuarantee:
    """Ends one of a lab or project now, or before it begins. Idempotent. `cut` as in `guarantee_set`.

    Raises:
        Refused: `not_found`, `not_allowed`, or `guarantees_exceeded` and `guarantees_promised` where the
            usual guarantee does not fit meanwhile.
    """
    with transaction.atomic():
        rows: QuerySet[DatedGuarantee] = guarantees_visible(actor).select_for_update(of=("self",))
        row = rows.filter(id=guarantee_id).first()
        if row is None or row.is_of_tenant:
            raise missing("dated guarantee")
        owner = _allowed(actor, row.project or row.lab, row.gpu_class)
        if row.ended is not None or row.ends <= now:
            return row
        owner.check(owner.quota.guaranteed_units, (max(now, row.starts), row.ends), now)
        given = answered(cut, terms.bookings if terms is not None else None)
        row_ended(row, owner.quota, actor.user_id, given, now)
    return row


def may_set(actor: Actor, row: DatedGuarantee) -> bool:
    """Returns whether the actor may end a row of a lab or project."""
    try:
        _allowed(actor, row.project or row.lab, row.gpu_class)
    except Refused:
        return False
    return True


def _owner(actor: Actor, terms: InnerGuaranteeTerms) -> Owner:
    if bool(terms.project) == bool(terms.lab):
        raise invalid("bad_owner", refusal_text("dated_owner"), "project")
    model = class_read(terms.gpu_class)
    if terms.project:
        return _allowed(actor, project_to_limit(actor, terms.project), model)
    return _allowed(actor, lab_read(actor, terms.lab or "", "lab"), model)


def _allowed(actor: Actor, of: Project | Lab | None, model: GpuClass) -> Owner:
    """The owner with its quota, as far as the actor may set that. Raises Refused: `not_allowed` or
    `no_share`."""
    quota: Quota | LabQuota | None
    if isinstance(of, Project):
        require_admin_or_lab_lead(actor, of)
        if lab_quota_of(of, model) is None:
            require_tenant_admin(actor)
        quota = Quota.objects.filter(project=of, gpu_class=model).first()
    else:
        require_tenant_admin(actor)
        quota = LabQuota.objects.filter(lab=of, gpu_class=model).first()
    if of is None or quota is None:
        why = refusal_text("dated_no_share", tenant=of.name if of else "", model=model.label)
        raise invalid("no_share", why, "gpu_class")
    return Owner(of, model, quota)
