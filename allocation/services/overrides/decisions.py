"""Decisions on requests for more, overrides that are given unasked, and their ends."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import transaction

from allocation.access import access_override
from allocation.models import Override
from allocation.points import kept_uses
from allocation.rules.states import TERMINAL, State
from allocation.services.overrides.log import override_record
from allocation.services.overrides.requests import (
    MOST_TEXT,
    Wanted,
    amount_read,
    override_of,
    until_check,
)
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.services.budgets import budget_fund, budgets_lock
from tenants.access import Actor, acting_members, may_still_book, require_open
from tenants.models import Role, User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.services.input_values import name_read

# A grant without an end of its own lasts so long.
USUAL = timedelta(days=30)
_GRANTED = ("amount", "is_once", "starts", "until", "answer", "state", "decided", "decided_by")


@dataclass(frozen=True, slots=True)
class Grant:
    """What is granted: the amount (None: as asked), until when, or for one booking."""

    amount: Decimal | None = None
    until: datetime | None = None
    is_once: bool | None = None
    answer: str = ""


def override_give(*, actor: Actor, wanted: Wanted, now: datetime) -> Override:
    """Gives an override that nobody asked for. The actor owns the limit.

    Raises:
        Refused: see `override_ask`.
    """
    row = override_of(actor, wanted, now)
    with transaction.atomic():
        _may_decide(actor, row)
        _grant(row, actor.user_id, Grant(), now)
        row.save(force_insert=True)
        _apply(row, actor.name, actor.user_id, now)
        override_record(actor.user_id, "override.granted", row, now)
    return row


def override_grant(*, actor: Actor, override_id: UUID, grant: Grant, now: datetime) -> Override:
    """Grants what was asked, or another amount and end.

    Raises:
        Refused: `not_found`, `not_allowed`, `override_over`, `owner_left`, `bad_amount`,
            `bad_until`, `bad_reason`, `booking_over`.
    """
    with transaction.atomic():
        row = _asked(access_override(actor, override_id), now)
        _may_decide(actor, row)
        return _granted(row, actor.user_id, actor.name, grant, now)


def override_grant_by_operator(*, operator: User, override_id: UUID, grant: Grant, now: datetime) -> Override:
    """The same for a limit of the operator. In `operator_tx`."""
    row = _asked(_of_operator(override_id), now)
    _not_own(row, operator.pk)
    name = operator.display_name
    return _granted(row, operator.pk, name, grant, now)


def override_decline(*, actor: Actor, override_id: UUID, reason: str, now: datetime) -> Override:
    """Declines a request, with a reason that its asker reads.

    Raises:
        Refused: `not_found`, `not_allowed`, `override_over`, `bad_reason`.
    """
    with transaction.atomic():
        row = _asked(access_override(actor, override_id), now)
        _may_decide(actor, row)
        return _declined(row, actor.user_id, reason, now)


def override_decline_by_operator(
    *, operator: User, override_id: UUID, reason: str, now: datetime
) -> Override:
    """The same for a limit of the operator. In `operator_tx`."""
    row = _asked(_of_operator(override_id), now)
    _not_own(row, operator.pk)
    return _declined(row, operator.pk, reason, now)


def override_withdraw(*, actor: Actor, override_id: UUID, now: datetime) -> Override:
    """Withdraws a request that the actor made. Idempotent.

    Raises:
        Refused: `not_found`, `not_allowed` or `override_over`.
    """
    with transaction.atomic():
        row = _locked(access_override(actor, override_id))
        if row.asked_by_id != actor.user_id:
            raise denied(refusal_text("override_of_another"))
        if row.state == Override.State.WITHDRAWN:
            return row
        if row.state != Override.State.ASKED:
            raise _over(row)
        row.state = Override.State.WITHDRAWN
        row.save(update_fields=["state"])
        override_record(actor.user_id, "override.withdrawn", row, now)
    return row


def override_end(*, actor: Actor, override_id: UUID, now: datetime) -> Override:
    """Ends an override before its time. Running work stays; planned starts are judged anew.

    Raises:
        Refused: `not_found`, `not_allowed`, `override_over`.
    """
    with transaction.atomic():
        row = _locked(access_override(actor, override_id))
        _may_decide(actor, row)
        return _ended(row, actor.user_id, actor.name, now)


def override_end_by_operator(*, operator: User, override_id: UUID, now: datetime) -> Override:
    """The same for a limit of the operator. In `operator_tx`."""
    row = _locked(_of_operator(override_id))
    name = operator.display_name
    return _ended(row, operator.pk, name, now)


def may_decide(actor: Actor, row: Override) -> bool:
    """Whether the limit is the actor's; whose request it is does not matter."""
    if row.decider == Override.Decider.TENANT_ADMIN:
        return actor.is_tenant_admin
    if row.decider == Override.Decider.LEAD and row.project_id is not None:
        return actor.may_lead(row.project_id)
    return False


def _may_decide(actor: Actor, row: Override) -> None:
    if not may_decide(actor, row):
        raise denied(refusal_text("override_decider", decider=str(row.decider)))
    _not_own(row, actor.user_id)


