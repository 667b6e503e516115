"""Cutting limits: the answer of who lowers one, and what follows for bookings above it."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.limit_cuts.above import Booked, above, above_guarantee, booked_of, units_now
from allocation.features.limit_cuts.models import KeptBooking, LimitCut
from allocation.models import Booking
from allocation.rules.states import TERMINAL
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor, require_tenant_admin
from tenants.audit import audit_record, platform_record
from tenants.lab_queries import labs_led
from tenants.models import Lab, Project, Tenant, User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, denied, missing
from tenants.services.labs.limits import person_scope
from tenants.services.labs.room import require_admin_or_lab_lead
from tenants.services.limit_changes import (
    AboveRow,
    CutAnswer,
    CutEffect,
    LimitChange,
    LimitOf,
    Most,
)

TASK = "limit_cuts.enforce"
SET = ("answer", "limit_units", "cap_gpu_hours", "cap_days", "cap_carries", "changed", "changed_by")
Outcome = LimitCut.Outcome


def cut_apply(change: LimitChange, answer: CutAnswer | None, now: datetime) -> CutEffect | None:
    """Records the cut of a limit that is below what is in use or booked, and returns what is above it.

    A limit that is raised so far that everything fits ends its cut, and with it all pauses that can
    still be withdrawn. In the caller's transaction.
    """
    of, is_lower = change.of, change.after.is_below(change.before)
    known = _open(of).select_for_update().first()
    if known is None and not is_lower and answer is None:
        return None
    booked = booked_of(of, now)
    rows = _above(change, known, booked, now)
    if not rows:
        if known is not None:
            cut_end(known, Outcome.MET if is_lower else Outcome.RAISED, now)
        return None
    effect = _effect(change, booked, rows)
    if of.guarantee and known is None and answer is None:
        return effect
    given = answer or (known.answer if known else CutAnswer.DRAIN)
    cut = _written(change, known, str(given), now)
    if cut.answer != LimitCut.Answer.PAUSE:
        keeps_all = cut.answer == LimitCut.Answer.KEEP
        stays = [each for each in (rows if of.guarantee else booked) if keeps_all or not each.is_planned]
        _keep(cut, stays, effect.name, change.user_id, now)
    if cut.answer != LimitCut.Answer.KEEP and (is_lower or answer is not None):
        _drain(cut, rows, effect.name, change.user_id, now)
    task_request("allocation.cycle")
    task_request(TASK)
    return effect


def limit_cut_end(*, actor: Actor, cut_id: UUID, now: datetime) -> LimitCut:
    """Cancels a cut: its notices are withdrawn, and what it keeps is limited like new bookings. The limit
    stays as it is. Idempotent.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    with transaction.atomic():
        rows = cuts_visible(actor).select_for_update(of=("self",))
        cut = rows.filter(id=cut_id).first()
        if cut is None:
            raise missing("limit cut")
        _require_may_end(actor, cut)
        if cut.ended is None:
            cut.changed_by_id = actor.user_id
            cut_end(cut, Outcome.CANCELLED, now)
    return cut


def operator_cut_end(*, operator: User, cut_id: UUID, now: datetime) -> LimitCut:
    """The same for a cut of any organisation. In `operator_tx`. Raises Refused: `not_found`."""
    with transaction.atomic():
        cut = LimitCut.objects.select_for_update().filter(id=cut_id).first()
        if cut is None:
            raise missing("limit cut")
        if cut.ended is None:
            cut.changed_by = operator
            cut_end(cut, Outcome.CANCELLED, now, is_operators=True)
    return cut


def cut_end(cut: LimitCut, outcome: LimitCut.Outcome, now: datetime, *, is_operators: bool = False) -> None:
    """Ends a locked cut. The next cycle withdraws its notices that can still be withdrawn."""
    cut.ended, cut.outcome = now, outcome
    cut.save(update_fields=["ended", "outcome", "changed_by"])
    by = cut.changed_by_id if outcome == Outcome.CANCELLED else None
    _record(cut, "limit_cut.ended", by, now, {"outcome": str(outcome)}, is_operators=is_operators)
    task_request("allocation.cycle")


