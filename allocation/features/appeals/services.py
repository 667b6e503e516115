"""Contesting pauses, and the answers of operators and admins."""

from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.access import access_booking, may_give_back
from allocation.features.appeals.models import MOST_TEXT, PauseAppeal
from allocation.models import Booking, Pause
from allocation.services.record.history import event_add
from allocation.services.runs.transition import booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.models import Guardrail
from tenants.access import Actor, PlatformActor, require_tenant_admin
from tenants.audit import audit_record, platform_record
from tenants.outbox import outbox_add
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.input_values import name_read

WITHIN = timedelta(days=14)
RAISED, ANSWERED = "appeal.raised", "appeal.answered"
State, Decider = PauseAppeal.State, PauseAppeal.Decider
_PARTS = ("booking", "booking__project", "booking__owner", "pause", "tenant", "raised_by", "answered_by")


@terms
class AppealTerms:
    """Why a pause was wrong."""

    reason: str = term(
        "Why it should not have been paused", says="Who answers reads it.", max_length=MOST_TEXT
    )


@terms
class AppealAnswerTerms:
    """The answer to an appeal."""

    outcome: Literal["accepted", "declined"] = term("Answer", says="Whether the objection is right.")
    answer: str = term("Reason", "The person reads it.", says="What the person reads.", max_length=MOST_TEXT)


def appeal_raise(
    *, actor: Actor, reference: str, number: int, terms: AppealTerms, now: datetime
) -> PauseAppeal:
    """Contests a pause, once, within two weeks of its notice. It changes neither the pause nor its bill.

    Raises:
        Refused: `not_found`, `not_allowed`, `bad_name`, `appeal_twice` or `appeal_late`.
    """
    found = access_booking(actor, reference)
    if not may_give_back(actor, found):
        raise denied(refusal_text("booking_not_yours"))
    reason = name_read(terms.reason, param="reason", longest=MOST_TEXT)
    with transaction.atomic():
        booking = booking_lock(found.id, "project", "owner", "tenant")
        pause = Pause.objects.filter(booking=booking, number=number).first()
        if pause is None:
            raise missing("pause")
        if now > pause.notified_at + WITHIN:
            raise Refused("appeal_late", refusal_text("appeal_late", days=WITHIN.days))
        if PauseAppeal.objects.filter(pause=pause).exists():
            raise Refused("appeal_twice", refusal_text("appeal_twice"))
        row = PauseAppeal.objects.create(
            tenant_id=actor.tenant_id,
            booking=booking,
            pause=pause,
            reason=reason,
            decider=_decider_of(actor, pause),
            raised=now,
            raised_by_id=actor.user_id,
        )
        text = event_text("pause_contested", actor=actor.name, number=pause.number, reason=reason)
        event_add(booking, kind="pause_contested", sentence=text, now=now, actor_id=actor.user_id)
        _logged(row, RAISED, actor.user_id, now)
        _ask(row, actor, now)
    return row


def appeal_answer(*, actor: Actor, appeal_id: UUID, terms: AppealAnswerTerms, now: datetime) -> PauseAppeal:
    """Answers an appeal of the organisation that its admins decide; not one's own.

    Raises:
        Refused: `not_found`, `not_allowed`, `bad_name` or `appeal_answered`.
    """
    with transaction.atomic():
        row = _locked(appeals_visible(actor), appeal_id)
        require_tenant_admin(actor)
        if row.decider != Decider.ADMIN:
            raise denied(refusal_text("appeal_operators"))
        return _answered(row, actor.user_id, actor.name, terms, now)


def appeal_answer_by_operator(
    *, actor: PlatformActor, appeal_id: UUID, terms: AppealAnswerTerms, now: datetime
) -> PauseAppeal:
    """Answers an appeal of any organisation that operators decide. In `operator_tx`.

    Raises:
        Refused: `not_found`, `not_allowed`, `bad_name` or `appeal_answered`.
    """
    row = _locked(PauseAppeal.objects.filter(decider=Decider.OPERATOR), appeal_id)
    before = {"tenant": row.tenant.slug, "booking": row.booking.label, "state": row.state}
    found = _answered(row, actor.user_id, actor.name, terms, now)
    after = {**before, "state": found.state, "answer": found.answer}
    platform_record(actor.user_id, ANSWERED, ("appeal", row.pk), now, before=before, after=after)
    return found


def appeals_visible(actor: Actor) -> QuerySet[PauseAppeal]:
    """Returns the appeals that the actor raised, those about their bookings and of projects that they
    lead; admins see all of the organisation."""
    rows = PauseAppeal.objects.filter(tenant_id=actor.tenant_id).select_related(*_PARTS)
    if actor.is_tenant_admin:
        return rows if actor.only_project is None else rows.filter(booking__project=actor.only_project)
    led = [project for project in actor.roles if actor.may_lead(project)]
    mine = Q(raised_by=actor.user_id) | Q(booking__owner=actor.user_id) | Q(booking__project__in=led)
    return rows.filter(mine, booking__project__in=list(actor.roles))


