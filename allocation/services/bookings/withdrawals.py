"""Bookings that the portal cancels before their start, with all of their money."""

from datetime import datetime

from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.record.costs import waiting_settle
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_move, planned_rows_supersede
from allocation.words.events import EventText
from tenants.outbox import task_request


def booking_withdraw(
    booking: Booking, text: EventText, now: datetime, *, outcome: str, **facts: object
) -> None:
    """Cancels a locked booking that has not started, for a reason that is not its owner's."""
    planned_rows_supersede(booking)
    charged = waiting_settle(booking, now)
    booking_move(
        booking,
        State.CANCELLED,
        event=Event("cancelled", text),
        now=now,
        outcome=outcome,
        charged=charged,
        ended_at=now,
        **facts,
    )
    task_request("allocation.cycle")
