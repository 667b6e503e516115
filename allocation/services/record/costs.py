"""The cost of a booking: of a time, of what it has used, and its final charge."""

from datetime import datetime
from decimal import Decimal

from allocation.models import Booking, Pause
from allocation.rules.charging import EarlierRuns, Run, end_time
from allocation.services.record.open_pauses import pause_open
from billing.price_lines import PriceLine, line_cost, lines_read
from billing.rates import NO_PEAKS, Rate, Spell, peak_hours
from billing.services import Charge, hold_settle, hold_settle_partially


def booking_cost(booking: Booking, spell: Spell) -> Decimal:
    """Cost of the whole booking for its next time that is not charged yet, with six decimal
    places."""
    return line_cost(price_lines_of(booking), spell.seconds) + rate_of(booking).surcharge(spell)


def price_lines_of(booking: Booking) -> tuple[PriceLine, ...]:
    """Its stretches of different prices; one if it has a single price."""
    lines = lines_read(booking.price_lines)
    return lines or (PriceLine(booking.duration_seconds, booking.price_per_hour),)


def rate_of(booking: Booking) -> Rate:
    """What the first stretch of the booking costs for an hour. The surcharge of peak hours is the
    same in each."""
    hours = peak_hours(booking.peak_zone, booking.peak_weekly) if booking.peak_weekly else NO_PEAKS
    return Rate(booking.price_per_hour, booking.price_per_hour + booking.peak_surcharge, hours)


def unpaid_setup(booking: Booking) -> Decimal:
    """The set-up fee that its first start is going to cost."""
    return booking.setup_fee - booking.setup_paid


def setup_charge(booking: Booking, now: datetime) -> dict[str, Decimal]:
    """Charges the set-up fee of a locked booking, as a line of its own, unless that is done.
    Returns the fields that change."""
    fee = min(unpaid_setup(booking), booking.hold_amount - booking.settled)
    if fee <= 0:
        return {}
    hold_settle_partially(
        tenant_id=booking.tenant_id,
        reference=booking.id,
        amount=Charge(fee, fee="setup"),
        keep=booking.hold_amount - booking.settled - fee,
        now=now,
    )
    return {"settled": booking.settled + fee, "setup_paid": fee}


def booking_charge(booking: Booking, spell: Spell, most: Decimal) -> Charge:
    """The charge of a time, at most `most`."""
    amount = min(most, booking_cost(booking, spell))
    return Charge(amount, min(amount, rate_of(booking).surcharge(spell)))


def charged_run(booking: Booking, pause: Pause | None) -> Run | None:
    """The current run as it is charged; None before it is ready. `pause` is the open pause."""
    if booking.ready_at is None:
        return None
    return Run(
        ready=booking.ready_at,
        noticed=booking.notified_at,
        own=pause is not None and pause.is_own,
        saved=booking.saved_at,
        broken=run_is_broken(booking),
        peaks=rate_of(booking).hours,
    )


def run_time(booking: Booking, until: datetime) -> Spell:
    """Charged time of the current run: from "ready" to `until` or to the notice of a pause. A
    pause for a claim of its own organisation is charged to its end. Of a run that failed with its
    hardware, the saved part is charged."""
    pause = pause_open(booking) if booking.notified_at is not None else None
    run = charged_run(booking, pause)
    if run is None:
        return Spell()
    if pause is not None:
        until = min(until, pause.acknowledged_at or pause.deadline)
    return run.time(until)


def granted_seconds(booking: Booking) -> int:
    """Current length of the booking, including extensions and earlier runs."""
    begins = booking.starts or booking.planned_starts
    if begins is None or booking.planned_ends is None:
        raise LookupError(f"{booking.id} has GPUs and no time")
    earlier = 0 if booking.starts else booking.used_seconds
    return earlier + int((booking.planned_ends - begins).total_seconds())


