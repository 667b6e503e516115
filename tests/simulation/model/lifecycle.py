"""The model's starts, ends and proofs: see allocation/services/runs/end.py, step by step."""

import math

from allocation.rules.nodes.fencing import STARTED
from tests.simulation.tables.accounts import none_left, pause_end, run_paused
from tests.simulation.tables.rows import Booking, Pause, Row, Tables, shares_fit

CLOCK_TOLERANCE = 60


def ends_due(tables: Tables, now: float) -> None:
    """Ends what is over by the clock, was given back or is paused."""
    bookings = [tables.bookings[name] for name in sorted(tables.bookings)]
    for booking in [each for each in bookings if _is_over(tables, each, now)]:
        end(tables, booking, now)


def starts_due(tables: Tables, now: float) -> None:
    """Starts what is due and whose places are proven empty."""
    due = [
        b
        for b in tables.bookings.values()
        if (b.state == "scheduled" or is_resuming(tables, b))
        and b.starts is not None
        and b.starts <= now < (b.ends or 0)
        and not any(tables.is_silent(row) for row in tables.of(b, "planned"))
    ]
    for booking in sorted(due, key=lambda b: (b.starts or 0, b.id)):
        _start(tables, booking)


def is_resuming(tables: Tables, booking: Booking) -> bool:
    """Paused, with a place to resume."""
    return booking.state == "paused" and bool(tables.of(booking, "planned"))


def is_out(pause: Pause, now: float) -> bool:
    """See pauses_out."""
    grace_over = pause.deadline <= now or pause.acknowledged_at is not None
    return pause.is_open and grace_over and pause.emptied_at is None


def ready(tables: Tables, row: Row, devices: tuple[str, ...], now: float) -> None:
    """See allocation_ready."""
    booking = tables.bookings[row.booking]
    if row.state != "starting":
        return
    row.state, row.devices = "active", devices
    if booking.state != "starting" or tables.of(booking, "starting"):
        return
    booking.state, booking.ready_at, booking.saved_at = "active", now, None
    pause = tables.pause_of(booking)
    if pause is not None and pause.emptied_at is not None:
        pause.resumed_at = now


def saved(tables: Tables, row: Row, at: float, now: float) -> None:
    """See allocation_saved."""
    booking, at = tables.bookings[row.booking], min(at, now)
    if row.state in STARTED:
        row.saved_at = at
    times = [each.saved_at for each in tables.of(booking, *STARTED)]
    known = [each for each in times if each is not None]
    if not times or len(known) < len(times) or booking.state not in ("active", "pausing"):
        return
    everywhere = min(known)
    if booking.saved_at is None or booking.saved_at < everywhere:
        booking.saved_at = everywhere
    if acknowledged(tables, booking, everywhere, now):
        end(tables, booking, now)


def acknowledged(tables: Tables, booking: Booking, at: float, now: float) -> bool:
    """See pause_acknowledged."""
    pause = tables.pause_of(booking) if booking.state == "pausing" else None
    if pause is None or pause.acknowledged_at is not None or at < int(pause.notified_at):
        return False
    pause.acknowledged_at, pause.more_asked_at = now, None
    return True


def empty(tables: Tables, row: Row, now: float) -> None:
    """See allocation_empty."""
    booking = tables.bookings[row.booking]
    if row.state in STARTED and (row.ends <= now or booking.state == "ending"):
        end(tables, booking, now)
    elif booking.state == "starting" and row.ends > now + CLOCK_TOLERANCE:
        failed(tables, row, now)
    if row.state != "releasing":
        return
    row.state, row.occupied = "ended", False
    tables.bump([row])
    if booking.state in ("ending", "pausing"):
        run_complete(tables, booking, now)


def failed(tables: Tables, row: Row, now: float) -> None:
    """See allocation_failed."""
    booking = tables.bookings[row.booking]
    if row.state not in STARTED or booking.state != "starting":
        return
    booking.state, booking.outcome, booking.released_at = "ending", "failed", now
    booking.extension = None
    _release(tables, booking)


