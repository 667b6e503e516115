"""The model's pauses: see services/plans/pauses.py, step by step."""

import dataclasses
from collections.abc import Callable

from allocation.rules.nodes.fencing import STARTED
from solver import Pause as SolverPause
from tests.simulation.model import lifecycle
from tests.simulation.tables.accounts import granted_seconds
from tests.simulation.tables.calendar import is_excluded
from tests.simulation.tables.rows import LIVE, OVER, Booking, Pause, Row, Tables
from tests.simulation.tables.suspended_homes import way_of

SOON = 5
NOTIFY_MARGIN = 15
PLANNED_FOR = ("scheduled", "queued", "paused")


def pause_begin(tables: Tables, solver_pause: SolverPause, new_id: Callable[[], str], now: float) -> None:
    """See pause_begin."""
    booking, beneficiary = (
        tables.bookings[solver_pause.booking],
        tables.bookings[solver_pause.beneficiary],
    )
    rows = tables.of(booking, *STARTED)
    upper = rows[0].ends
    for row in rows:
        row.ends = solver_pause.at
    tables.bump(rows)
    pause = Pause(
        id=new_id(),
        booking=booking.id,
        beneficiary=beneficiary.id,
        number=sum(p.booking == booking.id for p in tables.pauses.values()) + 1,
        may_wait=beneficiary.requested.starts is None,
        own=tables.is_own(booking, beneficiary),
        ready_at=booking.ready_at or now,
        notified_at=int(now),
        deadline=solver_pause.at,
        ends_before=upper,
        rule=solver_pause.reasons[0].rule if solver_pause.reasons else "R7",
        method=way_of(tables, booking, rows),
    )
    tables.pauses[pause.id] = pause
    booking.state, booking.notified_at = "pausing", pause.notified_at
    booking.pause_count, booking.extension = booking.pause_count + 1, None
    booking.starts = booking.ends = booking.strength = None
    booking.places, booking.reasons = (), ()


def is_withdrawable(tables: Tables, pause: Pause, now: float) -> bool:
    """See pauses_withdrawable."""
    booking = tables.bookings[pause.booking]
    rows = tables.of(booking, *LIVE)
    going = any(r.state == "releasing" or r.left or tables.is_silent(r) for r in rows)
    counts = pause.is_open and booking.state == "pausing" and not pause.acknowledged_at
    is_early = pause.emptied_at is None and pause.deadline > now + NOTIFY_MARGIN
    return counts and is_early and not going


def is_unneeded(tables: Tables, pause: Pause, now: float) -> bool:
    """See pauses_unneeded."""
    other = tables.bookings[pause.beneficiary]
    sooner = any(row.starts < pause.deadline for row in tables.here(other))
    over = other.state in (*OVER, "ending")
    return (over or sooner) and is_withdrawable(tables, pause, now)


def pause_withdraw(tables: Tables, booking: Booking, now: float) -> bool:
    """See pause_withdraw."""
    pause = tables.pause_of(booking)
    if pause is None or not is_withdrawable(tables, pause, now):
        return False
    rows = tables.of(booking, *STARTED)
    for row in rows:
        row.ends = pause.ends_before
    tables.bump(rows)
    pause.ended_at, pause.withdrawn, pause.more_asked_at = now, True, None
    booking.state, booking.notified_at = "active", None
    booking.pause_count -= 1
    booking.starts, booking.ends = rows[0].starts, pause.ends_before
    booking.places, booking.reasons = (), ()
    return True


def pauses_due(tables: Tables, now: float) -> None:
    """See pauses_due."""
    pauses = [tables.pauses[name] for name in sorted(tables.pauses)]
    requested = [p for p in pauses if p.is_open and p.more_asked_at and not p.acknowledged_at]
    for pause in requested:
        _more_time(tables, pause, now)
    for pause in pauses:
        beneficiary = tables.bookings[pause.beneficiary]
        unhanded = not pause.handed and pause.emptied_at is not None
        if unhanded and beneficiary.state in PLANNED_FOR:
            _hand_over(tables, beneficiary, now)


def saved(tables: Tables, booking: Booking, now: float) -> None:
    """See booking_saved."""
    if booking.state in ("active", "pausing"):
        booking.saved_at = now
        lifecycle.acknowledged(tables, booking, now, now)


def more_time_request(tables: Tables, booking: Booking, now: float) -> None:
    """See more_time_ask."""
    pause = tables.pause_of(booking) if booking.state == "pausing" else None
    if pause is None or pause.acknowledged_at or pause.deadline <= now or pause.more_asked_at:
        return
    if pause.more_times_used < booking.tier.more_times and pause.may_wait:
        pause.more_asked_at = now


def _hand_over(tables: Tables, beneficiary: Booking, now: float) -> None:
    mine = [p for p in tables.pauses.values() if p.beneficiary == beneficiary.id]
    if any(p.is_open and p.emptied_at is None for p in mine):
        return
    for pause in mine:
        pause.handed = True
    starts = beneficiary.starts
    is_early = starts is not None and starts > now + SOON and beneficiary.requested.starts is None
    if is_early and tables.of(beneficiary, "planned"):
        _plan_again(tables, beneficiary, 0)


def _more_time(tables: Tables, pause: Pause, now: float) -> None:
    booking = tables.bookings[pause.booking]
    if booking.state != "pausing":
        return
    until = min(pause.deadline + booking.tier.more_time, pause.ends_before)
    pause.more_asked_at = None
    if _put_off(tables, pause, until, now):
        pause.deadline, pause.more_times_used = until, pause.more_times_used + 1


def _put_off(tables: Tables, pause: Pause, until: int, now: float) -> bool:
    if pause.deadline <= now or until <= pause.deadline:
        return False
    beneficiary = tables.bookings[pause.beneficiary]
    waits = beneficiary.state in PLANNED_FOR
    rows = tables.of(tables.bookings[pause.booking], *STARTED)
    if (waits and beneficiary.requested.starts is not None) or not rows:
        return False
    moved = {row.id for row in tables.of(beneficiary, "planned")} if waits else set()
    others = [r for r in tables.rows.values() if r.state in LIVE and r.id not in moved]
    longer = [dataclasses.replace(row, ends=until) for row in rows]
    if any(_is_taken(row, others) for row in longer):
        return False
    if waits:
        _plan_again(tables, beneficiary, until - pause.deadline)
    for row in rows:
        row.ends = until
    tables.bump(rows)
    return True


def _is_taken(row: Row, others: list[Row]) -> bool:
    return is_excluded(row, [each for each in others if each.booking != row.booking])


def _plan_again(tables: Tables, booking: Booking, later: int) -> None:
    rows = tables.of(booking, "planned")
    if rows:
        booking.places = tuple(row.place for row in rows)
        tables.supersede(booking)
        booking.duration = granted_seconds(booking)
    if booking.state == "scheduled":
        booking.state = "queued"
    if booking.starts and booking.ends:
        booking.starts += later
        booking.ends += later
