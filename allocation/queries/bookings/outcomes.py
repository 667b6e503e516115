"""The outcomes of the tenant's past bookings. Runs inside its `tenant_tx`."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import connection

from allocation.models import Booking
from allocation.rules.pause_risk import Outcomes, PauseRecord
from allocation.rules.start_range import StartRange, start_range
from allocation.rules.states import State

LATEST_ENDED = 2_000
LATEST_STARTED = 200
MOST_DELAY = timedelta(minutes=15)
_WAITS = (State.QUEUED, State.SCHEDULED, State.PAUSING, State.PAUSED)


def pause_record() -> PauseRecord:
    """The outcomes of the latest ended bookings, by kind."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tier, gpu_class, borrowed, quarter, ended, paused FROM portal_pause_outcomes(%s)",
            [LATEST_ENDED],
        )
        return PauseRecord(Outcomes(*row) for row in cursor.fetchall())


def start_history(tier: str) -> list[tuple[int, int]]:
    """(lead, lateness) in seconds of the latest planned starts in a tier."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT lead, late FROM portal_start_delays(%s, %s)", [tier, LATEST_STARTED])
        return list(cursor.fetchall())


def start_shown(
    booking: Booking, now: datetime, history: Sequence[tuple[int, int]] = ()
) -> StartRange | None:
    """The planned start of a waiting booking, and the latest start that is to be expected.

    The latest is what was announced to its owner. None if the booking does not wait, no start can
    be planned, or its start is due.
    """
    starts = booking.expected_start
    if booking.state not in _WAITS or starts is None or starts <= now:
        return None
    is_expected = booking.state != State.SCHEDULED and booking.has_expected_start
    found = start_range(starts, now, history, is_expected=is_expected)
    latest = booking.announced_until
    if latest is None or latest <= starts:
        return found
    # A sure start is late by the time that its GPUs need after the booking before.
    return replace(found, latest=latest) if is_expected or latest <= starts + MOST_DELAY else found


def booking_start_range(booking: Booking, now: datetime) -> StartRange | None:
    """The same with the number of past starts that the range is based on."""
    return start_shown(booking, now, start_history(booking.tier_id))
