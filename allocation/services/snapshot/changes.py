"""The change feed: which bookings and which hardware have changed since a snapshot.

Triggers add a row for each change to `allocation_change` (migration 0006). Transactions commit in
another order than they begin, so a reader asks again for all that had not ended when it last read.
Small sections are read only if they may have rows, which is asked in one statement.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

from django.db import connection

from allocation.models import (
    Booking,
    BookingChange,
    CompactionOrder,
    Maintenance,
    Override,
    PolicyVersion,
)
from allocation.points.bookings import ENTRIES
from allocation.rules.states import WAITING, State
from allocation.services.record.open_pauses import open_pauses
from allocation.services.snapshot.demands import bookings_with_data, changes_with_data
from tenants.lab_queries import guarantees_to_come
from tenants.models import LabQuota, PersonQuota, QuotaWindow, TierGuarantee
from tenants.platform.database.look import Look, Question

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


INNER_LIMITS = frozenset({"labs", "persons", "windows", "tier_parts"})

_SECTIONS: dict[str, Question] = {
    "labs": lambda _: LabQuota.objects.all(),
    "persons": lambda _: PersonQuota.objects.all(),
    "windows": lambda _: QuotaWindow.objects.all(),
    "tier_parts": lambda _: TierGuarantee.objects.all(),
    "guarantees": guarantees_to_come,
    "blackouts": lambda now: Maintenance.objects.filter(ended_at=None, ends__gt=now),
    "cooling": lambda now: Booking.objects.filter(cooling_until__gt=now),
    "overrides": lambda _: Override.objects.filter(state=Override.State.GRANTED),
    "kept": lambda _: Booking.objects.filter(has_override=True),
    "pauses": lambda _: open_pauses(),
    # Extensions and other changes that wait for a decision.
    "asked": lambda _: BookingChange.objects.filter(state=BookingChange.State.ASKED),
    "orders": lambda _: CompactionOrder.objects.filter(decided_at=None),
    "pending": lambda now: Booking.objects.filter(state=State.AWAITING_APPROVAL, place_until__gt=now),
    "idle": lambda _: Booking.objects.filter(state=State.ACTIVE, idle_veto_until__isnull=False),
    "peaks": lambda _: PolicyVersion.objects.filter(
        state=PolicyVersion.State.LIVE, document__has_key="headroom"
    ),
    "caches": lambda _: bookings_with_data(),
    "caches_asked": lambda _: changes_with_data(),
    # Bookings that wait for the rest of their time.
    "replaced": lambda _: Booking.objects.filter(state__in=WAITING, replacement_count__gt=0),
    "used": lambda _: Booking.objects.filter(state__in=WAITING, used_seconds__gt=0),
}


@cache
def _sections() -> Look:
    of_features = {name: each.rows for name, each in ENTRIES.items()}
    return Look(_SECTIONS | of_features)


def sections_present(now: datetime) -> frozenset[str]:
    """Returns the names of the sections, and of what else time changes in one, that may have rows."""
    return _sections()(now)
