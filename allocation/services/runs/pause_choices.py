"""What owners of a booking that is to be paused can do: say that it is saved, or ask for time."""

from datetime import datetime

from django.db import transaction

from allocation.models import Booking, Pause
from allocation.rules.states import State
from allocation.services.record.open_pauses import pause_acknowledge, pause_open
from allocation.services.runs.transition import booking_change
from tenants.access import Actor
from tenants.audit import audit_record
from tenants.models import Tier
from tenants.outbox import task_request
from tenants.platform.errors import Refused


def booking_saved(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Says that everything is saved. While a pause counts down that ends its grace; twice is once.

    In a running booking it is the last save: what was done before is never lost to a pause.

    Raises:
        Refused: `not_active`.
    """
    with transaction.atomic():
        booking = _locked(booking)
        if booking.state not in (State.ACTIVE, State.PAUSING):
            raise Refused("not_active", f"{booking.label} is not on its device now.")
        booking_change(booking, now=now, saved_at=now)
        if pause_acknowledge(booking, now, now, actor_id=actor.user_id):
            _record(actor, "booking.saved", booking, now)
    return booking


def more_time_request(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Asks to put the pause off by what the tier grants. The next cycle answers, for only it may
    move the stronger claim.

    Raises:
        Refused: `not_pausing`, `more_time_pending`, `no_more_time`, `claim_can_not_wait`.
    """
    with transaction.atomic():
        booking = _locked(booking)
        pause = pause_open(booking) if booking.state == State.PAUSING else None
        if pause is None or pause.acknowledged_at or pause.deadline <= now:
            raise Refused(
                "not_pausing",
                f"No pause of {booking.label} is counting down, so there is nothing to put off.",
            )
        refusal = more_time_refusal(booking.tier, pause)
        if refusal is not None:
            raise refusal
        pause.more_asked_at = now
        pause.save(update_fields=["more_asked_at"])
        _record(actor, "booking.more_time", booking, now)
    return booking


def more_time_refusal(tier: Tier, pause: Pause) -> Refused | None:
    """Why the owner can't ask for more time now; None when they can."""
    if pause.more_asked_at is not None:
        return Refused(
            "more_time_pending",
            "More time was asked for already; the answer comes in a few seconds.",
        )
    if pause.more_times_used >= tier.more_times:
        often = "once" if tier.more_times == 1 else f"{tier.more_times} times"
        grants = (
            f"grants more time {often}, and that is used"
            if tier.more_times
            else "grants no more time"
        )
        return Refused(
            "no_more_time",
            f"The tier {tier.name} {grants}. Save now, or book in a tier that is never paused.",
            rule="R51",
            owner="operator",
            numbers={"limit": tier.more_times, "used": pause.more_times_used},
        )
    if not pause.may_wait:
        return Refused(
            "claim_can_not_wait",
            "The stronger claim has a fixed time and can't start later, so the deadline stays. "
            "Save now: then nothing is lost.",
            rule="R52",
            owner="others",
        )
    return None


def _locked(booking: Booking) -> Booking:
    rows = Booking.objects.select_for_update(of=("self",))
    return rows.select_related("project", "tier", "owner").get(id=booking.id)


def _record(actor: Actor, action: str, booking: Booking, now: datetime) -> None:
    audit_record(
        tenant_id=booking.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("booking", booking.id),
        now=now,
        detail={"label": booking.label, "state": booking.state},
    )
    task_request("allocation.cycle")