def cuts_visible(actor: Actor) -> QuerySet[LimitCut]:
    """Returns the cuts of the organisation that the actor may see: admins all, others those of the
    organisation, of their projects and labs, and of their own limits."""
    rows = LimitCut.objects.filter(tenant_id=actor.tenant_id)
    rows = rows.select_related("project", "lab", "person", "changed_by", "gpu_class", "tenant")
    if actor.only_project is not None:
        rows = rows.filter(project=actor.only_project)
    if actor.is_tenant_admin:
        return rows
    mine = Q(of_persons=False) | Q(person=actor.user_id) | Q(project__in=_led(actor))
    projects, labs = [*actor.roles], labs_led(actor)
    own_labs = Project.objects.filter(id__in=projects, lab__isnull=False).values("lab")
    seen = Q(project__in=projects) | Q(lab__in=own_labs) | Q(lab__in=labs)
    seen |= Q(project__lab__in=labs) | Q(project=None, lab=None)
    return rows.filter(mine & seen)


def cuts_of_site() -> QuerySet[LimitCut]:
    """Returns the cuts of all organisations, for operators."""
    return LimitCut.objects.select_related("project", "lab", "person", "changed_by", "gpu_class", "tenant")


def may_end(actor: Actor, cut: LimitCut) -> bool:
    """Returns whether the actor may cancel a cut: who may set its limit."""
    try:
        _require_may_end(actor, cut)
    except Refused:
        return False
    return True


def limit_of(cut: LimitCut) -> LimitOf:
    """Returns whose limit was cut."""
    return LimitOf(
        cut.tenant_id,
        cut.gpu_class_id,
        guarantee=cut.of_guarantee,
        source=cut.source,
        since=cut.since,
        until=cut.until,
        project_id=cut.project_id,
        lab_id=cut.lab_id,
        persons=cut.of_persons,
        person_id=cut.person_id,
    )


def most_of(cut: LimitCut) -> Most:
    """Returns what the limit allows."""
    return Most(cut.limit_units, cut.cap_gpu_hours, cut.cap_days, cut.cap_carries)


def above_now(cut: LimitCut, now: datetime) -> list[Booked]:
    """Returns what is still above the limit of a cut."""
    of, most = limit_of(cut), most_of(cut)
    if cut.of_guarantee:
        return above_guarantee(of, Most(cut.before_units), most, booked_of(of, now), now)
    return above(of, most, booked_of(of, now), now)


def owner_name(of: LimitOf) -> str:
    """Returns whose limit it is, for people."""
    if of.project_id is not None:
        scope = Project.objects.get(id=of.project_id).name
    elif of.lab_id is not None:
        scope = str(Lab.objects.get(id=of.lab_id))
    else:
        scope = Tenant.objects.get(id=of.tenant_id).name
    if not of.persons:
        return scope
    who = User.objects.get(id=of.person_id).display_name if of.person_id else "everybody"
    return f"{who} in {scope}"


def _led(actor: Actor) -> list[UUID]:
    return [project for project in actor.roles if actor.may_lead(project)]


def _require_may_end(actor: Actor, cut: LimitCut) -> None:
    if cut.of_persons:
        person_scope(actor, cut.project.slug if cut.project else None)
    elif cut.project is not None:
        require_admin_or_lab_lead(actor, cut.project)
    elif cut.lab_id is not None:
        require_tenant_admin(actor)
    else:
        raise denied(refusal_text("limit_cut_operators"))


def _open(of: LimitOf) -> QuerySet[LimitCut]:
    return LimitCut.objects.filter(
        tenant=of.tenant_id,
        gpu_class=of.gpu_class,
        project=of.project_id,
        lab=of.lab_id,
        of_persons=of.persons,
        person=of.person_id,
        of_guarantee=of.guarantee,
        source=of.source,
        ended=None,
    )


def _above(
    change: LimitChange, known: LimitCut | None, booked: Sequence[Booked], now: datetime
) -> list[Booked]:
    if not change.of.guarantee:
        return above(change.of, change.after, booked, now)
    before = change.before
    if known is not None and known.before_units is not None:
        # What an earlier cut is about stays so.
        before = Most(max(known.before_units, before.units or 0))
    return above_guarantee(change.of, before, change.after, booked, now)


