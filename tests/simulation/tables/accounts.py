"""The model's seconds: what a run cost, and what is left. See services/costs.py and runs.py."""

from tests.simulation.tables.rows import Booking, Pause, Tables

SHORTEST = 60


def run_seconds(booking: Booking, until: float) -> int:
    """See run_seconds, of a run that no pause ends."""
    if booking.ready_at is None:
        return 0
    ends = min(until, booking.notified_at or until)
    if run_is_broken(booking):
        ends = min(ends, booking.saved_at or booking.ready_at)
    return max(0, int(ends - booking.ready_at))


def run_is_broken(booking: Booking) -> bool:
    """See run_is_broken."""
    ready, lost = booking.ready_at, booking.lost_at
    if ready is None or lost is None or booking.notified_at is None:
        return False
    return lost >= ready


def run_saved_seconds(booking: Booking) -> int:
    """See `allocation.services.record.costs.run_saved_seconds`."""
    return run_seconds(booking, booking.saved_at) if booking.saved_at else 0


def granted_seconds(booking: Booking) -> int:
    """See granted_seconds."""
    begins = booking.starts if booking.requested.starts is None else booking.requested.starts
    if begins is None or booking.ends is None:
        raise LookupError(f"{booking.id} has a place and no time")
    earlier = 0 if booking.requested.starts else booking.used_seconds
    return earlier + booking.ends - begins


def has_earlier_run(booking: Booking) -> bool:
    """See is_rest."""
    return booking.replaced > 0 or booking.used_seconds > 0


def time_remaining(booking: Booking, now: float) -> tuple[int, int | None]:
    """See time_left; nobody in a schedule has a deadline."""
    left = booking.duration - booking.used_seconds
    if booking.requested.starts is None:
        return left, None
    ends = booking.requested.starts + booking.duration
    return min(left, int(ends - now)), ends


def run_paused(tables: Tables, booking: Booking, now: float) -> None:
    """See run_paused."""
    pause = tables.pause_of(booking)
    if pause is None:
        raise LookupError(f"{booking.id} is pausing without a notice")
    _bill(tables, booking, pause)
    pause.emptied_at = now
    booking.state = "paused"
    booking.ready_at = booking.notified_at = booking.saved_at = None
    booking.used_seconds = 0
    left = pause.remaining_seconds or 0
    if booking.requested.starts is None:
        booking.duration = max(SHORTEST, left)
    else:
        left = min(left, int(pause.ends_before - now))
    if left < SHORTEST:
        none_left(tables, booking, "completed", now)


def none_left(tables: Tables, booking: Booking, outcome: str, now: float) -> None:
    """See run_none_left."""
    tables.supersede(booking)
    booking.state, booking.outcome, booking.places = "ended", outcome, ()
    pause_end(tables, booking, now)


def pause_end(tables: Tables, booking: Booking, now: float) -> None:
    """See pause_over."""
    pause = tables.pause_of(booking)
    if pause is not None:
        pause.ended_at = now


def _bill(tables: Tables, booking: Booking, pause: Pause) -> None:
    is_broken = run_is_broken(booking)
    used = max(0, int(pause.notified_at - pause.ready_at))
    saved = max(pause.ready_at, min(booking.saved_at or pause.ready_at, pause.notified_at))
    pause.lost_seconds = min(used, int(pause.notified_at - saved))
    cap = 0 if pause.own else max(0, booking.tier.credit_cap - booking.credited_seconds)
    pause.credit_seconds = pause.lost_seconds if is_broken else min(pause.lost_seconds, cap)
    if not is_broken:
        booking.credited_seconds += pause.credit_seconds
    out_at = pause.notified_at
    if not is_broken:
        rows = tables.of(booking, "releasing", "ended")
        last = max(rows, key=lambda row: (row.starts, row.ends))
        out_at = pause.notified_at if last.left and not pause.own else last.ends
    left = max(0, int(pause.ends_before - out_at))
    is_fixed = booking.requested.starts is not None
    pause.remaining_seconds = left if is_fixed else left + pause.credit_seconds