def _not_own(row: Override, person_id: int) -> None:
    if row.asked_by_id == person_id and row.state == Override.State.ASKED:
        raise denied(refusal_text("override_own"))


def _of_operator(override_id: UUID) -> Override:
    row = Override.objects.filter(id=override_id, decider=Override.Decider.OPERATOR).first()
    if row is None:
        raise missing("request")
    return row


def _locked(row: Override) -> Override:
    rows = Override.objects.select_for_update(of=("self",))
    more = ("project", "booking", "budget", "tenant", "person", "asked_by")
    return rows.select_related(*more).get(id=row.id)


def _asked(row: Override, now: datetime) -> Override:
    """The row, locked and still to be decided."""
    if row.booking_id is not None:
        booking_lock(row.booking_id)
    row = _locked(row)
    if row.state != Override.State.ASKED:
        raise _over(row)
    return row


def _over(row: Override) -> Refused:
    return Refused("override_over", refusal_text("override_over", state=row.get_state_display().lower()))


def _standing_check(row: Override) -> None:
    """Nobody gets more who may not book there any more. Their request can be declined."""
    if row.project is not None:
        require_open(row.project)
    person = row.person or row.asked_by
    if person is None:
        return
    if row.project is not None:
        is_there = may_still_book(person.pk, row.project)
    else:
        is_there = acting_members(row.tenant_id).filter(user=person).exclude(role=Role.VIEWER).exists()
    if not is_there:
        place = (row.project or row.tenant).name
        raise Refused("owner_left", refusal_text("override_left", who=person.display_name, place=place))


def _granted(row: Override, person_id: int, name: str, grant: Grant, now: datetime) -> Override:
    _standing_check(row)
    _grant(row, person_id, grant, now)
    row.save(update_fields=list(_GRANTED))
    _apply(row, name, person_id, now)
    override_record(person_id, "override.granted", row, now)
    return row


def _grant(row: Override, person_id: int, grant: Grant, now: datetime) -> None:
    if grant.amount is not None:
        row.amount = amount_read(Override.Kind(row.kind), grant.amount)
    if grant.is_once is not None and row.booking_id is None and row.kind == Override.Kind.LENGTH:
        row.is_once = grant.is_once
    has_end = not row.is_once and row.kind != Override.Kind.BUDGET
    row.until = (grant.until or row.until or now + USUAL) if has_end else None
    until_check(row.until, now)
    # In whole seconds, as the times of requests are: it counts for one in the same second.
    row.starts = now.replace(microsecond=0)
    row.answer = _answer_read(grant.answer)
    _decide(row, Override.State.GRANTED, person_id, now)


def _decide(row: Override, state: Override.State, person_id: int, now: datetime) -> None:
    # REST has the time in whole seconds: a decision in the second of its request is not before it.
    row.state, row.decided, row.decided_by_id = state, max(now, row.asked), person_id


def _answer_read(text: str) -> str:
    return name_read(text, param="reason", longest=MOST_TEXT) if text.strip() else ""


def _apply(row: Override, name: str, person_id: int, now: datetime) -> None:
    """Makes the grant count: money moves, a booking is marked, and a cycle looks again."""
    if row.kind == Override.Kind.BUDGET and row.budget is not None:
        budget = row.budget
        budgets_lock(budget.owner)
        budget_fund(budget, row.amount, now, note=f"override {row.id}")
    if row.booking_id is not None:
        booking = booking_lock(row.booking_id)
        if State(booking.state) in TERMINAL:
            state = booking.get_state_display().lower()
            raise Refused("booking_over", refusal_text("booking_over", label=booking.label, state=state))
        text = event_text("override_granted", actor=name)
        booking_change(
            booking,
            event=Event("override_granted", text, person_id),
            now=now,
            has_override=booking.has_override or row.kind in Override.OF_QUOTA,
        )
    task_request("allocation.cycle")


def _declined(row: Override, person_id: int, reason: str, now: datetime) -> Override:
    if not reason.strip():
        raise invalid("bad_reason", refusal_text("decline_reason", most=MOST_TEXT), "reason")
    row.answer = name_read(reason, param="reason", longest=MOST_TEXT)
    _decide(row, Override.State.DECLINED, person_id, now)
    row.save(update_fields=["answer", "state", "decided", "decided_by"])
    override_record(person_id, "override.declined", row, now)
    return row


def _ended(row: Override, person_id: int, name: str, now: datetime) -> Override:
    is_over = row.until is not None and row.until <= now
    if row.state != Override.State.GRANTED or row.kind == Override.Kind.BUDGET or is_over:
        raise _over(row)
    row.state, row.ended = Override.State.ENDED, now
    row.save(update_fields=["state", "ended"])
    override_record(person_id, "override.ended", row, now)
    if row.booking_id is not None and row.kind in Override.OF_QUOTA:
        booking = booking_lock(row.booking_id)
        others = booking.overrides.filter(kind=row.kind, state=Override.State.GRANTED)
        text = event_text("override_ended", actor=name)
        booking_change(
            booking,
            event=Event("override_ended", text, person_id),
            now=now,
            has_override=others.exists() or any(kept == booking.id for kept, *_ in kept_uses()),
        )
    task_request("allocation.cycle")
    return row