def end(tables: Tables, booking: Booking, now: float) -> bool:
    """See _end."""
    ends = now if booking.ends is None else booking.ends
    if booking.state == "paused":
        return _not_resumed(tables, booking, now)
    if booking.state == "pausing":
        pause = tables.pause_of(booking)
        if pause is None or not is_out(pause, now):
            return False
        return _release(tables, booking) or run_complete(tables, booking, now)
    if booking.state == "scheduled" and ends <= now:
        tables.supersede(booking)
        booking.state, booking.outcome, booking.extension = "expired", "never_started", None
        pause_end(tables, booking, now)
        return True
    if booking.state in STARTED and ends <= now:
        booking.state, booking.outcome = "ending", "completed"
        booking.released_at, booking.extension = ends, None
    if booking.state != "ending":
        return False
    return _release(tables, booking) or run_complete(tables, booking, now)


def run_complete(tables: Tables, booking: Booking, now: float) -> bool:
    """See run_complete."""
    if tables.here(booking):
        return False
    if booking.state == "ending":
        pause_end(tables, booking, now)
        booking.state = "failed" if booking.outcome == "failed" else "ended"
        return True
    pause = tables.pause_of(booking)
    if pause is None or not is_out(pause, now):
        return False
    run_paused(tables, booking, now)
    return True


def run_abandon(tables: Tables, booking: Booking, now: float) -> None:
    """Takes the devices back in the middle of a run that the caller has counted."""
    booking.released_at = now
    _release(tables, booking)
    for row in tables.of(booking, "releasing"):
        row.left = True
    booking.released_at = booking.ready_at = None


def _is_over(tables: Tables, booking: Booking, now: float) -> bool:
    """See _over, and what is scheduled."""
    over = booking.ends is not None and booking.ends <= now
    match booking.state:
        case "scheduled" | "starting" | "active":
            return over
        case "ending":
            return _goes(tables, booking)
        case "pausing":
            pause = tables.pause_of(booking)
            return pause is not None and is_out(pause, now) and _goes(tables, booking)
        case "paused":
            return (over and is_resuming(tables, booking)) or _is_too_late(tables, booking, now)
    return False


def _goes(tables: Tables, booking: Booking) -> bool:
    """Started, or without a device."""
    return bool(tables.of(booking, *STARTED)) or not tables.here(booking)


def _is_too_late(tables: Tables, booking: Booking, now: float) -> bool:
    pause = tables.pause_of(booking)
    if pause is None or pause.emptied_at is None or booking.requested.starts is None:
        return False
    return pause.ends_before <= now


def _not_resumed(tables: Tables, booking: Booking, now: float) -> bool:
    if _is_too_late(tables, booking, now):
        none_left(tables, booking, "not_resumed", now)
        return True
    if booking.ends is None or booking.ends > now or not tables.supersede(booking):
        return False
    booking.starts = booking.ends = booking.strength = None
    return True


def _start(tables: Tables, booking: Booking) -> None:
    rows = tables.of(booking, "planned")
    there = [row for row in tables.rows.values() if row.occupied]
    if tables.proof_needed and not all(_is_free(row, there) for row in rows):
        return
    for row in rows:
        row.occupied, row.state, row.leased = True, "starting", booking.tier.replace
    tables.bump(rows)
    if booking.pause_count:
        # Nodes with suspended programs of it need a new document.
        mine = (row for row in tables.rows.values() if row.booking == booking.id)
        tables.bump(row for row in mine if row.suspended)
    booking.state = "starting"


def _is_free(row: Row, there: list[Row]) -> bool:
    return not any(row.collides(each) for each in there) and shares_fit(row, there)


def _release(tables: Tables, booking: Booking) -> bool:
    rows = tables.of(booking, *STARTED)
    if not rows:
        return False
    starts, upper = rows[0].starts, rows[0].ends
    pause = tables.pause_of(booking) if booking.state == "pausing" else None
    at = pause.acknowledged_at if pause else booking.released_at
    ends = min(upper, max(math.ceil(upper if at is None else at), starts + 1))
    for row in rows:
        row.state, row.ends = "releasing", ends
    tables.bump(rows)
    return True
