"""Counter-offers: what an approver would approve instead. The asker accepts with one click."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.access import access_approval, deciding_for, deciding_refusal
from allocation.models import Approval, Booking, CounterOffer
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength, Target, strength_of
from allocation.services.bookings.approval.decisions import (
    MAX_REASON,
    Decider,
    approvals_lock,
    asker_check,
    bookings_lock,
    deciding_check,
    decision_apply,
    open_check,
)
from allocation.services.bookings.approval.open_counters import counters_replace
from allocation.services.bookings.approval.requests import approval_digest
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.checks.terms import stronger_terms, target_of, weaker_terms
from allocation.services.record.history import Event
from allocation.services.record.terms import Terms, booking_with
from allocation.services.runs.transition import booking_change
from allocation.words.changes import differences_text
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.audit import audit_record
from tenants.models import Membership, Role
from tenants.platform.errors import Refused, denied, invalid
from tenants.services.input_values import name_read


@dataclass(frozen=True, slots=True)
class Proposal:
    """What an approver would approve: a request, and a tier (None: as asked)."""

    ask: AskDocument
    tier: str | None
    text: str
    reason: str = ""


def counter_make(
    *, actor: Actor, approval_id: UUID, digest: str, proposal: Proposal, now: datetime
) -> CounterOffer:
    """Offers the asker something else, which the actor approves as it is. It replaces an earlier
    offer; the request itself waits on, and others can still decide it.

    Raises:
        Refused: as `approval_decide`, or `counter_single`, `counter_same`, `bad_reason`, or any
            rule of a request.
    """
    reason = _reason_read(proposal.reason)
    with transaction.atomic():
        found = access_approval(actor, approval_id, now)
        bookings = bookings_lock(found)
        approval = next(each for each in approvals_lock(found) if each.id == found.id)
        deciding_check(actor, approval, digest, bookings, now)
        if approval.series_id is not None or approval.change_id is not None:
            raise Refused("counter_single", refusal_text("counter_single"))
        (booking,) = bookings
        old, new = target_of(booking), _target(booking, proposal)
        if strength_of(old, new) is Strength.WORD:
            raise invalid("counter_same", refusal_text("counter_same"), "request")
        terms = _terms(booking, new, proposal.text, now)
        counters_replace([approval.id], now)
        row = CounterOffer.objects.create(
            tenant_id=approval.tenant_id,
            approval=approval,
            person_id=actor.user_id,
            principal_id=deciding_for(actor, approval, now),
            request_text=proposal.text[:400],
            target=terms.to_json(),
            differences={name: list(pair) for name, pair in old.differences(new).items()},
            digest=approval_digest(booking_with(booking, terms)),
            reason=reason,
            at=now,
        )
        what = differences_text(row.differences)
        text = event_text("countered", actor=actor.name, what=what, reason=reason)
        booking_change(booking, event=Event("countered", text, actor.user_id), now=now)
        _audit(actor, "approval.countered", booking, row, now)
    return row


def counter_accept(*, actor: Actor, approval_id: UUID, digest: str, now: datetime) -> Booking:
    """Books what the approver offered, approved by them; other steps are asked next.

    Raises:
        Refused: `not_found`, `not_allowed`, `counter_over`, `approval_over`, `approval_expired`,
            `counter_changed`, `counter_approver_left`, or any rule of a request.
    """
    with transaction.atomic():
        found = access_approval(actor, approval_id, now)
        (booking,) = bookings_lock(found)
        (approval,) = approvals_lock(found)
        _asker_only(actor, approval)
        open_check(approval, approval.digest, [booking], now)
        asker_check(approval)
        counter = _open(approval)
        if counter is None or counter.digest != digest:
            raise Refused("counter_over", refusal_text("counter_over"), param="hash")
        approver = _approver(actor, counter)
        if deciding_refusal(approver, approval, now) is not None:
            raise Refused("counter_approver_left", refusal_text("counter_approver_left"))
        counter.state, counter.answered = CounterOffer.State.ACCEPTED, now
        counter.save(update_fields=["state", "answered"])
        booking = _changed(actor, booking, counter, now)
        after = Approval.objects.select_for_update(of=("self",)).select_related("asker", "change")
        fresh = after.get(booking=booking, change=None, state=Approval.State.OPEN)
        if deciding_refusal(approver, fresh, now) is None:
            principal = deciding_for(approver, fresh, now)
            decider = Decider(approver.user_id, approver.name, principal)
            decision_apply(decider, [fresh], [booking], ("approve", counter.reason), now)
        _audit(actor, "approval.counter_accepted", booking, counter, now)
    return booking


def counter_decline(*, actor: Actor, approval_id: UUID, now: datetime) -> Approval:
    """Declines the open counter-offer; the request waits on as it was. Idempotent.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    with transaction.atomic():
        approval = access_approval(actor, approval_id, now)
        (booking,) = bookings_lock(approval)
        _asker_only(actor, approval)
        counter = _open(approval)
        if counter is not None:
            counter.state, counter.answered = CounterOffer.State.DECLINED, now
            counter.save(update_fields=["state", "answered"])
            _audit(actor, "approval.counter_declined", booking, counter, now)
    return approval


