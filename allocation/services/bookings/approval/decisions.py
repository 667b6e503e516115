"""Decisions on requests for approval, their expiry and their withdrawal."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from allocation.access import access_approval, deciding_for, deciding_refusal
from allocation.models import Approval, ApprovalAct, Booking, BookingChange
from allocation.rules.states import State
from allocation.services.bookings.approval.open_counters import counters_replace
from allocation.services.bookings.approval.requests import decide_by, digest_now
from allocation.services.bookings.change_rows import Kept, change_keep
from allocation.services.record.costs import waiting_settle
from allocation.services.record.history import Event
from allocation.services.record.refusals import refusal
from allocation.services.runs.transition import booking_change, booking_lock, booking_move
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.rules import money_text, rest_in_cents
from solver.reasons.reason import reason as reason_of
from tenants.access import Actor, may_still_book, require_open
from tenants.audit import audit_entry, audit_write
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid
from tenants.services.input_values import name_read

Verdict = Literal["approve", "decline"]
MAX_REASON = 200
_OPEN = Approval.State.OPEN


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision on exactly what `digest` names. To decline needs a reason."""

    verdict: Verdict
    digest: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides; `principal`: the approver that they stand in for."""

    user_id: int
    name: str
    principal: int | None = None


def approval_decide(*, actor: Actor, approval_id: UUID, decision: Decision, now: datetime) -> Approval:
    """Decides one step of a request, for all dates of a series at once.

    The last step puts the booking in the queue, at the place of its first submission, and a change
    to the next cycle. To decline releases the money.

    Raises:
        Refused: `not_found`, `not_allowed`, `approval_over`, `approval_expired`,
            `approval_changed`, `asker_left`, `bad_reason`.
    """
    reason = _reason_read(decision)
    with transaction.atomic():
        found = access_approval(actor, approval_id, now)
        bookings = bookings_lock(found)
        approvals = approvals_lock(found)
        approval = next(each for each in approvals if each.id == found.id)
        deciding_check(actor, approval, decision.digest, bookings, now)
        if decision.verdict == "approve":
            asker_check(approval)
        decider = Decider(actor.user_id, actor.name, deciding_for(actor, approval, now))
        decision_apply(decider, approvals, bookings, (decision.verdict, reason), now)
    return approval


def decision_apply(
    decider: Decider,
    approvals: Sequence[Approval],
    bookings: Sequence[Booking],
    said: tuple[Verdict, str],
    now: datetime,
) -> None:
    """Decides the present step of locked requests that are decided together."""
    verdict, reason = said
    together = [each for each in approvals if each.state == _OPEN]
    of = {booking.id: booking for booking in bookings}
    _acts_write(decider, together, verdict, reason, now)
    for each in together:
        _act(decider, each, of[each.booking_id], verdict, reason, now)
    audit_write(
        audit_entry(
            tenant_id=each.tenant_id,
            actor_id=decider.user_id,
            action="approval.approved" if verdict == "approve" else "approval.declined",
            target=("booking", each.booking_id),
            now=now,
            detail={
                "label": of[each.booking_id].label,
                "step": each.step,
                "digest": each.digest,
                "reason": reason,
                "principal": decider.principal,
            },
        )
        for each in together
    )
    task_request("allocation.cycle")


def _acts_write(
    decider: Decider, approvals: Sequence[Approval], verdict: str, reason: str, now: datetime
) -> None:
    """Stores who decided the present step of each request, and how."""
    ApprovalAct.objects.bulk_create(
        [
            ApprovalAct(
                tenant_id=each.tenant_id,
                approval=each,
                step=each.step,
                person_id=decider.user_id,
                principal_id=decider.principal,
                verdict=verdict,
                reason=reason,
                at=now,
            )
            for each in approvals
        ]
    )


def approvals_due(now: datetime) -> QuerySet[Approval]:
    """Returns open requests whose present step nobody decided in time."""
    return Approval.objects.filter(state=_OPEN, decide_by__lte=now)


def approvals_expire(now: datetime) -> int:
    """Ends the requests that nobody decided in time, or hands them to the admins.

    Returns how many have expired. For the cycle: a decision before `decide_by` that committed
    first counts, because both lock the booking.
    """
    ids = approvals_due(now).order_by("booking_id").values_list("id", "booking_id")
    return sum(_expire(approval, booking, now) for approval, booking in list(ids))


def approval_withdraw(booking: Booking, now: datetime) -> None:
    """Withdraws the open request of a booking that its owner cancels."""
    for approval in Approval.objects.select_for_update().filter(booking=booking, state=_OPEN):
        _close(approval, Approval.State.WITHDRAWN, now)


def _reason_read(decision: Decision) -> str:
    if decision.reason.strip():
        return name_read(decision.reason, param="reason", longest=MAX_REASON).rstrip(".")
    if decision.verdict == "decline":
        raise invalid("bad_reason", refusal_text("decline_reason_missing"), "reason")
    return ""


def bookings_lock(approval: Approval) -> list[Booking]:
    """The bookings that are decided together, locked in one order."""
    rows = Booking.objects.select_for_update(of=("self",)).select_related("tier", "project")
    if approval.series_id is None:
        return list(rows.filter(id=approval.booking_id))
    dates = Approval.objects.filter(series=approval.series_id, asked=approval.asked)
    return list(rows.filter(id__in=dates.values("booking_id")).order_by("id"))


def approvals_lock(approval: Approval) -> list[Approval]:
    """The requests that are decided together, locked after their bookings."""
    rows = Approval.objects.select_for_update(of=("self",)).select_related("decided_by", "asker", "change")
    if approval.series_id is None:
        return list(rows.filter(id=approval.id))
    return list(rows.filter(series=approval.series_id, asked=approval.asked).order_by("booking_id"))


def deciding_check(
    actor: Actor,
    approval: Approval,
    digest: str,
    bookings: Sequence[Booking],
    now: datetime,
) -> None:
    """Raises Refused unless the actor may decide the locked request as they have seen it."""
    refused = deciding_refusal(actor, approval, now)
    if refused is not None:
        raise refused
    open_check(approval, digest, bookings, now)


def open_check(approval: Approval, digest: str, bookings: Sequence[Booking], now: datetime) -> None:
    """Raises Refused unless the locked request waits, and is what `digest` names or less."""
    if approval.state != _OPEN:
        raise _over(approval)
    if now >= approval.decide_by:
        raise refusal(
            "approval_expired",
            refusal_text("approval_expired"),
            "conflict",
            "request",
            numbers={"decide_by": approval.decide_by.isoformat()},
        )
    is_seen = digest in (approval.digest, *approval.covers)
    if not is_seen or approval.digest != digest_now(approval, bookings):
        raise Refused("approval_changed", refusal_text("approval_changed"), "conflict", param="digest")


def asker_check(approval: Approval) -> None:
    """Raises Refused `asker_left` if the asker may not book in the project any more."""
    booking, project = approval.booking, approval.project
    require_open(project)
    if not all(may_still_book(each, project) for each in {approval.asker_id, booking.owner_id}):
        raise Refused("asker_left", refusal_text("asker_left"))


def _over(approval: Approval) -> Refused:
    code = f"approval_was_{approval.state}"
    by = approval.decided_by
    name = by.display_name if by else ""
    sentence = refusal_text(code, actor=name)
    decided = approval.decided.isoformat() if approval.decided else ""
    return Refused("approval_over", sentence, numbers={"decided": decided})


def _act(
    actor: Decider,
    approval: Approval,
    booking: Booking,
    verdict: Verdict,
    reason: str,
    now: datetime,
) -> None:
    if verdict == "decline":
        _close(approval, Approval.State.DECLINED, now, actor, reason)
        if approval.change_id is not None:
            text = event_text("change_declined", actor=actor.name, reason=reason)
            event = Event("declined", text, actor.user_id)
            kept = Kept((reason_of("approval_declined"),), event=event)
            change_keep(booking, _change_lock(approval.change_id), kept, now)
            return
        _booking_end(booking, State.REJECTED, actor, reason, now)
        return
    step = approval.present_step
    acts = approval.acts.filter(step=approval.step, verdict="approve").count()
    if acts < step.needed:
        return
    if approval.step < len(approval.steps):
        approval.step += 1
        approval.decide_by = decide_by(approval.present_step, approval.latest, now)
        approval.save(update_fields=["step", "decide_by"])
        text = event_text("approval_step", actor=actor.name)
        event = Event("approval_requested", text, actor.user_id)
        booking_change(booking, event=event, now=now)
        return
    _close(approval, Approval.State.APPROVED, now, actor, reason)
    text = event_text("approved", actor=actor.name, reason=reason)
    event = Event("approved", text, actor.user_id)
    if approval.change_id is not None:
        change = _change_lock(approval.change_id)
        change.state = BookingChange.State.ASKED
        change.save(update_fields=["state"])
        booking_change(booking, event=event, now=now, extension_until=change.until)
        return
    booking_move(
        booking,
        State.REQUESTED,
        event=event,
        now=now,
        approved_hash=approval.digest,
        place_from=None,
        place_until=None,
    )


def _close(
    approval: Approval,
    state: Approval.State,
    now: datetime,
    actor: Decider | None = None,
    reason: str = "",
) -> None:
    counters_replace([approval.id], now)
    approval.state, approval.decided, approval.reason = state, now, reason
    approval.decided_by_id = actor.user_id if actor else None
    approval.save(update_fields=["state", "decided", "decided_by", "reason"])


def _change_lock(change_id: UUID) -> BookingChange:
    return BookingChange.objects.select_for_update().get(id=change_id)


def _booking_end(booking: Booking, to: State, actor: Decider | None, reason: str, now: datetime) -> None:
    charged = waiting_settle(booking, now)
    freed = money_text(rest_in_cents(booking.hold_amount, charged), booking.currency)
    if actor is None:
        event = Event("approval_expired", event_text("approval_expired", freed=freed))
    else:
        text = event_text("declined", actor=actor.name, reason=reason, freed=freed)
        event = Event("declined", text, actor.user_id)
    booking_move(
        booking,
        to,
        event=event,
        now=now,
        outcome=str(to) if actor else "approval_expired",
        charged=charged,
        place_from=None,
        place_until=None,
        planned_starts=None,
        planned_ends=None,
        planned_class="",
        ended_at=now,
    )


def _expire(approval_id: UUID, booking_id: UUID, now: datetime) -> int:
    with transaction.atomic():
        booking = booking_lock(booking_id, "tier", "project")
        approval = Approval.objects.select_for_update().get(id=approval_id)
        if approval.state != _OPEN or approval.decide_by > now:
            return 0
        if _escalated(approval, now):
            event = Event("approval_requested", event_text("approval_escalated"))
            booking_change(booking, event=event, now=now)
            return 0
        _close(approval, Approval.State.EXPIRED, now)
        if approval.change_id is not None:
            event = Event("approval_expired", event_text("change_expired"))
            kept = Kept((reason_of("approval_expired"),), event=event)
            change_keep(booking, _change_lock(approval.change_id), kept, now)
            return 1
        _booking_end(booking, State.EXPIRED, None, "", now)
        task_request("allocation.cycle")
    return 1


def _escalated(approval: Approval, now: datetime) -> bool:
    """Hands the step to the admins if it escalates; returns whether it did."""
    step = approval.present_step
    until = decide_by(step, approval.latest, now)
    if not step.escalates or step.role == "admin" or until <= now:
        return False
    steps = list(approval.steps)
    steps[approval.step - 1] = {**steps[approval.step - 1], "role": "admin", "escalates": False}
    approval.steps, approval.decide_by = steps, until
    approval.save(update_fields=["steps", "decide_by"])
    return True
