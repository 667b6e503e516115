"""The model's starts, ends and proofs: see allocation/services/lifecycle.py, step by step."""

import math
from collections.abc import Iterable

from allocation.rules.fencing import STARTED
from tests.simulation.rows import LIVE, Booking, Row, Tables

TOO_EARLY = 60


def ends_due(tables: Tables, now: float) -> None:
    """Ends what is over by the clock or was given back."""
    for name in sorted(tables.bookings):
        booking = tables.bookings[name]
        over = booking.ends is not None and booking.ends <= now
        if (booking.state in ("scheduled", *STARTED) and over) or booking.state == "ending":
            end(tables, booking, now)


def starts_due(tables: Tables, now: float) -> None:
    """Starts what is due and whose places are proven empty."""
    due = [
        b
        for b in tables.bookings.values()
        if b.state == "scheduled" and (b.starts or 0) <= now < (b.ends or 0)
    ]
    for booking in sorted(due, key=lambda b: (b.starts or 0, b.id)):
        _start(tables, booking)


def ready(tables: Tables, row: Row, devices: tuple[str, ...], now: float) -> None:
    """See allocation_ready."""
    booking = tables.bookings[row.booking]
    if row.state != "starting":
        return
    row.state, row.devices = "active", devices
    if booking.state == "starting" and not tables.of(booking, "starting"):
        booking.state, booking.ready_at = "active", now


def empty(tables: Tables, row: Row, now: float) -> None:
    """See allocation_empty."""
    booking = tables.bookings[row.booking]
    if row.state in STARTED and (row.ends <= now or booking.state == "ending"):
        end(tables, booking, now)
    elif row.state in STARTED and row.ends > now + TOO_EARLY:
        failed(tables, row, now)
    if row.state != "releasing":
        return
    row.state, row.occupied = "ended", False
    bump(tables, [row])
    if booking.state == "ending" and all(each.left for each in tables.of(booking, *LIVE)):
        booking.state = "failed" if booking.outcome == "failed" else "ended"


def failed(tables: Tables, row: Row, now: float) -> None:
    """See allocation_failed."""
    booking = tables.bookings[row.booking]
    if row.state not in STARTED or booking.state not in STARTED:
        return
    booking.state, booking.outcome, booking.released_at = "ending", "failed", now
    _release(tables, booking)


def end(tables: Tables, booking: Booking, now: float) -> None:
    """Over by the clock, or given back: the nodes are told to clear it."""
    ends = now if booking.ends is None else booking.ends
    if booking.state == "scheduled" and ends <= now:
        supersede(tables, booking)
        booking.state, booking.outcome = "expired", "never_started"
        return
    if booking.state in STARTED and ends <= now:
        booking.state, booking.outcome = "ending", "completed"
        booking.released_at, booking.extension = ends, None
    if booking.state == "ending":
        _release(tables, booking)


def run_break_off(tables: Tables, booking: Booking, now: float) -> None:
    """Takes the devices back in the middle of a run that counts for nothing."""
    booking.released_at = now
    _release(tables, booking)
    for row in tables.of(booking, "releasing"):
        row.left = True
    booking.released_at = booking.ready_at = None


def supersede(tables: Tables, booking: Booking) -> None:
    """Its plan is void."""
    for row in tables.of(booking, "planned"):
        row.state = "superseded"


def bump(tables: Tables, rows: Iterable[Row]) -> None:
    """The assignment of their nodes has changed."""
    for node in {tables.node_of[row.place.gpu] for row in rows}:
        tables.nodes[node].generation += 1


def _start(tables: Tables, booking: Booking) -> None:
    rows = tables.of(booking, "planned")
    on_hardware = [row for row in tables.rows.values() if row.occupied]
    if any(tables.proof_needed and row.collides(there) for row in rows for there in on_hardware):
        return
    for row in rows:
        row.occupied, row.state = True, "starting"
    bump(tables, rows)
    booking.state = "starting"


def _release(tables: Tables, booking: Booking) -> None:
    rows = tables.of(booking, *STARTED)
    if not rows:
        return
    starts, upper = rows[0].starts, rows[0].ends
    released = upper if booking.released_at is None else booking.released_at
    ends = min(upper, max(math.ceil(released), starts + 1))
    for row in rows:
        row.state, row.ends = "releasing", ends
    bump(tables, rows)
