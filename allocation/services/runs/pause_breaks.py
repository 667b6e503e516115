"""A booking that is told to pause loses its devices before its time: to hardware that fails, or
with a node that does not answer."""

from datetime import datetime

from allocation.models import Allocation, Booking
from allocation.services.record.history import Event
from allocation.services.runs.end import run_abandon, run_complete
from allocation.services.runs.transition import booking_change


def pausing_run_interrupt(
    booking: Booking, rule: str, sentence: str, now: datetime, *, is_hardware: bool
) -> bool:
    """It is told to pause anyway: its places are left behind, and it is paused when its grace is
    over, as it was said, whatever becomes of them. Nothing of it can be resumed where it was.

    Only hardware that failed changes the bill: that a node is silent, or says that the run is over,
    is its word alone. Returns False when all that was done before."""
    mine = booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False)
    if not mine.exists():
        return False
    run_abandon(booking, now)
    booking.allocations.filter(suspended=True).update(suspended=False)
    charged = "what was not saved by its notice is not charged, and is done again"
    if not is_hardware:
        charged = "it is charged as for any pause"
    said = f"{sentence} It is paused and goes on elsewhere; {charged}."
    event = Event("broken_off", said, detail={"rule": rule})
    lost = now if is_hardware else booking.hardware_lost_at
    booking_change(booking, event=event, now=now, hardware_lost_at=lost)
    run_complete(booking, now)
    return True