def run_is_broken(booking: Booking) -> bool:
    """Whether its hardware failed in the current run after the notice of a pause. Without a notice
    such a run ends at once and the booking returns to the queue. A failure before the notice
    therefore ended an earlier run, even if the current one began in the same second."""
    lost, noticed = booking.hardware_lost_at, booking.notified_at
    if booking.ready_at is None or lost is None or noticed is None:
        return False
    return lost >= noticed


def run_saved_time(booking: Booking) -> Spell:
    """Time of the run whose results are saved: it is charged and not repeated."""
    return run_time(booking, booking.saved_at) if booking.saved_at else Spell()


def used_time(booking: Booking) -> Spell:
    """Time of earlier runs that still has to be charged."""
    return Spell(booking.used_seconds, booking.used_peak_seconds)


def used_facts(used: Spell) -> dict[str, int]:
    """The fields of a booking whose earlier runs have used this time."""
    return {"used_seconds": used.seconds, "used_peak_seconds": used.peak}


def booking_spent(booking: Booking, until: datetime) -> Decimal:
    """Charge for earlier runs plus the cost of this one until then; at most the held amount."""
    used = used_time(booking) + run_time(booking, until)
    return min(booking.hold_amount, booking.settled + booking_cost(booking, used))


def paid_for(booking: Booking) -> Decimal:
    """What the booking cost in the end, after corrections and refunds; zero until it is over."""
    if booking.charged is None:
        return Decimal(0)
    return booking.charged + booking.corrected - booking.late_refunded


def cancellation_cost(booking: Booking, now: datetime) -> Decimal:
    """Total cost if its owner cancels it now. Credited work that is not repeated is paid for."""
    if booking.charged is not None:
        return booking.charged
    at = booking.released_at or min(now, booking.planned_ends or now)
    rest = unused_seconds(booking, at) if booking.redo_seconds else 0
    time = end_time(run_time(booking, at), earlier_charges(booking), rest)
    return min(booking.hold_amount, booking.settled + booking_cost(booking, time))


def waiting_settle(booking: Booking, now: datetime, rest: int = 0) -> Decimal:
    """Ends the hold of a waiting booking and charges its earlier runs: zero if it never ran.
    Returns its total charge, including paused runs.

    `rest` is the unused time if its owner cancels it, zero if somebody else ends it.
    """
    return booking.settled + final_settle(booking, end_time(Spell(), earlier_charges(booking), rest), now)


def final_settle(booking: Booking, spell: Spell, now: datetime, fee_seconds: int = 0) -> Decimal:
    """Charges this time and a no-show's fee against the rest of the hold, each as a line of its
    own, and ends the hold. Returns the charge."""
    charge = booking_charge(booking, spell, booking.hold_amount - booking.settled)
    if not fee_seconds:
        return hold_settle(tenant_id=booking.tenant_id, reference=booking.id, amount=charge, now=now)
    keep = booking.hold_amount - booking.settled - charge.amount
    both = booking_cost(booking, spell + Spell(fee_seconds))
    fee = min(keep, both - booking_cost(booking, spell))
    used, _ = hold_settle_partially(
        tenant_id=booking.tenant_id, reference=booking.id, amount=charge, keep=keep, now=now
    )
    amount = Charge(fee, fee="no_show")
    reference = booking.id
    return used + hold_settle(tenant_id=booking.tenant_id, reference=reference, amount=amount, now=now)


def earlier_charges(booking: Booking) -> EarlierRuns:
    """Time of earlier runs that is still to be charged or repeated."""
    return EarlierRuns(used_time(booking), booking.redo_seconds, booking.credited_seconds)


def unused_seconds(booking: Booking, at: datetime) -> int:
    """Time that its owner had not used at `at`; of a fixed window, the rest of the window."""
    pause = pause_open(booking)
    if pause is not None:
        left = int((pause.ends_before - at).total_seconds())
        remaining = pause.remaining_seconds
        if remaining is not None:
            left = remaining if booking.starts is None else min(left, remaining)
        return max(0, left)
    if booking.ready_at is not None and booking.planned_ends is not None:
        return max(0, int((booking.planned_ends - at).total_seconds()))
    return max(0, booking.duration_seconds - booking.used_seconds)
