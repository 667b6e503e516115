"""The model's hardware that fails: see allocation/services/nodes/health.py and healing.py."""

import wire
from allocation.rules.nodes.fencing import STARTED
from allocation.rules.nodes.health import Action, finding_of
from solver import Place
from tests.simulation.model import lifecycle
from tests.simulation.model.maintenance import is_away, planned
from tests.simulation.tables.accounts import granted_seconds, run_saved_seconds
from tests.simulation.tables.rows import LIVE, Booking, GpuRow, MaintenanceRow, Row, Site, Tables

SOON = 3600
AHEAD = 300


def gpus_lost(tables: Tables, uuids: set[str], now: float) -> None:
    """The agent can't find them."""
    for uuid in uuids:
        gpu = tables.gpus[uuid]
        if gpu.health != "lost":
            gpu.health, gpu.why, gpu.drain_by = "lost", "lost", now


def gone(tables: Tables, site: Site, node: str, report: wire.Report, now: float) -> set[str]:
    """See gone_apply: marks missing GPUs, and returns the bookings that fail because of
    hardware."""
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


def errors(tables: Tables, site: Site, node: str, report: wire.Report, now: float) -> list[tuple[str, Row]]:
    """See errors_apply: marks broken hardware, and returns the broken runs by booking."""
    hurt: dict[str, Row] = {}
    here = {site.uuids[gpu.id] for gpu in site.gpus if gpu.node == node}
    for error in report.errors:
        at = min(max(error.at, 0), int(now) + AHEAD)
        key = (error.gpu, error.kind, error.code, at, error.instance or "")
        if error.gpu not in here or key in tables.errors:
            continue
        tables.errors.add(key)
        action = finding_of(error.kind, error.code, error.recovery).action
        if action is Action.INSTANCE:
            hurt |= {row.id: row for row in _hurt(tables, site, error)}
        else:
            _mark(tables, here if action is Action.NODE else {error.gpu}, action, now)
    return sorted(((row.booking, row) for row in hurt.values()), key=lambda each: each[0])


def _hurt(tables: Tables, site: Site, error: wire.HardwareError) -> list[Row]:
    on = [r for r in tables.rows.values() if site.uuids[r.place.gpu] == error.gpu]
    runs = [row for row in on if row.state in STARTED]
    return [row for row in runs if error.instance is None or error.instance in row.devices]


def _mark(tables: Tables, uuids: set[str], action: Action, now: float) -> None:
    if action is Action.NOTE:
        return
    for gpu in (tables.gpus[uuid] for uuid in uuids):
        if action is Action.FINISH and gpu.health != "ok":
            continue
        is_lost = gpu.health == "lost" or action is Action.LOST
        gpu.health, gpu.why = "lost" if is_lost else "draining", "error"
        gpu.needs_operator = True
        if action is not Action.FINISH:
            gpu.drain_by = now if gpu.drain_by is None else min(gpu.drain_by, now)


def returned(tables: Tables, uuid: str) -> None:
    """See gpu_return."""
    gpu = tables.gpus[uuid]
    if gpu.health != "ok":
        gpu.health, gpu.why, gpu.drain_by, gpu.needs_operator = "ok", "", None, False


def found(gpu: GpuRow) -> None:
    """See gpu_found."""
    if gpu.health == "lost" and not gpu.needs_operator:
        gpu.health, gpu.why, gpu.drain_by = "ok", "", None


def troubles(tables: Tables, report: wire.Report) -> None:
    """See troubles_apply: a GPU with programs of nobody takes no new work, nor does one whose
    driver hangs."""
    used = {item.gpu for item in report.foreign if not item.booked}
    answering = {item.uuid for item in report.gpus}
    for uuid in answering:
        gpu = tables.gpus[uuid]
        gpu.foreign = uuid in used
        if gpu.drain_by is None and not gpu.needs_operator:
            _marked(gpu, "foreign", is_so=gpu.foreign)
    for uuid in answering | set(report.hanging):
        gpu = tables.gpus[uuid]
        gpu.hanging, was = gpu.hanging or uuid in report.hanging, gpu.hanging
        if uuid in report.hanging:
            _marked(gpu, "hangs", is_so=True)
        if was and uuid in answering:
            gpu.hanging = False
            _marked(gpu, "hangs", is_so=False)


