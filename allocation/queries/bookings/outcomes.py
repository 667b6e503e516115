"""The outcomes of the tenant's past bookings. Runs inside its `tenant_tx`."""

from datetime import datetime

from django.db import connection

from allocation.models import Booking
from allocation.rules.pause_risk import Outcomes, PauseRecord
from allocation.rules.start_range import StartRange, start_range
from allocation.rules.states import State

LATEST_ENDED = 2_000
LATEST_STARTED = 200


def pause_record() -> PauseRecord:
    """The outcomes of the latest ended bookings, by kind."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tier, gpu_class, borrowed, quarter, ended, paused"
            " FROM portal_pause_outcomes(%s)",
            [LATEST_ENDED],
        )
        return PauseRecord(Outcomes(*row) for row in cursor.fetchall())


def start_history(tier: str) -> list[tuple[int, int]]:
    """(lead, lateness) in seconds of the latest planned starts in a tier."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT lead, late FROM portal_start_delays(%s, %s)", [tier, LATEST_STARTED])
        return list(cursor.fetchall())


def booking_start_range(booking: Booking, now: datetime) -> StartRange | None:
    """The range in which a waiting booking will start in 8 of 10 cases.

    None if it does not wait or its start is due. For a scheduled booking, which has its place, the
    result is None instead of an assumption.
    """
    waits = booking.state in (State.QUEUED, State.SCHEDULED)
    if not waits or booking.planned_starts is None or booking.is_unplanned:
        return None
    found = start_range(booking.planned_starts, now, start_history(booking.tier_id))
    is_firm = booking.state == State.SCHEDULED
    return None if found is not None and is_firm and not found.of else found
