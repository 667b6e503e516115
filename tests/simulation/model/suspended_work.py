"""The model's suspended work on nodes: see allocation/services/runs/resume.py."""

from tests.simulation.tables.rows import OVER, STARTED_STATES, Booking, Row, Site, Tables

WAITS = ("pausing", "paused")
_GOES_ON = (*WAITS, "starting", "active", "ending")


def resumes_on(tables: Tables, site: Site, node: str) -> dict[str, str]:
    """See resumes_on."""
    found: dict[str, str] = {}
    for booking, rows in _frozen(tables, site, node).items():
        runs = runs_of(tables, tables.bookings[booking])
        old = [row for row in rows if row.starts in runs[-2:-1]]
        mine = _on(tables, site, node, tables.of(tables.bookings[booking], *STARTED_STATES))
        goes_on = [row for row in mine if not row.left and row.starts == runs[-1]]
        found |= {new.id: row.id for new, row in zip(goes_on, old, strict=False)}
    return found


def suspended_on(tables: Tables, site: Site, node: str, resumed: set[str]) -> tuple[str, ...]:
    """See suspended_on."""
    kept = set(resumed)
    for booking, rows in _frozen(tables, site, node).items():
        if tables.bookings[booking].state in WAITS:
            last = runs_of(tables, tables.bookings[booking])[-1]
            kept |= {row.id for row in rows if row.starts == last}
    return tuple(sorted(kept))


def suspended_work_forget(tables: Tables) -> None:
    """See frozen_forget; no schedule is longer than a day."""
    methods = {
        p.booking
        for p in tables.pauses.values()
        if p.ended_at is not None and tables.bookings[p.booking].tier.method == "suspend"
    }
    over = {name for name in methods if tables.bookings[name].state in OVER}
    rows = [row for row in tables.rows.values() if row.suspended and row.booking in over]
    tables.bump(rows)
    for row in rows:
        row.suspended = False


def runs_of(tables: Tables, booking: Booking) -> list[int]:
    """When each run began, the oldest first."""
    return sorted({row.starts for row in tables.of(booking, *STARTED_STATES, "ended")})


def _frozen(tables: Tables, site: Site, node: str) -> dict[str, list[Row]]:
    rows = [
        row
        for row in tables.rows.values()
        if row.suspended
        and not row.left
        and row.state == "ended"
        and tables.bookings[row.booking].state in _GOES_ON
    ]
    found: dict[str, list[Row]] = {}
    for row in _on(tables, site, node, rows):
        found.setdefault(row.booking, []).append(row)
    return found


def _on(tables: Tables, site: Site, node: str, rows: list[Row]) -> list[Row]:
    here = [row for row in rows if tables.node_of[row.place.gpu] == node]
    return sorted(here, key=lambda r: (site.index_of[r.place.gpu], r.place.start, r.id))
