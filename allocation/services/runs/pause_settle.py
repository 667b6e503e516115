"""A run that a pause has ended: what it cost, what is left, and whether there is a way on."""

from datetime import datetime
from decimal import Decimal

from allocation.models import Allocation, Booking, Pause
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.charging import PauseBill, pause_bill
from allocation.rules.states import State
from allocation.services.record.costs import (
    booking_cost,
    charged_run,
    earlier_charges,
    run_is_broken,
)
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import pause_end, pause_open
from allocation.services.runs.transition import booking_move
from billing.rules import money_text
from billing.services import hold_release, hold_settle_partially


def run_paused(booking: Booking, now: datetime) -> None:
    """All its devices are proven empty, or left behind: bills the run, keeps what the rest will
    cost, and waits. See `allocation.rules.charging` for the rule."""
    pause = pause_open(booking)
    if pause is None:
        raise LookupError(f"{booking.id} is pausing without a notice")
    bill = _bill(booking, pause)
    charge = _charge(booking, pause, bill)
    keep = booking_cost(booking, pause.remaining_seconds or 0)
    pause.charged, kept = hold_settle_partially(
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
    settled = booking.settled + pause.charged
    length = booking.duration_seconds
    if booking.starts is None:
        # The length that it still has, as after a run that was broken off.
        length = max(MIN_DURATION_SECONDS, pause.remaining_seconds or 0)
    booking_move(
        booking,
        State.PAUSED,
        event=Event("paused", sentence, detail={"pause": pause.number}),
        now=now,
        settled=settled,
        hold_amount=settled + kept,
        duration_seconds=length,
        redo_seconds=bill.redo,
        credited_seconds=bill.credited,
    )
    if not _goes_on(booking, pause, now):
        paused_booking_end(booking, "completed", "Too little of its time is left to go on.", now)


def paused_booking_end(booking: Booking, outcome: str, because: str, now: datetime) -> None:
    """Ends a paused booking: what its runs cost stays charged, everything else is free again."""
    booking.allocations.filter(state=Allocation.State.PLANNED).update(
        state=Allocation.State.SUPERSEDED
    )
    hold_release(tenant_id=booking.tenant_id, reference=booking.id, now=now)
    pause_end(booking, now)
    charged = money_text(booking.settled, booking.currency)
    freed = money_text(booking.hold_amount - booking.settled, booking.currency)
    booking_move(
        booking,
        State.ENDED,
        event=Event("ended", f"{because} {charged} charged in all, {freed} free again."),
        now=now,
        outcome=outcome,
        charged=booking.settled,
        ended_at=now,
    )


def _bill(booking: Booking, pause: Pause) -> PauseBill:
    """What the run is charged, and what the booking still has to do again."""
    run = charged_run(booking, pause)
    if run is None:
        raise LookupError(f"{booking.id} is pausing and was never ready")
    return pause_bill(
        run,
        out=_out_at(booking, pause),
        ends=pause.ends_before,
        before=earlier_charges(booking),
        cap=booking.tier.credit_cap_seconds,
        is_fixed=booking.starts is not None,
    )


def _charge(booking: Booking, pause: Pause, bill: PauseBill) -> Decimal:
    """What the run costs; fills in what was lost, what is credited and what remains."""
    pause.lost_seconds, pause.credit_seconds = bill.lost, bill.credit
    pause.remaining_seconds = bill.remaining
    charge = booking_cost(booking, bill.charged)
    pause.credit = booking_cost(booking, bill.charged + bill.credit) - charge
    return charge


def _out_at(booking: Booking, pause: Pause) -> datetime:
    """When the run's places were given back in the calendar. Places that were left behind were no
    use from the notice on, unless the pause is for its own people."""
    ended = booking.allocations.filter(
        state__in=(Allocation.State.RELEASING, Allocation.State.ENDED)
    )
    # Ranges are ordered by where they begin: the last is that of this run.
    last = ended.order_by("-period").only("period", "abandoned")[0]
    if last.abandoned and not pause.relation:
        return pause.noticed_at
    upper: datetime = last.period.upper
    return upper


def _goes_on(booking: Booking, pause: Pause, now: datetime) -> bool:
    left = pause.remaining_seconds or 0
    if booking.starts is not None:
        left = min(left, int((pause.ends_before - now).total_seconds()))
    return left >= MIN_DURATION_SECONDS


def _sentence(booking: Booking, pause: Pause, kept: Decimal) -> str:
    charged = money_text(pause.charged, booking.currency)
    credit = ""
    if pause.credit_seconds:
        lost = money_text(pause.credit, booking.currency)
        credit = f" {lost} of it is not charged, because that work has to be done again."
    held = money_text(kept, booking.currency)
    why = "its hardware failed" if run_is_broken(booking) else "the device is proven empty"
    return f"Paused: {why}. {charged} charged for this run.{credit} {held} stays held for the rest."
