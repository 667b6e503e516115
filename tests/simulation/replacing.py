"""The model's leases: see allocation/services/leases.py and replace.py, step by step."""

from allocation.rules.fencing import STARTED
from allocation.solver import Reason
from tests.simulation import healing, lifecycle
from tests.simulation.accounts import SHORTEST, run_seconds, time_left
from tests.simulation.rows import Booking, Row, Site, Tables

LOSABLE = (*STARTED, "pausing")
_SILENT = Reason("", "node_silent", "", "")


def beats_of_leased(tables: Tables) -> dict[str, int]:
    """See beats_of_leased."""
    nodes = {tables.node_of[row.place.gpu] for row in _held(tables)}
    return {name: tables.nodes[name].heartbeat_seq for name in sorted(nodes)}


def node_replace(tables: Tables, site: Site, name: str, seq: int, now: float) -> None:
    """See node_replace."""
    node = tables.nodes[name]
    if node.heartbeat_seq != seq:
        return
    held = {row.booking for row in _held(tables) if site.node_of[row.place.gpu] == name}
    node.cut_off = True
    for booking in sorted(held):
        if tables.bookings[booking].state in LOSABLE:
            _lost(tables, tables.bookings[booking], node.heartbeat_at or now, now)


def lease_ran_out(tables: Tables, row: Row, since: float, now: float) -> None:
    """See lease_ran_out."""
    booking = tables.bookings[row.booking]
    if booking.state in LOSABLE and row.state in STARTED:
        tables.nodes[tables.node_of[row.place.gpu]].cut_off = True
        _lost(tables, booking, min(now, since), now)


def _held(tables: Tables) -> list[Row]:
    """See HELD."""
    rows = (row for row in tables.rows.values() if row.leased and not row.left)
    return [row for row in rows if row.state in STARTED or _is_pausing(tables, row)]


def _is_pausing(tables: Tables, row: Row) -> bool:
    return row.state == "releasing" and tables.bookings[row.booking].state == "pausing"


def _lost(tables: Tables, booking: Booking, until: float, now: float) -> None:
    """See _lost."""
    if booking.state == "pausing":
        healing.pause_break(tables, booking, now)
    else:
        _replace(tables, booking, until, now)


def _replace(tables: Tables, booking: Booking, until: float, now: float) -> None:
    before = booking.used_seconds
    booking.used_seconds = before + run_seconds(booking, until)
    if time_left(booking, now)[0] < SHORTEST:
        booking.used_seconds = before
        return
    lifecycle.run_break_off(tables, booking, now)
    booking.state, booking.replaced = "queued", booking.replaced + 1
    booking.starts = booking.ends = booking.extension = None
    booking.places, booking.reasons = (), (_SILENT,)
