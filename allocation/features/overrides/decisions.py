"""Decisions on requests for more, overrides that are given unasked, and their ends."""

from datetime import datetime, timedelta
from typing import ClassVar, TypeAlias
from uuid import UUID

from django.db import transaction

from allocation.features.overrides.amounts import amount_typed
from allocation.features.overrides.log import override_record
from allocation.features.overrides.requests import (
    MOST_TEXT,
    OverrideTerms,
    access_override,
    amount_read,
    override_of,
    until_check,
)
from allocation.models import Override
from allocation.points import kept_uses
from allocation.rules.states import TERMINAL, State
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.services.budgets import budget_fund, budgets_lock
from tenants.access import Actor, PlatformActor, acting_members, may_still_book, require_open
from tenants.models import Role
from tenants.outbox import task_request
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.input_values import name_read

# A grant without an end of its own lasts so long.
USUAL = timedelta(days=30)
_GRANTED = ("amount", "starts", "until", "answer", "state", "decided", "decided_by")


_SETS = {
    Override.Decider.OPERATOR: "an operator",
    Override.Decider.TENANT_ADMIN: "an admin of the organisation",
    Override.Decider.LEAD: "a lead of the project or an admin",
}
Owner: TypeAlias = Actor | PlatformActor
"""Who decides: a member who owns the limit, or in `operator_tx` an operator."""


@terms
class GrantTerms:
    """A grant. Without `amount` and `until` as asked; without any end for 30 days."""

    body_name: ClassVar[str] = "GrantIn"

    amount: str | None = term("Amount", default=None, max_length=20)
    until: datetime | None = term("Until", asks="last_day", default=None)
    reason: str = term("Reason", default="", max_length=200, allow_blank=True)


@terms
class RefusalTerms:
    """Why it is declined."""

    reason: str = term("Reason", max_length=200)


def override_give(*, actor: Actor, terms: OverrideTerms, now: datetime) -> Override:
    """Gives an override that nobody asked for. The actor owns the limit.

    Raises:
        Refused: see `override_ask`.
    """
    row = override_of(actor, terms, now)
    with transaction.atomic():
        _may_decide(actor, row)
        _grant(row, actor, GrantTerms(), now)
        row.save(force_insert=True)
        _apply(row, actor, now)
        override_record(actor.user_id, "override.granted", row, now)
    return row


@transaction.atomic
def override_grant(*, actor: Owner, override_id: UUID, terms: GrantTerms, now: datetime) -> Override:
    """Grants what was asked, or another amount and end.

    Raises:
        Refused: `not_found`, `not_allowed`, `override_over`, `owner_left`, `bad_amount`,
            `bad_until`, `bad_reason`, `booking_over`.
    """
    row = _asked(actor, override_id)
    _standing_check(row)
    _grant(row, actor, terms, now)
    row.save(update_fields=list(_GRANTED))
    _apply(row, actor, now)
    override_record(actor.user_id, "override.granted", row, now)
    return row


@transaction.atomic
def override_decline(*, actor: Owner, override_id: UUID, terms: RefusalTerms, now: datetime) -> Override:
    """Declines a request, with a reason that its asker reads.

    Raises:
        Refused: `not_found`, `not_allowed`, `override_over`, `bad_reason`.
    """
    row = _asked(actor, override_id)
    if not terms.reason.strip():
        raise invalid("bad_reason", refusal_text("decline_reason", most=MOST_TEXT), "reason")
    row.answer = name_read(terms.reason, param="reason", longest=MOST_TEXT)
    _decide(row, Override.State.DECLINED, actor, now)
    row.save(update_fields=["answer", "state", "decided", "decided_by"])
    override_record(actor.user_id, "override.declined", row, now)
    return row


@transaction.atomic
def override_withdraw(*, actor: Actor, override_id: UUID, now: datetime) -> Override:
    """Withdraws a request that the actor made. Idempotent.

    Raises:
        Refused: `not_found`, `not_allowed` or `override_over`.
    """
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


