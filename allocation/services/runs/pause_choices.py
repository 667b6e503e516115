"""The choices of an owner whose booking is to be paused: confirm a save, or ask for more time."""

from datetime import datetime

from django.db import transaction

from allocation.models import Booking, Pause
from allocation.rules.states import State
from allocation.services.record.open_pauses import pause_acknowledge, pause_open
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.refusals import refusal_text
from solver.reasons.catalogue import BY_CODE
from tenants.access import Actor
from tenants.audit import actor_record
from tenants.models import Tier
from tenants.outbox import task_request
from tenants.platform.errors import Refused

BUDGET_PAUSED = BY_CODE["budget_paused"].id
OPERATOR_PAUSED = BY_CODE["operator_paused"].id


def booking_saved(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Records that everything is saved, which ends a pause's grace period. Idempotent.

    Work that was done before the save is never lost to a pause.

    Raises:
        Refused: `not_active`.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner")
        if booking.state not in (State.ACTIVE, State.PAUSING):
            raise Refused("not_active", refusal_text("not_active", label=booking.label))
        booking_change(booking, now=now, saved_at=now)
        if pause_acknowledge(booking, now, now, actor_id=actor.user_id):
            _record(actor, "booking.saved", booking, now)
    return booking


def more_time_request(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Asks to postpone the pause by the time that the tier grants.

    The next cycle answers, because only a cycle may move the higher-priority booking.

    Raises:
        Refused: `not_pausing`, `more_time_pending`, `no_more_time`, `claim_can_not_wait`,
            `budget_can_not_wait`, `operators_can_not_wait`.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner")
        pause = pause_open(booking) if booking.state == State.PAUSING else None
        if pause is None or pause.acknowledged_at or pause.deadline <= now:
            raise Refused("not_pausing", refusal_text("not_pausing", label=booking.label))
        refusal = more_time_refusal(booking.tier, pause)
        if refusal is not None:
            raise refusal
        pause.more_asked_at = now
        pause.save(update_fields=["more_asked_at"])
        _record(actor, "booking.more_time", booking, now)
    return booking


def more_time_refusal(tier: Tier, pause: Pause) -> Refused | None:
    """Returns why the owner can't ask for more time now; None when they can."""
    if pause.more_asked_at is not None:
        return Refused("more_time_pending", refusal_text("more_time_pending"))
    if pause.more_times_used >= tier.more_times:
        return Refused(
            "no_more_time",
            refusal_text("no_more_time", tier=tier.name, limit=tier.more_times),
            rule="R51",
            owner="operator",
            numbers={"limit": tier.more_times, "used": pause.more_times_used},
        )
    if pause.rule == BUDGET_PAUSED:
        sentence = refusal_text("budget_can_not_wait")
        return Refused("budget_can_not_wait", sentence, rule=pause.rule, owner="tenant_admin")
    if pause.rule == OPERATOR_PAUSED:
        sentence = refusal_text("operators_can_not_wait")
        return Refused("operators_can_not_wait", sentence, rule=pause.rule, owner="operator")
    if not pause.may_wait:
        sentence = refusal_text("claim_can_not_wait")
        return Refused("claim_can_not_wait", sentence, rule="R52", owner="others")
    return None


def _record(actor: Actor, action: str, booking: Booking, now: datetime) -> None:
    detail = {"label": booking.label, "state": booking.state}
    actor_record(actor, action, ("booking", booking.id), now, detail)
    task_request("allocation.cycle")
