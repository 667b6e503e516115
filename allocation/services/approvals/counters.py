"""Counter-offers: what an approver would approve instead. The asker accepts with one click."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.access import access_approval, deciding_for, deciding_refusal
from allocation.models import Approval, Booking, CounterOffer
from allocation.services.approvals.counter_terms import (
    Offered,
    Proposal,
    offer_take,
    offered_terms,
)
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
from allocation.services.bookings.approval.requests import approval_digest, dates_of
from allocation.services.record.history import Event
from allocation.services.record.terms import booking_with
from allocation.services.runs.transition import booking_change
from allocation.words.changes import differences_text
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor, acting_members
from tenants.audit import actor_record
from tenants.models import Role, User
from tenants.platform.errors import Refused, denied
from tenants.services.input_values import name_read


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
        approvals = approvals_lock(found)
        approval = next(each for each in approvals if each.id == found.id)
        deciding_check(actor, approval, digest, bookings, now)
        asker = _asker(actor, approval)
        offered = offered_terms(asker, approval, bookings, proposal, now)
        counters_replace((each.id for each in approvals), now)
        (booking,) = (each for each in bookings if each.id == approval.booking_id)
        changed = [booking_with(each, offered.terms[each.id]) for each in bookings]
        row = CounterOffer.objects.create(
            tenant_id=approval.tenant_id,
            approval=approval,
            person_id=actor.user_id,
            principal_id=deciding_for(actor, approval, now),
            request_text=proposal.text[:400],
            target=_stored(booking, offered),
            differences={name: list(pair) for name, pair in offered.differences.items()},
            digest=approval_digest(
                booking_with(booking, offered.terms[booking.id]),
                dates_of(changed) if len(changed) > 1 else (),
            ),
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
        bookings, approvals = bookings_lock(found), approvals_lock(found)
        approval = next(each for each in approvals if each.id == found.id)
        _asker_only(actor, approval)
        open_check(approval, approval.digest, bookings, now)
        asker_check(approval)
        counter = _open(approval)
        if counter is None or counter.digest != digest:
            raise Refused("counter_over", refusal_text("counter_over"), param="hash")
        approver = _approver(actor, counter)
        if deciding_refusal(approver, approval, now) is not None:
            raise Refused("counter_approver_left", refusal_text("counter_approver_left"))
        counter.state, counter.answered = CounterOffer.State.ACCEPTED, now
        counter.save(update_fields=["state", "answered"])
        booking = offer_take(actor, approval, bookings, counter, now)
        _decide_fresh(approver, approval, booking, counter, now)
        _audit(actor, "approval.counter_accepted", booking, counter, now)
    return booking


def counter_decline(*, actor: Actor, approval_id: UUID, now: datetime) -> Approval:
    """Declines the open counter-offer; the request still waits, unchanged. Idempotent.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    with transaction.atomic():
        approval = access_approval(actor, approval_id, now)
        bookings_lock(approval)
        booking = approval.booking
        _asker_only(actor, approval)
        counter = _open(approval)
        if counter is not None:
            counter.state, counter.answered = CounterOffer.State.DECLINED, now
            counter.save(update_fields=["state", "answered"])
            _audit(actor, "approval.counter_declined", booking, counter, now)
    return approval


def _decide_fresh(
    approver: Actor, old: Approval, booking: Booking, counter: CounterOffer, now: datetime
) -> None:
    """Records the approver's approval of what is asked for now, if it needs one and they may."""
    rows = Approval.objects.filter(booking=booking, state=Approval.State.OPEN)
    fresh = rows.filter(change__isnull=old.change_id is None).first()
    if fresh is None or deciding_refusal(approver, fresh, now) is not None:
        return
    bookings, approvals = bookings_lock(fresh), approvals_lock(fresh)
    decider = Decider(approver.user_id, approver.name, deciding_for(approver, fresh, now))
    decision_apply(decider, approvals, bookings, ("approve", counter.reason), now)


def _stored(booking: Booking, offered: Offered) -> dict[str, object]:
    """The terms of the booking of the request; those of the other dates, and what all cost."""
    others = {str(key): terms.to_json() for key, terms in offered.terms.items() if key != booking.id}
    own = offered.terms[booking.id].to_json()
    return {**own, "cost": f"{offered.cost:.6f}", "dates": others}


def _approver(actor: Actor, counter: CounterOffer) -> Actor:
    """Who offered it, with the roles that they have now."""
    return _person(actor, counter.person)


def _asker(actor: Actor, approval: Approval) -> Actor:
    """Who asks, to try out what they would get."""
    return _person(actor, approval.asker)


def _person(actor: Actor, person: User) -> Actor:
    rows = acting_members(actor.tenant_id).filter(user=person)
    return Actor(
        user_id=person.pk,
        name=person.display_name,
        tenant_id=actor.tenant_id,
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


def _reason_read(text: str) -> str:
    if not text.strip():
        return ""
    return name_read(text, param="reason", longest=MAX_REASON).rstrip(".")


def _audit(actor: Actor, action: str, booking: Booking, row: CounterOffer, now: datetime) -> None:
    detail = {"label": booking.label, "digest": row.digest, "differences": row.differences}
    actor_record(actor, action, ("booking", booking.id), now, detail)
