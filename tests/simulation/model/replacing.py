"""The model's leases: see allocation/services/nodes/leases.py and replace.py, step by step."""

from allocation.rules.nodes.fencing import STARTED
from allocation.rules.nodes.leases import LEASE_EXPIRY_SECONDS
from solver import Reason
from tests.simulation.model import healing, lifecycle
from tests.simulation.tables.accounts import SHORTEST, granted_seconds, run_seconds, time_remaining
from tests.simulation.tables.rows import Booking, Row, Site, Tables

SILENCE = LEASE_EXPIRY_SECONDS
MOST, WITHIN = 3, 86_400
REQUEUEABLE = (*STARTED, "pausing")
_SILENT = Reason("", "node_silent", "")
_CONFLICT = Reason("", "node_conflict", "")


def leased_heartbeats(tables: Tables) -> dict[str, int]:
    """See beats_of_leased."""
    nodes = {tables.node_of[row.place.gpu] for row in _held(tables)}
    return {name: tables.nodes[name].heartbeat_seq for name in sorted(nodes)}


def node_bookings_requeue(tables: Tables, site: Site, name: str, seq: int, now: float) -> None:
    """See node_replace."""
    node = tables.nodes[name]
    if node.heartbeat_seq != seq:
        return
    held = {row.booking for row in _held(tables) if site.node_of[row.place.gpu] == name}
    node.partitioned = True
    for booking in sorted(held):
        if tables.bookings[booking].state in REQUEUEABLE:
            _lost(tables, tables.bookings[booking], node.heartbeat_at or now, now)


def lease_expired(tables: Tables, site: Site, row: Row, since: float, now: float) -> None:
    """See lease_ran_out."""
    booking = tables.bookings[row.booking]
    if booking.state in REQUEUEABLE and row.state in STARTED:
        node = tables.nodes[tables.node_of[row.place.gpu]]
        node.partitioned = True
        heard = (node.heartbeat_at or since) - SILENCE
        if since < heard and booking.ready_at is not None and booking.ready_at < heard:
            conflict_note(tables, site, row, now)
        _lost(tables, booking, min(now, max(since, heard)), now)


def conflict(tables: Tables, site: Site, row: Row, now: float) -> bool:
    """See run_conflict."""
    booking = tables.bookings[row.booking]
    runs = booking.state in ("active", "pausing") and row.state in STARTED
    if not runs or row.ends <= now + lifecycle.CLOCK_TOLERANCE:
        return False
    if booking.state == "pausing":
        is_change = healing.pausing_run_interrupt(tables, booking, now, is_hardware=False)
    else:
        is_change = _replace(tables, booking, now, now, _CONFLICT)
    if is_change:
        conflict_note(tables, site, row, now)
    return is_change


def conflict_note(tables: Tables, site: Site, row: Row, now: float) -> None:
    """See conflict_note."""
    times = tables.conflicts.setdefault(row.place.gpu, [])
    times.append(now)
    gpu = tables.gpus[site.uuids[row.place.gpu]]
    if sum(at > now - WITHIN for at in times) >= MOST and gpu.health == "ok":
        gpu.health, gpu.why, gpu.needs_operator = "draining", "conflict", True


def _held(tables: Tables) -> list[Row]:
    """See HELD."""
    rows = (row for row in tables.rows.values() if row.leased and not row.left)
    return [row for row in rows if row.state in STARTED or _is_pausing(tables, row)]


def _is_pausing(tables: Tables, row: Row) -> bool:
    return row.state == "releasing" and tables.bookings[row.booking].state == "pausing"


def _lost(tables: Tables, booking: Booking, until: float, now: float) -> None:
    """See _lost."""
    if booking.state == "pausing":
        healing.pausing_run_interrupt(tables, booking, now, is_hardware=False)
    else:
        _replace(tables, booking, until, now, _SILENT)


def _replace(tables: Tables, booking: Booking, until: float, now: float, reason: Reason) -> bool:
    before, length = booking.used_seconds, booking.duration
    booking.duration = granted_seconds(booking)
    booking.used_seconds = before + run_seconds(booking, until)
    if time_remaining(booking, now)[0] < SHORTEST:
        booking.used_seconds, booking.duration = before, length
        return False
    lifecycle.run_abandon(tables, booking, now)
    booking.state, booking.replaced = "queued", booking.replaced + 1
    booking.starts = booking.ends = booking.strength = booking.extension = None
    booking.places, booking.reasons = (), (reason,)
    return True
