"""Disputes of statements: people raise and withdraw them, an operator answers each once."""

from datetime import datetime
from typing import ClassVar, Literal
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from allocation.features.disputes.models import StatementDispute
from allocation.models import Booking
from allocation.queries.bookings.money.statement_files import month_read
from allocation.words.refusals import refusal_text
from tenants.access import Actor, PlatformActor, access_project, require_tenant_admin
from tenants.audit import audit_entry, audit_write, platform_record
from tenants.models import AuditEntry, Project
from tenants.outbox import outbox_add
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms

State = StatementDispute.State
LONGEST = 1000
RAISED, ANSWERED = "dispute.raised", "dispute.answered"


@terms
class DisputeTerms:
    """What is wrong: in the statement of a project or of the whole organisation, perhaps with one
    booking."""

    body_name: ClassVar[str] = "DisputeNew"

    project: str = term("Statement of", default="", max_length=40)
    booking: str = term("Booking (optional)", "As in BK-12.", says="`BK-2041`.", default="", max_length=24)
    note: str = term("What is wrong", max_length=LONGEST)


@terms
class DisputeAnswerTerms:
    """The operator's answer."""

    body_name: ClassVar[str] = "DisputeAnswer"

    outcome: Literal["accepted", "declined"] = term("Outcome")
    answer: str = term("Answer", max_length=LONGEST)


def disputes_visible(actor: Actor) -> QuerySet[StatementDispute]:
    """Returns the disputes of the actor's projects; of the whole organisation for its admins."""
    rows = StatementDispute.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        rows = rows.filter(Q(project__in=list(actor.roles)))
    return rows.select_related("project", "booking", "raised_by", "answered_by")


def dispute_raise(*, actor: Actor, month: str, terms: DisputeTerms, now: datetime) -> StatementDispute:
    """Disputes the statement of a month, as in `2026-11`. Leads dispute their project's, admins any.

    Raises:
        Refused: `not_found`, `bad_month`, `not_allowed`, `bad_note`, `no_such_booking`,
            `month_not_begun` or `dispute_open`.
    """
    project = access_project(actor, terms.project, "project") if terms.project else None
    starts = month_read(month).starts
    if project is None or not actor.may_lead(project.id):
        require_tenant_admin(actor)
    note = _text_read(terms.note, "note")
    if starts > now.date():
        raise invalid("month_not_begun", refusal_text("month_not_begun"), "month")
    row = StatementDispute(
        tenant_id=actor.tenant_id,
        project=project,
        month=starts,
        booking=_booking_of(actor, project, terms.booking.strip()),
        note=note,
        raised_at=now,
        raised_by_id=actor.user_id,
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        if "dispute_open_once" not in str(error):
            raise
        raise Refused(
            "dispute_open",
            refusal_text("dispute_open"),
            "conflict",
            owner="operator",
        ) from error
    audit_write([_entry(row, actor.user_id, "dispute.raised", now)])
    _announce(row, RAISED, actor.user_id, now)
    return row


def dispute_withdraw(*, actor: Actor, dispute_id: UUID, now: datetime) -> StatementDispute:
    """Withdraws an open dispute: who raised it, and tenant admins.

    Raises:
        Refused: `not_found`, `not_allowed` or `dispute_answered`.
    """
    with transaction.atomic():
        row = _locked(dispute_id, actor.tenant_id)
        if row.project_id is not None and actor.role_in(row.project_id) is None:
            raise missing("dispute")
        if row.raised_by_id != actor.user_id:
            require_tenant_admin(actor)
        row.state = State.WITHDRAWN
        row.save(update_fields=["state"])
        audit_write([_entry(row, actor.user_id, "dispute.withdrawn", now)])
    return row


def dispute_answer(
    *, actor: PlatformActor, dispute_id: UUID, terms: DisputeAnswerTerms, now: datetime
) -> StatementDispute:
    """Accepts or declines an open dispute. What is accepted is corrected apart.

    Raises:
        Refused: `not_found`, `bad_note` or `dispute_answered`.
    """
    text = _text_read(terms.answer, "answer")
    with transaction.atomic():
        row = _locked(dispute_id, None)
        month = f"{row.month:%Y-%m}"
        before = {"month": month, "state": row.state, "answer": row.answer}
        row.state = State(terms.outcome)
        row.answer, row.answered_at, row.answered_by_id = text, now, actor.user_id
        row.save(update_fields=["state", "answer", "answered_at", "answered_by"])
        audit_write([_entry(row, actor.user_id, "dispute.answered", now)])
        _announce(row, ANSWERED, actor.user_id, now)
        after = {"month": month, "state": row.state, "answer": row.answer}
        platform_record(
            actor.user_id, "dispute.answered", ("dispute", row.id), now, before=before, after=after
        )
    return row


def _locked(dispute_id: UUID, tenant_id: UUID | None) -> StatementDispute:
    rows = StatementDispute.objects.select_for_update().filter(id=dispute_id)
    row = rows.filter(tenant_id=tenant_id).first() if tenant_id else rows.first()
    if row is None:
        raise missing("dispute")
    if row.state != State.OPEN:
        said = row.get_state_display().lower()
        raise Refused("dispute_answered", refusal_text("dispute_answered", said=said), "conflict")
    return row


def _booking_of(actor: Actor, project: Project | None, label: str) -> Booking | None:
    if not label:
        return None
    rows = Booking.objects.filter(tenant_id=actor.tenant_id)
    if project is not None:
        rows = rows.filter(project=project)
    number = label.upper().removeprefix("BK-")
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    row = rows.filter(number=int(number)).first() if is_number else None
    if row is None:
        raise invalid("no_such_booking", refusal_text("no_such_booking_number"), "booking")
    return row


def _text_read(text: str, param: str) -> str:
    said = " ".join(text.split())
    if not 0 < len(said) <= LONGEST or not said.isprintable():
        raise invalid("bad_note", refusal_text("dispute_note", longest=LONGEST), param)
    return said


def _announce(row: StatementDispute, kind: str, author: int, now: datetime) -> None:
    """Notifies leads, admins, who raised it, and the owner of the booking; not its author."""
    people = {row.raised_by_id, *([row.booking.owner_id] if row.booking else ())}
    project = row.project or (row.booking.project if row.booking else None)
    by = row.raised_by.display_name
    payload = {
        "dispute": str(row.id),
        "month": f"{row.month:%Y-%m}",
        "project": str(project.id) if project else None,
        "project_slug": row.project.slug if row.project else "",
        "name": row.project.name if row.project else row.tenant.name,
        "booking": row.booking.label if row.booking else "",
        "note": row.note,
        "raised_by": by,
        "state": row.state,
        "answer": row.answer,
        "audience": "both",
        "people": sorted(people),
        "author": author,
    }
    outbox_add(tenant_id=row.tenant_id, kind=kind, payload=payload, now=now)


def _entry(row: StatementDispute, actor_id: int, action: str, now: datetime) -> AuditEntry:
    return audit_entry(
        tenant_id=row.tenant_id,
        actor_id=actor_id,
        action=action,
        target=("month", f"{row.month:%Y-%m}"),
        now=now,
        detail={"dispute": str(row.id), "state": row.state},
    )
