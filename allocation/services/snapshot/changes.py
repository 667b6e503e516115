"""The change feed: which bookings and which hardware have changed since a snapshot.

Triggers add a row for each change to `allocation_change` (migration 0006). Transactions commit in
another order than they begin, so a reader asks again for all that had not ended when it last read.
"""

from dataclasses import dataclass
from uuid import UUID

from django.db import connection

# From this many changes on, a fresh snapshot costs as much.
MOST = 2_000
_HORIZON = "pg_snapshot_xmin(pg_current_snapshot())::text"
_READ = f"""
SELECT horizon.xid, changed.kind, changed.key FROM (SELECT {_HORIZON} AS xid) AS horizon
LEFT JOIN (
  SELECT DISTINCT kind, key FROM allocation_change WHERE xid >= %s::xid8 LIMIT %s
) AS changed ON true
"""  # noqa: S608 (constants)


@dataclass(frozen=True, slots=True)
class Changed:
    """What has changed: keys by kind. `is_unknown`: too much, or what has no key."""

    bookings: frozenset[UUID]
    gpus: frozenset[UUID]
    nodes: frozenset[UUID]
    is_unknown: bool


def horizon_read() -> int:
    """Returns the oldest transaction that had not ended when the caller's snapshot was taken.

    Changes from it on have to be read again. The caller's transaction must be REPEATABLE READ.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_HORIZON}")
        return int(cursor.fetchone()[0])


def changes_read(since: int) -> tuple[int, Changed]:
    """Returns the horizon, and the changes of transactions from `since` on that the caller's
    snapshot sees."""
    with connection.cursor() as cursor:
        cursor.execute(_READ, [str(since), MOST + 1])
        rows = cursor.fetchall()
    keys = {
        kind: frozenset(key for _, name, key in rows if name == kind)
        for kind in ("booking", "gpu", "node", "other")
    }
    is_unknown = bool(keys["other"]) or len(rows) > MOST
    return int(rows[0][0]), Changed(keys["booking"], keys["gpu"], keys["node"], is_unknown)


def changes_drop(before: int) -> None:
    """Removes the changes of older transactions, which nobody reads any more."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM allocation_change WHERE xid < %s::xid8", [str(before)])
