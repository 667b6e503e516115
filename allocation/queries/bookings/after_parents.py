"""When bookings that wait for others can start at the earliest: an estimate that reserves nothing.

A booking that depends on others has no planned start before they are over. The planned ends of
those bookings are a lower bound: the start is not before the last of them. A parent that waits for
others itself ends at its own estimated start plus its length. Runs inside a transaction of the
tenant.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from allocation.models import Booking
from allocation.rules.states import TERMINAL

DEEPEST = 50
"""Levels of parents that are followed. Beyond them there is no estimate."""

_PARENTS = """
WITH RECURSIVE above AS (
    SELECT booking_id, parent_id, 1 AS level
    FROM allocation_dependency WHERE booking_id = ANY(%(bookings)s)
    UNION
    SELECT next.booking_id, next.parent_id, above.level + 1
    FROM above
    JOIN allocation_booking parent ON parent.id = above.parent_id AND parent.awaits_parents
    JOIN allocation_dependency next ON next.booking_id = parent.id
    WHERE above.level < %(deepest)s
)
SELECT DISTINCT booking_id, parent_id FROM above
"""
_FIELDS = (
    *("id", "state", "awaits_parents", "not_before", "duration_seconds"),
    *("planned_ends", "reasons", "ended_at"),
)


def estimated_starts(bookings: Iterable[Booking]) -> dict[UUID, datetime]:
    """Returns the earliest start of each booking that waits for others, by its id. Those with a
    parent of which no end is planned are left out, and so are all other bookings."""
    waiting = {each.id: each for each in bookings if _waits(each)}
    chains = _chains(waiting)
    found = {key: chains.start(booking) for key, booking in waiting.items()}
    return {key: start for key, start in found.items() if start is not None}


def estimated_end(parents: Sequence[Booking]) -> datetime | None:
    """Returns when the last of some bookings is planned to end; None if one has no planned end."""
    chains = _chains({each.id: each for each in parents if _waits(each)})
    return _last([chains.end(each) for each in parents])


def _waits(booking: Booking) -> bool:
    return booking.awaits_parents and booking.state not in TERMINAL


@dataclass(frozen=True, slots=True)
class _Chains:
    """The bookings above some others, and the estimates that are known so far."""

    rows: Mapping[UUID, Booking]
    parents: Mapping[UUID, Sequence[UUID]]
    known: dict[UUID, datetime | None] = field(default_factory=dict)

    def start(self, booking: Booking) -> datetime | None:
        """Returns the earliest start of a booking that waits for others."""
        if booking.id not in self.known:
            above = [self.rows[key] for key in self.parents.get(booking.id, ()) if key in self.rows]
            last = _last([self.end(each) for each in above])
            self.known[booking.id] = last and max(last, booking.not_before)
        return self.known[booking.id]

    def end(self, booking: Booking) -> datetime | None:
        """Returns the end of a booking, or the one that is planned for it."""
        if booking.state in TERMINAL:
            return booking.ended_at
        if booking.awaits_parents:
            start = self.start(booking)
            return start and start + timedelta(seconds=booking.duration_seconds)
        return None if booking.is_unplanned else booking.planned_ends


def _last(ends: Sequence[datetime | None]) -> datetime | None:
    known = [each for each in ends if each is not None]
    return max(known) if known and len(known) == len(ends) else None


def _chains(waiting: Mapping[UUID, Booking]) -> _Chains:
    if not waiting:
        return _Chains({}, {})
    parents: dict[UUID, list[UUID]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_PARENTS, {"bookings": list(waiting), "deepest": DEEPEST})
        for booking, parent in cursor.fetchall():
            parents[booking].append(parent)
    every = {parent for each in parents.values() for parent in each}
    rows = Booking.objects.filter(id__in=every).only(*_FIELDS)
    return _Chains({row.id: row for row in rows}, parents)