@transaction.atomic
def override_end(*, actor: Owner, override_id: UUID, now: datetime) -> Override:
    """Ends an override before its time. Running work stays; planned starts are judged anew.

    Raises:
        Refused: `not_found`, `not_allowed`, `override_over`.
    """
    row = _locked(_found(actor, override_id))
    _may_decide(actor, row)
    is_over = row.until is not None and row.until <= now
    if row.state != Override.State.GRANTED or row.kind == Override.Kind.BUDGET or is_over:
        raise _over(row)
    row.state, row.ended = Override.State.ENDED, now
    row.save(update_fields=["state", "ended"])
    override_record(actor.user_id, "override.ended", row, now)
    if row.booking_id is not None and row.kind in Override.OF_QUOTA:
        booking = booking_lock(row.booking_id)
        others = booking.overrides.filter(kind=row.kind, state=Override.State.GRANTED)
        text = event_text("override_ended", actor=actor.name)
        booking_change(
            booking,
            event=Event("override_ended", text, actor.user_id),
            now=now,
            has_override=others.exists() or any(kept == booking.id for kept, *_ in kept_uses()),
        )
    task_request("allocation.cycle")
    return row


def may_decide(actor: Actor, row: Override) -> bool:
    """Whether the limit is the actor's; whose request it is does not matter."""
    if row.decider == Override.Decider.TENANT_ADMIN:
        return actor.is_tenant_admin
    if row.decider == Override.Decider.LEAD and row.project_id is not None:
        return actor.may_lead(row.project_id)
    return False


def _may_decide(actor: Owner, row: Override) -> None:
    if isinstance(actor, Actor) and not may_decide(actor, row):
        raise denied(refusal_text("override_decider", who=_SETS[Override.Decider(row.decider)]))
    if row.asked_by_id == actor.user_id and row.state == Override.State.ASKED:
        raise denied(refusal_text("override_own"))


def _found(actor: Owner, override_id: UUID) -> Override:
    if isinstance(actor, Actor):
        return access_override(actor, override_id)
    row = Override.objects.filter(id=override_id, decider=Override.Decider.OPERATOR).first()
    if row is None:
        raise missing("request")
    return row


def _locked(row: Override) -> Override:
    rows = Override.objects.select_for_update(of=("self",))
    more = ("project", "booking", "budget", "tenant", "person", "asked_by")
    return rows.select_related(*more).get(id=row.id)


def _asked(actor: Owner, override_id: UUID) -> Override:
    """A request that the actor may decide, locked and still open. Its booking is locked first."""
    row = _found(actor, override_id)
    if row.booking_id is not None:
        booking_lock(row.booking_id)
    row = _locked(row)
    if row.state != Override.State.ASKED:
        raise _over(row)
    _may_decide(actor, row)
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


def _grant(row: Override, actor: Owner, terms: GrantTerms, now: datetime) -> None:
    kind = Override.Kind(row.kind)
    if terms.amount is not None:
        row.amount = amount_read(kind, amount_typed(kind, terms.amount))
    has_end = not row.is_once and kind != Override.Kind.BUDGET
    row.until = (terms.until or row.until or now + USUAL) if has_end else None
    until_check(row.until, now)
    # In whole seconds, as the times of requests are: it counts for one in the same second.
    row.starts = now.replace(microsecond=0)
    row.answer = name_read(terms.reason, param="reason", longest=MOST_TEXT) if terms.reason.strip() else ""
    _decide(row, Override.State.GRANTED, actor, now)


def _decide(row: Override, state: Override.State, actor: Owner, now: datetime) -> None:
    # REST has the time in whole seconds: a decision in the second of its request is not before it.
    row.state, row.decided, row.decided_by_id = state, max(now, row.asked), actor.user_id


def _apply(row: Override, actor: Owner, now: datetime) -> None:
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
        text = event_text("override_granted", actor=actor.name)
        booking_change(
            booking,
            event=Event("override_granted", text, actor.user_id),
            now=now,
            has_override=booking.has_override or row.kind in Override.OF_QUOTA,
        )
    task_request("allocation.cycle")