def _marked(gpu: GpuRow, why: str, *, is_so: bool) -> None:
    if is_so and gpu.health == "ok":
        gpu.health, gpu.why = "draining", why
    elif not is_so and (gpu.health, gpu.why) == ("draining", why):
        gpu.health, gpu.why = "ok", ""


def hardware_vacate(tables: Tables, site: Site, now: float, *, is_frozen: bool = False) -> None:
    """Takes bookings off hardware that they can't stay or start on; while decisions are frozen only
    what runs on hardware that failed."""
    bookings = [tables.bookings[name] for name in sorted(tables.bookings)]
    maintenance = [] if is_frozen else planned(tables, now)
    leaving = [booking for booking in bookings if _leaves(tables, site, booking, now, maintenance)]
    for booking in leaving:
        run_interrupt(tables, booking, now)
    if is_frozen:
        return
    for booking in bookings:
        rows = tables.of(booking, "planned")
        placed = booking.state in ("scheduled", "paused")
        if placed and any(_blocked(tables, site, r, now) for r in rows):
            _unplace(tables, booking)


def _leaves(
    tables: Tables, site: Site, booking: Booking, now: float, maintenance: list[MaintenanceRow]
) -> bool:
    """See _leaving."""
    if booking.state not in (*STARTED, "pausing"):
        return False
    rows = tables.of(booking, *STARTED)
    if booking.state == "pausing":
        rows += [r for r in tables.of(booking, "releasing") if _is_stuck(tables, site, r)]
    due = [each for each in maintenance if each.drain_by <= now]
    return any(_must_leave(tables, site, r, now) or is_away(r, site, due) for r in rows)


def _is_stuck(tables: Tables, site: Site, row: Row) -> bool:
    return not row.left and tables.gpus[site.uuids[row.place.gpu]].health == "lost"


def run_interrupt(tables: Tables, booking: Booking, now: float) -> None:
    """See run_break."""
    if booking.state == "pausing":
        pausing_run_interrupt(tables, booking, now, is_hardware=True)
    if booking.state not in STARTED:
        return
    booking.duration = granted_seconds(booking)
    booking.used_seconds += run_saved_seconds(booking)
    booking.places = _places(booking, tables.of(booking, *STARTED))
    _break_off(tables, booking, now)
    booking.state, booking.lost_at = "queued", now
    booking.strength = booking.extension = None


def pausing_run_interrupt(tables: Tables, booking: Booking, now: float, *, is_hardware: bool) -> bool:
    """See pause_break."""
    if not tables.here(booking):
        return False
    ready = booking.ready_at
    _break_off(tables, booking, now)
    booking.ready_at = ready
    if is_hardware:
        booking.lost_at = now
    for row in tables.of(booking, *LIVE, "ended"):
        row.suspended = False
    lifecycle.run_complete(tables, booking, now)
    return True


def _break_off(tables: Tables, booking: Booking, now: float) -> None:
    lifecycle.run_abandon(tables, booking, now)
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
    gpu, node = tables.gpus[site.uuids[row.place.gpu]], tables.nodes[_node(site, row)]
    if row.starts <= now + SOON and (gpu.health != "ok" or node.long_unreachable):
        return True
    meets = [u for u in planned(tables, now) if u.starts < row.ends and row.starts < u.ends]
    return is_away(row, site, meets)


def _places(booking: Booking, rows: list[Row]) -> tuple[Place, ...]:
    if booking.requested.starts is not None:
        return ()
    return tuple(sorted((r.place for r in rows), key=lambda place: (place.gpu, place.start)))


def _node(site: Site, row: Row) -> str:
    return site.node_of[row.place.gpu]
