"""Late shares: what it costs to give up GPUs later than the notice that a tier asks for.

Only granted time counts: places on the calendar before the start, and the rest of a run that nobody
has used. The end of a run that was used costs nothing, so GPUs come back as soon as they are free.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from allocation.models import Booking
from allocation.rules.charging import Granted, given_up
from allocation.rules.states import RUNNING, State
from allocation.services.record.costs import booking_spent, price_lines_of, rate_of
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change
from allocation.words.events import event_text
from billing.price_lines import line_cost
from billing.rules import ledger_amount, money_text
from billing.services import Charge, charge_refund, hold_settle_partially

MANUAL_USE_COUNTS_AFTER = timedelta(minutes=10)
"""In the first minutes of a run a check-in or a save by hand is no use of it; only a process is."""
LATE_REFUND_NOTE = "late share given back, because the change was undone"
Stretches = Iterable[tuple[datetime, datetime, Fraction]]


def granted_of(booking: Booking, now: datetime) -> Granted | None:
    """Returns the granted time that it costs to give up; None if there is none, or it was used."""
    has_run = booking.used_seconds or booking.replacement_count or booking.pause_count
    starts, ends = booking.planned_starts, booking.planned_ends
    if (
        has_run
        or _is_used(booking, now)
        or booking.hardware_lost_at is not None
        or starts is None
        or ends is None
    ):
        return None
    if booking.state not in (State.SCHEDULED, *RUNNING):
        return None
    return Granted(booking.ready_at or starts, ends, booking.ask["count"], _kind(booking))


def _is_used(booking: Booking, now: datetime) -> bool:
    """Whether somebody has used the run.

    A check-in by hand in the first minutes does not count; otherwise a check-in followed by a
    release would cost less than a cancellation.
    """
    if booking.checked_in_at is None and booking.saved_at is None:
        return False
    if booking.ready_at is None or now - booking.ready_at >= MANUAL_USE_COUNTS_AFTER:
        return True
    return booking.events.filter(kind="checked_in", actor=None).exists()


def granted_as(booking: Booking, starts: datetime, ends: datetime, count: int) -> Granted:
    """Returns the same kind of GPUs in another window or number."""
    return Granted(starts, ends, count, _kind(booking))


def late_fee(booking: Booking, kept: Granted | None, now: datetime) -> Decimal:
    """Returns what the booking pays for giving up all but `kept` now; at most the rest of its
    hold."""
    granted = granted_of(booking, now) if booking.late_share else None
    if not booking.late_share or granted is None:
        return Decimal(0)
    until = now + timedelta(seconds=booking.notice_seconds)
    price = _price(booking, granted, given_up(granted, kept, now, until))
    left = booking.hold_amount - booking_spent(booking, now)
    return ledger_amount(min(price * booking.late_share / 100, max(Decimal(0), left)))


def late_fee_most(booking: Booking, kept: Granted | None, now: datetime) -> Decimal:
    """Returns what it pays if the change is decided as late as the start."""
    granted = granted_of(booking, now)
    late = now if granted is None else max(now, granted.starts)
    return max(late_fee(booking, kept, now), late_fee(booking, kept, late))


def late_fee_take(booking: Booking, fee: Decimal, now: datetime) -> None:
    """Charges the fee to the hold of a locked booking, as a line of its own."""
    if not fee:
        return
    keep = booking.hold_amount - booking.settled - fee
    hold_settle_partially(
        tenant_id=booking.tenant_id,
        reference=booking.id,
        amount=Charge(fee, fee="late_share"),
        keep=keep,
        now=now,
    )
    amount = money_text(fee, booking.currency)
    notice = booking.notice_seconds // 60
    text = event_text("late_charged", amount=amount, share=booking.late_share, notice=notice)
    event = Event("late_charged", text, detail={"amount": str(fee)})
    settled, fees = booking.settled + fee, booking.late_fees + fee
    booking_change(booking, event=event, now=now, settled=settled, late_fees=fees)


def late_fee_refund(booking: Booking, fee: Decimal, now: datetime) -> None:
    """Gives a late share of a locked booking back to the budgets that paid it.

    Raises:
        Refused: `refund_too_large`.
    """
    if not fee:
        return
    text = event_text("late_refunded", amount=money_text(fee, booking.currency))
    charge_refund(
        tenant_id=booking.tenant_id,
        reference=booking.id,
        amount=fee,
        note=LATE_REFUND_NOTE,
        now=now,
        fee="late_share",
    )
    event = Event("late_refunded", text, detail={"amount": str(fee)})
    booking_change(booking, event=event, now=now, late_refunded=booking.late_refunded + fee)


def _price(booking: Booking, granted: Granted, stretches: Stretches) -> Decimal:
    lines, rate, total = price_lines_of(booking), rate_of(booking), Decimal(0)
    for begins, ends, part in stretches:
        first, last = (int((each - granted.starts).total_seconds()) for each in (begins, ends))
        price = line_cost(lines, last) - line_cost(lines, first)
        price += rate.surcharge(rate.between(begins, ends))
        total += price * part.numerator / part.denominator
    return total


def _kind(booking: Booking) -> str:
    ask = booking.ask
    groups = f" {ask['groups']}" if ask.get("groups") else ""
    return f"{booking.planned_class} {ask.get('profile')} {ask.get('share')}{groups}"