def appeals_to_answer(actor: Actor | None) -> QuerySet[PauseAppeal]:
    """Returns the open appeals that an admin may answer, or with None an operator, oldest first."""
    rows = PauseAppeal.objects.filter(state=State.OPEN).select_related(*_PARTS).order_by("raised", "id")
    if actor is None:
        return rows.filter(decider=Decider.OPERATOR)
    if not actor.is_tenant_admin:
        return rows.none()
    return rows.filter(tenant_id=actor.tenant_id, decider=Decider.ADMIN).exclude(raised_by=actor.user_id)


def pauses_to_contest(booking: Booking, now: datetime) -> list[Pause]:
    """Returns the pauses that can still be contested, the newest first."""
    rows = Pause.objects.filter(booking=booking, notified_at__gt=now - WITHIN, appeal=None)
    return list(rows.order_by("-number"))


def _decider_of(actor: Actor, pause: Pause) -> str:
    """Admins answer where their own organisation's work, or the ladder of one of its budgets, has
    paused the booking. Operators answer the rest, and admins themselves."""
    if actor.is_tenant_admin or pause.relation not in ("owner", "project", "tenant"):
        return Decider.OPERATOR
    if pause.beneficiary_label:
        return Decider.ADMIN
    pausing = Guardrail.objects.filter(
        tenant_id=pause.tenant_id, action=Guardrail.Action.PAUSE, reached_at__lte=pause.notified_at
    )
    return Decider.ADMIN if pausing.exists() else Decider.OPERATOR


def _locked(rows: QuerySet[PauseAppeal], appeal_id: UUID) -> PauseAppeal:
    found = rows.select_related(*_PARTS).select_for_update(of=("self",)).filter(id=appeal_id).first()
    if found is None:
        raise missing("appeal")
    if found.state != State.OPEN:
        said = found.get_state_display().lower()
        raise Refused("appeal_answered", refusal_text("appeal_answered", said=said))
    return found


def _answered(
    row: PauseAppeal, user_id: int, name: str, terms: AppealAnswerTerms, now: datetime
) -> PauseAppeal:
    if row.raised_by_id == user_id:
        raise denied(refusal_text("appeal_own"))
    if terms.outcome not in (State.ACCEPTED, State.DECLINED):
        raise invalid("bad_outcome", refusal_text("appeal_outcome"), "outcome")
    answer = name_read(terms.answer, param="answer", longest=MOST_TEXT)
    row.state, row.answer, row.answered, row.answered_by_id = terms.outcome, answer, now, user_id
    row.save(update_fields=["state", "answer", "answered", "answered_by"])
    facts = {"actor": name, "number": row.pause.number, "answer": answer}
    text = event_text(f"pause_appeal_{row.state}", **facts)
    event_add(row.booking, kind="pause_answered", sentence=text, now=now, actor_id=user_id)
    _logged(row, ANSWERED, user_id, now)
    people = {row.raised_by_id, row.booking.owner_id} - {user_id}
    payload = {
        "audience": "people",
        "people": sorted(people),
        "title": f"Your objection to a pause of {row.booking.label} was {row.state}",
        "text": answer[:400],
        "path": f"bookings/{row.booking.label}",
        "until": None,
    }
    outbox_add(tenant_id=row.tenant_id, kind=ANSWERED, payload=payload, now=now)
    return row


def _ask(row: PauseAppeal, actor: Actor, now: datetime) -> None:
    """Notifies who answers: the organisation's admins, or all operators."""
    is_admins = row.decider == Decider.ADMIN
    where = "" if is_admins else f" of {row.tenant.name}"
    payload = {
        "audience": "admins" if is_admins else "operators",
        "title": f"{actor.name}{where} contests a pause of {row.booking.label}",
        "text": row.reason[:400],
        "path": "appeals" if is_admins else "/ops/appeals",
        "until": None,
    }
    outbox_add(tenant_id=row.tenant_id, kind=RAISED, payload=payload, now=now)


def _logged(row: PauseAppeal, action: str, user_id: int, now: datetime) -> None:
    detail = {
        "booking": row.booking.label,
        "pause": row.pause.number,
        "reason": row.reason,
        "state": row.state,
        **({"answer": row.answer} if row.answer else {}),
    }
    audit_record(
        tenant_id=row.tenant_id,
        actor_id=user_id,
        action=action,
        target=("appeal", row.pk),
        now=now,
        detail=detail,
    )
