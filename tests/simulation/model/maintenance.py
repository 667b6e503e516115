"""The model's maintenance: see services/operate/maintenance and queries/fleet/maintenance.py."""

from collections.abc import Iterable

from solver import Maintenance
from tests.simulation.tables.rows import MaintenanceRow, Row, Site, Tables


def planned(tables: Tables, now: float) -> list[MaintenanceRow]:
    """See blackouts_open."""
    return [u for u in tables.maintenance.values() if u.ended_at is None and u.ends > now]


def closures(tables: Tables, site: Site, now: float) -> tuple[Maintenance, ...]:
    """See blackouts_read."""
    return tuple(
        Maintenance(gpu=gpu.id, starts=each.starts, ends=each.ends)
        for gpu in site.gpus
        for each in planned(tables, now)
        if _covers(each, gpu.node, gpu.index)
    )


def is_away(row: Row, site: Site, rows: Iterable[MaintenanceRow]) -> bool:
    """Whether some of it covers the row's GPU."""
    node, index = site.node_of[row.place.gpu], site.index_of[row.place.gpu]
    return any(_covers(each, node, index) for each in rows)


def _covers(maintenance: MaintenanceRow, node: str, index: int) -> bool:
    return maintenance.node == node and maintenance.gpu in (None, index)