def _changed(actor: Actor, booking: Booking, counter: CounterOffer, now: datetime) -> Booking:
    """The booking with what was offered, at no higher price."""
    terms = Terms.from_json(counter.target)
    patch = Patch(
        ask=AskDocument.from_json(terms.ask), tier=terms.tier, request_text=counter.request_text
    )
    made = booking_patch(actor=actor, booking=booking, patch=patch, revision=None, now=now)
    is_same = (made.ask, made.tier_id) == (terms.ask, terms.tier)
    if not is_same or made.hold_amount > terms.hold_amount:
        raise Refused("counter_changed", refusal_text("counter_changed"), param="hash")
    return made


def _approver(actor: Actor, counter: CounterOffer) -> Actor:
    """Who offered it, with the roles that they have now."""
    rows = Membership.objects.filter(
        tenant_id=counter.tenant_id, user=counter.person_id, user__is_active=True
    )
    person = counter.person
    return Actor(
        user_id=person.pk,
        name=person.get_full_name() or person.get_username(),
        tenant_id=counter.tenant_id,
        tenant_slug=actor.tenant_slug,
        is_tenant_admin=any(row.role == Role.TENANT_ADMIN for row in rows),
        roles={row.project_id: row.role for row in rows if row.project_id is not None},
    )


def _asker_only(actor: Actor, approval: Approval) -> None:
    if approval.asker_id != actor.user_id:
        raise denied(refusal_text("counter_asker_only"))


def _open(approval: Approval) -> CounterOffer | None:
    rows = CounterOffer.objects.select_for_update(of=("self",))
    return rows.filter(approval=approval, state=CounterOffer.State.OPEN).first()


def _target(booking: Booking, proposal: Proposal) -> Target:
    return Target(proposal.ask, proposal.tier or booking.tier_id, booking.name)


def _terms(booking: Booking, new: Target, text: str, now: datetime) -> Terms:
    if strength_of(target_of(booking), new) is Strength.WEAKER:
        terms = weaker_terms(booking, new, text)
        if terms.hold_amount <= booking.hold_amount:
            return terms
    return stronger_terms(booking, new, text, now)


def _reason_read(text: str) -> str:
    if not text.strip():
        return ""
    return name_read(text, param="reason", longest=MAX_REASON).rstrip(".")


def _audit(actor: Actor, action: str, booking: Booking, row: CounterOffer, now: datetime) -> None:
    audit_record(
        tenant_id=booking.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("booking", booking.id),
        now=now,
        detail={"label": booking.label, "digest": row.digest, "differences": row.differences},
    )
