"""What a booking costs: so many seconds, what it has spent, and the last line before its end."""

from datetime import datetime
from decimal import Decimal

from allocation.models import Booking, Pause
from allocation.rules.charging import EarlierRuns, Run, end_seconds
from allocation.services.record.open_pauses import pause_open
from billing.rules import UNITS_PER_GPU, cost_of
from billing.services import hold_settle


def booking_cost(booking: Booking, seconds: int) -> Decimal:
    """What the whole booking costs for so many seconds, six places."""
    return cost_of(per_gpu_hour=booking.price_per_hour, units=UNITS_PER_GPU, seconds=seconds)


def charged_run(booking: Booking, pause: Pause | None) -> Run | None:
    """The present run as it is charged; None before it is ready. `pause` is the open one."""
    if booking.ready_at is None:
        return None
    return Run(
        ready=booking.ready_at,
        noticed=booking.noticed_at,
        own=pause is not None and pause.own != "",
        saved=booking.saved_at,
        broken=run_is_broken(booking),
    )


def run_seconds(booking: Booking, until: datetime) -> int:
    """Seconds of the present run that are charged: from "ready" to `until` or a pause's notice; a
    pause for its own people's claim is charged to its end. Of a run that its hardware broke what
    is saved."""
    pause = pause_open(booking) if booking.noticed_at is not None else None
    run = charged_run(booking, pause)
    if run is None:
        return 0
    if pause is not None:
        until = min(until, pause.acknowledged_at or pause.deadline)
    return run.seconds(until)


def granted_seconds(booking: Booking) -> int:
    """The length it has by now, extensions and what earlier runs have used included."""
    begins = booking.starts or booking.planned_starts
    if begins is None or booking.planned_ends is None:
        raise LookupError(f"{booking.id} has a place and no time")
    earlier = 0 if booking.starts else booking.used_seconds
    return earlier + int((booking.planned_ends - begins).total_seconds())


def run_is_broken(booking: Booking) -> bool:
    """Whether its hardware has failed in the present run after the notice of a pause. Without a
    notice such a run is over at once, and the booking back in line: what failed before the notice
    broke an earlier run, also where the present one began in the same second."""
    lost, noticed = booking.hardware_lost_at, booking.noticed_at
    if booking.ready_at is None or lost is None or noticed is None:
        return False
    return lost >= noticed


def run_saved_seconds(booking: Booking) -> int:
    """Seconds of the run whose results are saved: charged, and not done again."""
    return run_seconds(booking, booking.saved_at) if booking.saved_at else 0


def booking_spent(booking: Booking, until: datetime) -> Decimal:
    """What earlier runs were charged and this one costs until then; never more than is held."""
    used = booking.used_seconds + run_seconds(booking, until)
    return min(booking.held, booking.settled + booking_cost(booking, used))


def cancellation_cost(booking: Booking, now: datetime) -> Decimal:
    """What it costs in all if its owner gives it up now: credited work that is not done again is
    paid for."""
    if booking.charged is not None:
        return booking.charged
    at = booking.released_at or min(now, booking.planned_ends or now)
    rest = unused_seconds(booking, at) if booking.redo_seconds else 0
    seconds = end_seconds(run_seconds(booking, at), earlier_charges(booking), rest)
    return min(booking.held, booking.settled + booking_cost(booking, seconds))


def waiting_settle(booking: Booking, now: datetime, rest: int = 0) -> Decimal:
    """Ends the hold of a booking that waits: what it had before it was begun anew is charged, zero
    for one that never ran. Returns what it was charged in all, for paused runs too.

    `rest` is the time that its owner gives up, zero where somebody else ends it.
    """
    return booking.settled + final_settle(
        booking, end_seconds(0, earlier_charges(booking), rest), now
    )


def final_settle(booking: Booking, seconds: int, now: datetime) -> Decimal:
    """Charges so many seconds out of what is still held, and ends the hold; returns the charge."""
    return hold_settle(
        tenant_id=booking.tenant_id,
        reference=booking.id,
        amount=min(booking.held - booking.settled, booking_cost(booking, seconds)),
        now=now,
    )


def earlier_charges(booking: Booking) -> EarlierRuns:
    """What earlier runs left to be charged, or to be done again."""
    return EarlierRuns(booking.used_seconds, booking.redo_seconds, booking.credited_seconds)


def unused_seconds(booking: Booking, at: datetime) -> int:
    """The time that its owner still had at `at`; a fixed window has what is left of it."""
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
