"""What a booking costs: so many seconds, what it has spent, and the last line before its end."""

from datetime import datetime
from decimal import Decimal

from allocation.models import Booking
from billing.rules import UNITS_PER_GPU, cost_of
from billing.services import hold_settle


def booking_cost(booking: Booking, seconds: int) -> Decimal:
    """What the whole booking costs for so many seconds, six places."""
    return cost_of(per_gpu_hour=booking.price_per_hour, units=UNITS_PER_GPU, seconds=seconds)


def run_seconds(booking: Booking, until: datetime) -> int:
    """Seconds of the present run that are charged: from "ready" to `until` or a pause's notice; of
    one that its hardware broke what is saved."""
    if booking.ready_at is None:
        return 0
    ends = min(until, booking.noticed_at or until)
    if run_is_broken(booking):
        ends = min(ends, booking.saved_at or booking.ready_at)
    return max(0, int((ends - booking.ready_at).total_seconds()))


def granted_seconds(booking: Booking) -> int:
    """The length it has by now, extensions and what earlier runs have used included."""
    begins = booking.starts or booking.planned_starts
    if begins is None or booking.planned_ends is None:
        raise LookupError(f"{booking.id} has a place and no time")
    earlier = 0 if booking.starts else booking.used_seconds
    return earlier + int((booking.planned_ends - begins).total_seconds())


def run_is_broken(booking: Booking) -> bool:
    """Whether its hardware has failed in the present run after the notice of a pause. Without a
    notice such a run is over at once, and the booking back in line."""
    ready, lost = booking.ready_at, booking.hardware_lost_at
    if ready is None or lost is None or booking.noticed_at is None:
        return False
    return lost >= ready


def run_kept_seconds(booking: Booking) -> int:
    """Seconds of the run whose results are saved: charged, and not done again."""
    return run_seconds(booking, booking.saved_at) if booking.saved_at else 0


def booking_spent(booking: Booking, until: datetime) -> Decimal:
    """What earlier runs were charged and this one costs until then; never more than is held."""
    used = booking.used_seconds + run_seconds(booking, until)
    return min(booking.held, booking.settled + booking_cost(booking, used))


def earlier_settle(booking: Booking, now: datetime) -> Decimal:
    """Ends the hold of a booking that waits: what it had before it was begun anew is charged, zero
    for one that never ran. Returns what it was charged in all, for paused runs too."""
    due = booking_cost(booking, booking.used_seconds) if booking.used_seconds else Decimal(0)
    return booking.settled + hold_settle(
        tenant_id=booking.tenant_id,
        reference=booking.id,
        amount=min(booking.held - booking.settled, due),
        now=now,
    )
