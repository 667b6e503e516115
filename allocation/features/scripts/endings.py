"""The end of a script ends its booking, as its owner's release does: by the rules for giving back."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.features.scripts.models import BookingScript
from allocation.features.scripts.services import RUNNING, scripts_ended
from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.record.history import Event
from allocation.services.runs.late_shares import late_fee, late_fee_take
from allocation.services.runs.transition import booking_change, booking_lock, booking_move
from allocation.words.events import EventText, event_text
from tenants.failures import each_apart
from tenants.outbox import task_request

NEVER_RAN = "its node runs no scripts"


def ended_turn(now: datetime) -> int:
    """Ends the bookings whose scripts have ended; returns how many."""
    bookings = list(Booking.objects.filter(script__in=scripts_ended()).order_by("id"))
    done = each_apart("scripts", bookings, lambda each: script_end(each.id, now), now)
    if done:
        task_request("allocation.cycle")
    return done


def script_end(booking_id: UUID, now: datetime) -> bool:
    """Ends one running booking whose script is over."""
    with transaction.atomic():
        booking = booking_lock(booking_id, "project", "tier", "owner")
        if booking.state not in RUNNING:
            return False
        script = BookingScript.objects.select_for_update().get(booking_id=booking_id)
        if script.ended_at is None:
            script.ended, script.ended_at = NEVER_RAN, now
            script.save(update_fields=["ended", "ended_at"])
        _result(booking, script, now)
        late_fee_take(booking, late_fee(booking, None, now), now)
        booking_move(
            booking,
            State.ENDING,
            event=Event("ending", _text(script)),
            now=now,
            outcome="released",
            released_at=min(script.ended_at, booking.planned_ends or now),
        )
    return True


def _result(booking: Booking, script: BookingScript, now: datetime) -> None:
    """Records the result that bookings after it wait for, unless the script reported another one."""
    result = "success" if script.exit_code == 0 else "failure"
    if booking.result:
        return
    event = Event("result", event_text(f"result_{result}"), detail={"result": result})
    booking_change(booking, event=event, now=now, result=result)


def _text(script: BookingScript) -> EventText:
    if script.exit_code is None:
        return event_text("script_never_ran")
    return event_text("script_ended", code=script.exit_code)
