"""What nodes say, as the model takes it: see services/reports.py and fleet.py."""

from datetime import UTC, datetime

import wire
from allocation.rules.nodes.fencing import (
    STARTED,
    PortalState,
    follows_newer,
    is_ahead,
    is_change,
    is_proof,
    is_stale,
)
from allocation.rules.nodes.leases import TTL_SECONDS, lease_seconds
from allocation.rules.nodes.plausibility import clock_is_wrong
from tests.simulation.model import healing, lifecycle, replacing
from tests.simulation.tables.rows import NodeRow, Row, Site, Tables


def message_of(site: Site, name: str, envelope: wire.Envelope) -> wire.FromAgent | None:
    """None for what this node has not signed."""
    try:
        return wire.open_report(envelope, {site.key_version: site.keys[name]})
    except wire.WireError:
        return None


def message_apply(tables: Tables, site: Site, name: str, message: wire.FromAgent, now: float) -> str:
    """What became of it: applied or stale."""
    match message:
        case wire.Report():
            return _report(tables, site, name, message, now)
        case wire.Heartbeat():
            return _heartbeat(tables, name, message, now)
        case wire.Telemetry():
            return _numbered(tables, name, "telemetry_seq", message.seq)
        case wire.Inventory():
            said = _numbered(tables, name, "inventory_seq", message.seq)
            if said == "applied":
                inventory_apply(tables, site, name, message, now)
            return said
        case wire.Examination() | wire.Notebooks():
            raise AssertionError("simulated agents examine no node and run no notebook")


def inventory_apply(tables: Tables, site: Site, name: str, message: wire.Inventory, now: float) -> None:
    """See inventory_apply."""
    gpus = {site.uuids[g.id]: tables.gpus[site.uuids[g.id]] for g in site.gpus if g.node == name}
    found = {item.uuid: item for item in message.gpus}
    modes = {uuid: gpu.mode for uuid, gpu in gpus.items()}
    for uuid, gpu in gpus.items():
        if uuid in found:
            gpu.mode = found[uuid].mode
            healing.found(gpu)
    if modes != {uuid: gpu.mode for uuid, gpu in gpus.items()}:
        tables.nodes[name].generation += 1
    healing.gpus_lost(tables, gpus.keys() - found.keys(), now)


def _numbered(tables: Tables, name: str, field: str, seq: int) -> str:
    node = tables.nodes[name]
    if seq <= getattr(node, field):
        return "stale"
    setattr(node, field, seq)
    return "applied"


def _heartbeat(tables: Tables, name: str, message: wire.Heartbeat, now: float) -> str:
    node = tables.nodes[name]
    skew = message.sent_at - int(now)
    wrong = clock_is_wrong(skew=skew, before=node.skew, was_wrong=node.clock_wrong)
    said = _numbered(tables, name, "heartbeat_seq", message.seq)
    if said == "applied":
        node.skew, node.clock_wrong, node.heartbeat_at = skew, wrong, now
        _lease_note(tables, node, message, now)
        if follows_newer(message, tables.epoch, node.generation):
            node.ahead = message.epoch
    return said


def lease_length(tables: Tables, now: float) -> int:
    """See lease_seconds."""
    until = None if tables.outage_until is None else _instant(tables.outage_until)
    return lease_seconds(until, _instant(now))


def _lease_note(tables: Tables, node: NodeRow, message: wire.Heartbeat, now: float) -> None:
    """See lease_note."""
    seconds = lease_length(tables, now)
    node.reported_lease_seconds = message.lease
    if seconds > TTL_SECONDS:
        node.outage_lease_seconds = max(node.outage_lease_seconds, seconds)
        node.outage_lease_seq = message.seq


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _report(tables: Tables, site: Site, name: str, report: wire.Report, now: float) -> str:
    node = tables.nodes[name]
    known = PortalState(tables.epoch, node.generation, node.seq)
    if is_stale(report, known):
        node.ahead = report.epoch if is_ahead(report, known) else node.ahead
        return "stale"
    hurt = healing.errors(tables, site, name, report, now)
    own = _own(tables, site, name, report, now)
    for booking, _ in hurt:
        healing.run_interrupt(tables, tables.bookings[booking], now)
    healing.troubles(tables, report)
    for item, row in own:
        if item.state == "ready":
            lifecycle.ready(tables, row, item.devices, now)
    for item, row in own:
        _word(tables, site, (item, row), now, is_proven=is_proof(report, known))
    changed = [gpu for gpu in report.gpus if tables.gpus[gpu.uuid].mode != gpu.mode]
    for gpu in changed:
        tables.gpus[gpu.uuid].mode = gpu.mode
    node.generation += bool(changed)
    ran_out = any(item.error == wire.LEASE_EXPIRED for item in report.allocations)
    if is_proof(report, known) and not ran_out:
        node.partitioned = False
    node.seq, node.observed, node.ahead = report.seq, report.observed_generation, None
    return "applied"


def _own(
    tables: Tables, site: Site, name: str, report: wire.Report, now: float
) -> list[tuple[wire.ReportedAllocation, Row]]:
    """See _own_allocations."""
    rows = tables.rows
    excused = healing.gone(tables, site, name, report, now)
    return [
        (item, rows[item.id])
        for item in report.allocations
        if item.id in rows
        and site.node_of[rows[item.id].place.gpu] == name
        and not (item.state == "failed" and item.id in excused)
        and (is_change(item.state, rows[item.id].state) or _is_saved_news(rows[item.id], item))
    ]


def _word(
    tables: Tables,
    site: Site,
    said: tuple[wire.ReportedAllocation, Row],
    now: float,
    *,
    is_proven: bool,
) -> None:
    item, row = said
    if item.saved is not None:
        lifecycle.saved(tables, row, _moment(item.saved, now), now)
    if item.state == "empty" and is_proven:
        row.suspended = row.suspended or item.suspended
        replacing.conflict(tables, site, row, now)
        lifecycle.empty(tables, row, now)
    if item.state == "failed" and item.error == wire.LEASE_EXPIRED and row.leased:
        replacing.lease_expired(tables, site, row, _moment(item.since, now), now)
    elif item.state == "failed" and not replacing.conflict(tables, site, row, now):
        lifecycle.failed(tables, row, now)


def _is_saved_news(row: Row, item: wire.ReportedAllocation) -> bool:
    if item.saved is None or row.state not in STARTED:
        return False
    return row.saved_at is None or row.saved_at < item.saved


def _moment(seconds: int, now: float) -> int:
    return max(0, min(seconds, int(now)))
