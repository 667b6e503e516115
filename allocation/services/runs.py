"""A run that a pause has ended: what it cost, what is left, and whether there is a way on."""

from datetime import datetime
from decimal import Decimal

from allocation.models import Allocation, Booking, Pause
from allocation.rules.states import State
from allocation.services.costs import booking_cost, run_is_broken
from allocation.services.history import event_add
from allocation.services.pauses import pause_open, pause_over
from billing.rules import money_text
from billing.services import hold_release, hold_settle_part

# What is shorter is not started again.
SHORTEST_SECONDS = 60


def run_paused(booking: Booking, now: datetime) -> None:
    """All its devices are proven empty, or left behind: bills the run, keeps what the rest will
    cost, and waits.

    Time since the last save is done again: it is not charged, up to the tier's cap. A flexible
    booking also gets that time back at its end; a fixed window can't grow, there it is money only.
    """
    pause = pause_open(booking)
    if pause is None:
        raise LookupError(f"{booking.id} is pausing without a notice")
    charge = _bill(booking, pause)
    keep = booking_cost(booking, pause.remaining_seconds or 0)
    pause.charged, kept = hold_settle_part(
        tenant_id=booking.tenant_id, reference=booking.id, amount=charge, keep=keep, now=now
    )
    pause.emptied_at = now
    pause.save(
        update_fields=[
            "emptied_at", "lost_seconds", "credit_seconds", "credit", "charged",
            "remaining_seconds",
        ]
    )  # fmt: skip
    sentence = _sentence(booking, pause, kept)
    booking.settled += pause.charged
    booking.held = booking.settled + kept
    booking.state = State.PAUSED
    booking.ready_at = booking.noticed_at = booking.saved_at = None
    booking.used_seconds = 0
    if booking.starts is None:
        # The length that it still has, as after a run that was broken off.
        booking.duration_seconds = max(SHORTEST_SECONDS, pause.remaining_seconds or 0)
    _save(
        booking, "settled", "held", "state", "ready_at", "noticed_at", "saved_at", "used_seconds",
        "duration_seconds",
    )  # fmt: skip
    event_add(
        booking, kind="paused", sentence=sentence, now=now,
        detail={"pause": pause.number},
    )  # fmt: skip
    if not _goes_on(booking, pause, now):
        run_none_left(booking, "completed", "Too little of its time is left to go on.", now)


def run_none_left(booking: Booking, outcome: str, because: str, now: datetime) -> None:
    """Ends a paused booking: what its runs cost stays charged, everything else is free again."""
    booking.allocations.filter(state=Allocation.State.PLANNED).update(
        state=Allocation.State.SUPERSEDED
    )
    hold_release(tenant_id=booking.tenant_id, reference=booking.id, now=now)
    booking.state, booking.outcome = State.ENDED, outcome
    booking.charged, booking.ended_at = booking.settled, now
    booking.planned_places = []
    _save(booking, "state", "outcome", "charged", "ended_at", "planned_places")
    pause_over(booking, now)
    charged = money_text(booking.charged, booking.currency)
    freed = money_text(booking.held - booking.charged, booking.currency)
    event_add(
        booking,
        kind="ended",
        sentence=f"{because} {charged} charged in all, {freed} free again.",
        now=now,
    )


def _bill(booking: Booking, pause: Pause) -> Decimal:
    """What the run costs; fills in what was lost, what is credited and what remains.

    What failing hardware took is credited whole, and the grace, which was no use then, comes back.
    """
    is_broken = run_is_broken(booking)
    used = max(0, int((pause.noticed_at - pause.ready_at).total_seconds()))
    saved = max(pause.ready_at, min(booking.saved_at or pause.ready_at, pause.noticed_at))
    pause.lost_seconds = min(used, int((pause.noticed_at - saved).total_seconds()))
    cap = pause.lost_seconds if is_broken else booking.tier.credit_cap_seconds
    pause.credit_seconds = min(pause.lost_seconds, cap)
    # Also what it had elsewhere before it was begun anew.
    used += booking.used_seconds
    charge = booking_cost(booking, used - pause.credit_seconds)
    pause.credit = booking_cost(booking, used) - charge
    out_at = pause.noticed_at if is_broken else _out_at(booking)
    left = max(0, int((pause.ends_before - out_at).total_seconds()))
    is_fixed = booking.starts is not None
    pause.remaining_seconds = left if is_fixed else left + pause.credit_seconds
    return charge


def _out_at(booking: Booking) -> datetime:
    """When the run's places were given back in the calendar."""
    ended = booking.allocations.filter(state=Allocation.State.ENDED)
    # Ranges are ordered by where they begin: the last is that of this run.
    last: datetime = ended.order_by("-period").values_list("period", flat=True)[0].upper
    return last


def _goes_on(booking: Booking, pause: Pause, now: datetime) -> bool:
    left = pause.remaining_seconds or 0
    if booking.starts is not None:
        left = min(left, int((pause.ends_before - now).total_seconds()))
    return left >= SHORTEST_SECONDS


def _sentence(booking: Booking, pause: Pause, kept: Decimal) -> str:
    charged = money_text(pause.charged, booking.currency)
    credit = ""
    if pause.credit_seconds:
        lost = money_text(pause.credit, booking.currency)
        credit = f" {lost} of it is not charged, because that work has to be done again."
    held = money_text(kept, booking.currency)
    why = "its hardware failed" if run_is_broken(booking) else "the device is proven empty"
    return f"Paused: {why}. {charged} charged for this run.{credit} {held} stays held for the rest."


def _save(booking: Booking, *fields: str) -> None:
    booking.version += 1
    booking.save(update_fields=[*fields, "version"])
