"""Where the model's bookings that were suspended, or would be, have their memory: see
services/snapshot_homes.py."""

import dataclasses
from collections.abc import Sequence

import wire
from solver import Place, Request
from tests.simulation.tables.rows import Booking, Pause, Row, Tables

OriginalGpus = tuple[tuple[Place, ...], float, float | None]
"""Places; what was done from then until then, or until now, is lost anywhere else."""


def with_original_gpus(request: Request, home: OriginalGpus | None, now: float) -> Request:
    """See at_home."""
    if home is None:
        return request
    places, saved, until = home
    lost = int((now if until is None else until) - saved)
    return dataclasses.replace(request, home=places, home_wait=max(0, lost))


def way_of(tables: Tables, booking: Booking, rows: Sequence[Row]) -> wire.PauseMethod:
    """See pausing._way: agents suspend one whole GPU, by a driver that can."""
    if booking.tier.method != "suspend":
        return booking.tier.method
    place = rows[0].place
    is_whole = len(rows) == 1 and place.profile is None and place.share is None
    major = int(tables.drivers[tables.node_of[place.gpu]].partition(".")[0])
    return "suspend" if is_whole and major >= 550 else "stop"


def home_running(tables: Tables, booking: Booking) -> OriginalGpus | None:
    """See homes_running."""
    if booking.tier.method != "suspend":
        return None
    saved = booking.saved_at or booking.ready_at or booking.submitted
    return _home(tables, tables.of(booking, "active"), saved, None)


def home_paused(tables: Tables, booking: Booking, pause: Pause) -> OriginalGpus | None:
    """See homes_paused."""
    if pause.method != "suspend":
        return None
    rows = tables.of(booking, "active", "releasing", "ended")
    there = [r for r in rows if not r.left and (r.state != "ended" or r.suspended)]
    if pause.emptied_at is None:
        return _home(tables, there, booking.saved_at or pause.ready_at, pause.notified_at)
    saved = pause.notified_at - pause.lost_seconds
    return _home(tables, there, saved, pause.notified_at)


def _home(tables: Tables, rows: Sequence[Row], saved: float, until: float | None) -> OriginalGpus | None:
    """Of the last run, if agents can suspend it."""
    begun = max((row.starts for row in rows), default=0)
    last = sorted((row for row in rows if row.starts == begun), key=lambda row: row.place.gpu)
    if not last or way_of(tables, tables.bookings[last[0].booking], last) != "suspend":
        return None
    return tuple(row.place for row in last), saved, until
