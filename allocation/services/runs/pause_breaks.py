"""A booking that is told to pause loses its devices before its time: to hardware that fails, or
with a node that does not answer."""

from datetime import datetime

from allocation.models import Allocation, Booking
from allocation.services.record.history import event_add
from allocation.services.runs.lifecycle import run_break_off, run_complete


def pause_break(
    booking: Booking, rule: str, sentence: str, now: datetime, *, is_hardware: bool
) -> bool:
    """It is told to pause anyway: its places are left behind, and it is paused when its grace is
    over, as it was said, whatever becomes of them. Nothing of it can be resumed where it was.

    Only hardware that failed changes the bill: that a node is silent, or says that the run is over,
    is its word alone. Returns False when all that was done before."""
    mine = booking.allocations.filter(state__in=Allocation.LIVE, left=False)
    if not mine.exists():
        return False
    ready = booking.ready_at
    run_break_off(booking, now)
    booking.ready_at = ready
    if is_hardware:
        booking.hardware_lost_at = now
    booking.allocations.filter(suspended=True).update(suspended=False)
    booking.version += 1
    booking.save(update_fields=["hardware_lost_at", "version"])
    charged = "what was not saved by its notice is not charged, and is done again"
    if not is_hardware:
        charged = "it is charged as for any pause"
    event_add(
        booking,
        kind="broken_off",
        sentence=f"{sentence} It is paused and goes on elsewhere; {charged}.",
        now=now,
        detail={"rule": rule},
    )
    run_complete(booking, now)
    return True
