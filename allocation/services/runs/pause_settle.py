"""The bill of a run that a pause has ended, and the end of a booking that can't resume."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from allocation.models import Allocation, Booking, Pause
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.charging import PauseBill, pause_bill
from allocation.rules.states import State
from allocation.services.record.costs import (
    booking_charge,
    booking_cost,
    charged_run,
    earlier_charges,
    price_lines_of,
    rate_of,
    run_is_broken,
)
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import pause_end, pause_open
from allocation.services.runs.transition import booking_move, planned_rows_supersede
from allocation.words.events import EventText, event_text
from billing.price_lines import line_cost, lines_data, lines_from
from billing.rules import money_text, rest_in_cents
from billing.services import Charge, hold_release, hold_settle_partially


def run_paused(booking: Booking, now: datetime) -> None:
    """Bills the run of a booking whose devices are all cleared or left, and holds the rest's cost.

    See `allocation.rules.charging` for the rule.
    """
    pause = pause_open(booking)
    if pause is None:
        raise LookupError(f"{booking.id} is pausing without an open pause")
    bill = _bill(booking, pause)
    charge = _charge(booking, pause, bill)
    # What is charged now is the oldest part of its time; the rest keeps its own prices.
    lines = lines_from(price_lines_of(booking), bill.charged.seconds)
    keep = line_cost(lines, pause.remaining_seconds or 0) + _surcharge_of_rest(booking, pause)
    pause.charged, kept = hold_settle_partially(
        tenant_id=booking.tenant_id, reference=booking.id, amount=charge, keep=keep, now=now
    )
    pause.emptied_at = now
    pause.save(
        update_fields=[
            "emptied_at",
            "lost_seconds",
            "credit_seconds",
            "credit",
            "charged",
            "remaining_seconds",
        ]
    )
    settled = booking.settled + pause.charged
    length = booking.duration_seconds
    if booking.starts is None:
        # A flexible booking is as long as what is left of it, as after an interruption.
        length = max(MIN_DURATION_SECONDS, pause.remaining_seconds or 0)
    booking_move(
        booking,
        State.PAUSED,
        event=Event("paused", _text(booking, pause, kept), detail={"pause": pause.number}),
        now=now,
        settled=settled,
        hold_amount=settled + kept,
        duration_seconds=length,
        price_per_hour=lines[0].per_hour,
        price_lines=lines_data(lines),
        redo_seconds=bill.redo,
        credited_seconds=bill.credited,
    )
    if not _can_resume(booking, pause, now):
        paused_booking_end(booking, "completed", event_text("too_little_left"), now)


def paused_booking_end(
    booking: Booking, outcome: str, because: EventText | dict[str, Any], now: datetime
) -> None:
    """Ends a paused booking: its runs stay charged, the rest of its hold is released.

    `because` is a text or a stored reason.
    """
    planned_rows_supersede(booking)
    hold_release(tenant_id=booking.tenant_id, reference=booking.id, now=now)
    pause_end(booking, now)
    text = event_text(
        "ended_paused",
        because=because,
        charged=money_text(booking.settled, booking.currency),
        freed=money_text(rest_in_cents(booking.hold_amount, booking.settled), booking.currency),
    )
    booking_move(
        booking,
        State.ENDED,
        event=Event("ended", text),
        now=now,
        outcome=outcome,
        charged=booking.settled,
        ended_at=now,
    )


def _bill(booking: Booking, pause: Pause) -> PauseBill:
    """Returns what the run is charged, and what the booking has to repeat."""
    run = charged_run(booking, pause)
    if run is None:
        raise LookupError(f"{booking.id} is pausing but was never ready")
    return pause_bill(
        run,
        out=_out_at(booking, pause),
        ends=pause.ends_before,
        before=earlier_charges(booking),
        cap=booking.tier.credit_cap_seconds,
        is_fixed=booking.starts is not None,
    )


def _charge(booking: Booking, pause: Pause, bill: PauseBill) -> Charge:
    """Returns the cost of the run; fills in the lost, credited and remaining time of the pause."""
    pause.lost_seconds, pause.credit_seconds = bill.lost, bill.credit.seconds
    pause.remaining_seconds = bill.remaining
    charge = booking_charge(booking, bill.charged, booking.hold_amount - booking.settled)
    both = booking_cost(booking, bill.charged + bill.credit)
    pause.credit = both - booking_cost(booking, bill.charged)
    return charge


def _surcharge_of_rest(booking: Booking, pause: Pause) -> Decimal:
    """Returns the most that peak hours can add to the cost of the remaining time."""
    rate, remaining = rate_of(booking), pause.remaining_seconds or 0
    if booking.starts is None:
        return rate.surcharge(rate.hours.most(remaining))
    since = pause.ends_before - timedelta(seconds=remaining)
    return rate.surcharge(rate.between(since, pause.ends_before))


def _out_at(booking: Booking, pause: Pause) -> datetime:
    """Returns when the run's places became free in the calendar.

    Places that were left count as free from the notice on, unless the pause is for a booking of
    the same people.
    """
    ended = booking.allocations.filter(state__in=(Allocation.State.RELEASING, Allocation.State.ENDED))
    # Ranges are ordered by their starts, so the last one is that of this run.
    last = ended.order_by("-period").only("period", "abandoned")[0]
    if last.abandoned and not pause.relation:
        return pause.notified_at
    upper: datetime = last.period.upper
    return upper


def _can_resume(booking: Booking, pause: Pause, now: datetime) -> bool:
    left = pause.remaining_seconds or 0
    if booking.starts is not None:
        left = min(left, int((pause.ends_before - now).total_seconds()))
    return left >= MIN_DURATION_SECONDS


def _text(booking: Booking, pause: Pause, kept: Decimal) -> EventText:
    credit = money_text(pause.credit, booking.currency) if pause.credit_seconds else ""
    return event_text(
        "paused",
        is_broken=int(run_is_broken(booking)),
        charged=money_text(pause.charged, booking.currency),
        credit=credit,
        held=money_text(kept, booking.currency),
    )
