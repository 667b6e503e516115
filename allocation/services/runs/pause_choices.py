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

# Who orders a pause that can't wait, by its rule, and the code of the refusal.
_CAN_NOT_WAIT = {
    BY_CODE["budget_paused"].id: ("budget_can_not_wait", "tenant_admin"),
    BY_CODE["operator_paused"].id: ("operators_can_not_wait", "operator"),
    BY_CODE["limit_cut"].id: ("limit_can_not_wait", "tenant_admin"),
    BY_CODE["machine_leaves"].id: ("machine_can_not_wait", "hardware"),
}


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
            `budget_can_not_wait`, `operators_can_not_wait`, `machine_can_not_wait`,
            `limit_can_not_wait`.
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
    if pause.rule in _CAN_NOT_WAIT:
        code, owner = _CAN_NOT_WAIT[pause.rule]
        return Refused(code, refusal_text(code), rule=pause.rule, owner=owner)
    if not pause.may_wait:
        sentence = refusal_text("claim_can_not_wait")
        return Refused("claim_can_not_wait", sentence, rule="R52", owner="others")
    return None


def _record(actor: Actor, action: str, booking: Booking, now: datetime) -> None:
    detail = {"label": booking.label, "state": booking.state}
    actor_record(actor, action, ("booking", booking.id), now, detail)
    task_request("allocation.cycle")
