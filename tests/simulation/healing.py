"""The model's hardware that fails: see allocation/services/health.py and healing.py."""

from allocation import wire
from allocation.rules.fencing import STARTED
from allocation.solver import Place
from tests.simulation import lifecycle
from tests.simulation.rows import Booking, Row, Site, Tables

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


def hardware_clear(tables: Tables, site: Site, now: float) -> None:
    """Takes bookings off hardware that they can't stay or start on."""
    bookings = [tables.bookings[name] for name in sorted(tables.bookings)]
    for booking in bookings:
        rows = tables.of(booking, *STARTED)
        leaves = any(_must_leave(tables, site, row, now) for row in rows)
        if leaves and booking.state in STARTED:
            _run_break(tables, booking, now)
    for booking in bookings:
        rows = tables.of(booking, "planned")
        if booking.state == "scheduled" and any(_blocked(tables, site, r, now) for r in rows):
            _unplace(tables, booking)


def _run_break(tables: Tables, booking: Booking, now: float) -> None:
    booking.duration = _granted(booking)
    booking.places = _places(booking, tables.of(booking, *STARTED))
    lifecycle.run_break_off(tables, booking, now)
    booking.state, booking.lost_its_hardware, booking.extension = "queued", True, None


def _unplace(tables: Tables, booking: Booking) -> None:
    booking.duration = _granted(booking)
    booking.places = _places(booking, tables.of(booking, "planned"))
    lifecycle.supersede(tables, booking)
    booking.state = "queued"


def _must_leave(tables: Tables, site: Site, row: Row, now: float) -> bool:
    by = tables.gpus[site.uuids[row.place.gpu]].drain_by
    return by is not None and by <= now


def _blocked(tables: Tables, site: Site, row: Row, now: float) -> bool:
    return row.starts <= now + SOON and tables.gpus[site.uuids[row.place.gpu]].health != "ok"


def _granted(booking: Booking) -> int:
    begins = booking.starts if booking.wish.starts is None else booking.wish.starts
    if begins is None or booking.ends is None:
        raise LookupError(f"{booking.id} has a place and no time")
    return booking.ends - begins


def _places(booking: Booking, rows: list[Row]) -> tuple[Place, ...]:
    if booking.wish.starts is not None:
        return ()
    return tuple(sorted((r.place for r in rows), key=lambda place: (place.gpu, place.start)))


def _node(site: Site, row: Row) -> str:
    return site.node_of[row.place.gpu]
