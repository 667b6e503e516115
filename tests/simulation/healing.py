"""The model's hardware that fails: see allocation/services/health.py and healing.py."""

from allocation import wire
from allocation.rules.fencing import STARTED
from allocation.solver import Place
from tests.simulation import lifecycle
from tests.simulation.accounts import granted_seconds, run_kept_seconds
from tests.simulation.rows import LIVE, Booking, Row, Site, Tables

SOON = 3600


def gpus_lost(tables: Tables, uuids: set[str], now: float) -> None:
    """The agent can't find them."""
    for uuid in uuids:
        gpu = tables.gpus[uuid]
        if gpu.health != "lost":
            gpu.health, gpu.drain_by = "lost", now


def gone(tables: Tables, site: Site, node: str, report: wire.Report, now: float) -> set[str]:
    """See gone_apply: marks what is not there, and tells whose failure is their hardware's."""
    failed = {item.id for item in report.allocations if item.state == "failed"}
    if not failed:
        return set()
    rows = [r for r in tables.rows.values() if r.state in STARTED and _node(site, r) == node]
    answering = {gpu.uuid for gpu in report.gpus}
    for row in rows:
        uuid = site.uuids[row.place.gpu]
        if row.id in failed and uuid not in answering and uuid in (report.error or ""):
            gpus_lost(tables, {uuid}, now)
    return {row.id for row in rows if _must_leave(tables, site, row, now)}


def troubles(tables: Tables, report: wire.Report) -> None:
    """See troubles_apply: a GPU with programs of nobody takes no new work."""
    used = {item.gpu for item in report.foreign if not item.booked}
    for uuid in (item.uuid for item in report.gpus):
        gpu = tables.gpus[uuid]
        gpu.foreign = uuid in used
        if gpu.drain_by is None and gpu.health != "lost":
            gpu.health = "draining" if gpu.foreign else "ok"


def hardware_clear(tables: Tables, site: Site, now: float) -> None:
    """Takes bookings off hardware that they can't stay or start on."""
    bookings = [tables.bookings[name] for name in sorted(tables.bookings)]
    leaving = [booking for booking in bookings if _leaves(tables, site, booking, now)]
    for booking in leaving:
        _run_break(tables, booking, now)
    for booking in bookings:
        rows = tables.of(booking, "planned")
        placed = booking.state in ("scheduled", "paused")
        if placed and any(_blocked(tables, site, r, now) for r in rows):
            _unplace(tables, booking)


def _leaves(tables: Tables, site: Site, booking: Booking, now: float) -> bool:
    """See _leaving."""
    if booking.state not in (*STARTED, "pausing"):
        return False
    rows = tables.of(booking, *STARTED)
    if booking.state == "pausing":
        rows += [r for r in tables.of(booking, "releasing") if _is_stuck(tables, site, r)]
    return any(_must_leave(tables, site, row, now) for row in rows)


def _is_stuck(tables: Tables, site: Site, row: Row) -> bool:
    return not row.left and tables.gpus[site.uuids[row.place.gpu]].health == "lost"


def _run_break(tables: Tables, booking: Booking, now: float) -> None:
    if booking.state == "pausing":
        pause_break(tables, booking, now)
        return
    booking.duration = granted_seconds(booking)
    booking.used_seconds += run_kept_seconds(booking)
    booking.places = _places(booking, tables.of(booking, *STARTED))
    _break_off(tables, booking, now)
    booking.state, booking.lost_at, booking.extension = "queued", now, None


def pause_break(tables: Tables, booking: Booking, now: float) -> None:
    """See pause_break."""
    if not tables.here(booking):
        return
    ready = booking.ready_at
    _break_off(tables, booking, now)
    booking.ready_at, booking.lost_at = ready, now
    for row in tables.of(booking, *LIVE, "ended"):
        row.suspended = False
    lifecycle.run_complete(tables, booking, now)


def _break_off(tables: Tables, booking: Booking, now: float) -> None:
    lifecycle.run_break_off(tables, booking, now)
    for row in tables.of(booking, "releasing"):
        row.broken = True


def _unplace(tables: Tables, booking: Booking) -> None:
    booking.duration = granted_seconds(booking)
    booking.places = _places(booking, tables.of(booking, "planned"))
    tables.supersede(booking)
    if booking.state == "scheduled":
        booking.state = "queued"


def _must_leave(tables: Tables, site: Site, row: Row, now: float) -> bool:
    by = tables.gpus[site.uuids[row.place.gpu]].drain_by
    return by is not None and by <= now


def _blocked(tables: Tables, site: Site, row: Row, now: float) -> bool:
    return row.starts <= now + SOON and tables.gpus[site.uuids[row.place.gpu]].health != "ok"


def _places(booking: Booking, rows: list[Row]) -> tuple[Place, ...]:
    if booking.wish.starts is not None:
        return ()
    return tuple(sorted((r.place for r in rows), key=lambda place: (place.gpu, place.start)))


def _node(site: Site, row: Row) -> str:
    return site.node_of[row.place.gpu]