def _effect(change: LimitChange, booked: Sequence[Booked], rows: Sequence[Booked]) -> CutEffect:
    return CutEffect(
        name=owner_name(change.of),
        gpu_class=change.of.gpu_class,
        before=change.before,
        after=change.after,
        used=units_now(booked),
        rows=tuple(
            AboveRow(
                each.booking.label,
                each.booking.owner.display_name,
                each.units,
                each.starts,
                each.ends,
                each.is_planned,
                each.booking.tier.pausable and not each.is_planned,
            )
            for each in rows
        ),
        is_guarantee=change.of.guarantee,
        is_inner=change.of.project_id is not None or change.of.lab_id is not None,
        since=change.of.since,
    )


def _written(change: LimitChange, known: LimitCut | None, answer: str, now: datetime) -> LimitCut:
    of, after = change.of, change.after
    cut = known or LimitCut(
        tenant_id=of.tenant_id,
        gpu_class_id=of.gpu_class,
        project_id=of.project_id,
        lab_id=of.lab_id,
        of_persons=of.persons,
        person_id=of.person_id,
        of_guarantee=of.guarantee,
        before_units=change.before.units if of.guarantee else None,
        source=of.source,
        since=of.since,
        until=of.until,
        created=now,
    )
    cut.limit_units, cut.cap_gpu_hours = after.units, after.gpu_hours
    cut.cap_days, cut.cap_carries = after.days, after.carries
    cut.answer, cut.changed, cut.changed_by_id = answer, now, change.user_id
    if known is None:
        cut.save(force_insert=True)
    else:
        cut.save(update_fields=SET)
    _record(cut, "limit_cut.set", change.user_id, now, {"answer": answer})
    return cut


def _keep(cut: LimitCut, booked: Sequence[Booked], name: str, user_id: int | None, now: datetime) -> None:
    """Marks what stays, so that the lower limit does not forbid it anything."""
    kept = set(cut.kept.values_list("booking_id", flat=True))
    for each in sorted(booked, key=lambda row: row.booking.id):
        if each.booking.id in kept:
            continue
        booking = booking_lock(each.booking.id)
        if booking.state in TERMINAL:
            continue
        KeptBooking.objects.create(tenant_id=cut.tenant_id, cut=cut, booking=booking)
        _note(booking, "limit_kept", cut, name, user_id, now, has_override=True)


def _drain(cut: LimitCut, rows: Sequence[Booked], name: str, user_id: int | None, now: datetime) -> None:
    """Says in the history of planned bookings above the limit that they may start later."""
    for each in sorted(rows, key=lambda row: row.booking.id):
        if each.is_planned:
            booking = booking_lock(each.booking.id)
            if booking.state not in TERMINAL:
                _note(booking, "limit_drained", cut, name, user_id, now)


def _note(
    booking: Booking,
    kind: str,
    cut: LimitCut,
    name: str,
    user_id: int | None,
    now: datetime,
    **facts: object,
) -> None:
    text = event_text(kind, owner=name, gpu_class=cut.gpu_class.label)
    event = Event(kind, text, user_id, detail={"rule": "R176", "limit_units": cut.limit_units})
    booking_change(booking, event=event, now=now, **facts)


def _record(
    cut: LimitCut,
    action: str,
    user_id: int | None,
    now: datetime,
    more: dict[str, str],
    *,
    is_operators: bool = False,
) -> None:
    target = ("limit_cut", cut.id)
    detail = {
        "owner": owner_name(limit_of(cut)),
        "gpu_class": cut.gpu_class_id,
        "limit_units": cut.limit_units,
        "cap_gpu_hours": cut.cap_gpu_hours,
        **more,
    }
    is_operators |= cut.project_id is None and cut.lab_id is None and not cut.of_persons
    if is_operators and user_id is not None:
        platform_record(user_id, action, target, now, after=detail)
    audit_record(
        tenant_id=cut.tenant_id, actor_id=user_id, action=action, target=target, now=now, detail=detail
    )
