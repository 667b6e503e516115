"""Results that programs report: bookings that depend on a success wait for them."""

from datetime import datetime, timedelta

from django.db import transaction

from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.outbox import task_request
from tenants.platform.errors import Refused

REPORTED_WITHIN = timedelta(minutes=10)
"""How long after its end a booking's result can be reported."""
_RUNNING = (State.ACTIVE, State.PAUSING, State.PAUSED, State.ENDING)


def booking_result(*, actor: Actor, booking: Booking, result: str, now: datetime) -> Booking:
    """Records what a program reports of its booking: `success` or `failure`. The last one counts.

    Raises:
        Refused: `no_run` before its start, `result_late` 10 minutes after its end.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner")
        if booking.result == result:
            return booking
        if booking.state in (State.ENDED, State.FAILED):
            if booking.ended_at is not None and now - booking.ended_at >= REPORTED_WITHIN:
                sentence = refusal_text("result_late", label=booking.label)
                raise Refused("result_late", sentence, "conflict")
        elif booking.state not in _RUNNING:
            raise Refused("no_run", refusal_text("no_run", label=booking.label), "conflict")
        event = Event("result", event_text(f"result_{result}"), actor.user_id, {"result": result})
        booking_change(booking, event=event, now=now, result=result)
        task_request("allocation.cycle")
    return booking
