"""The bookings ahead of a waiting one in the queue, and by which key of the order.

Of other tenants' bookings only how many there are by each key is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from allocation.models import Booking, PlannedStrength
from allocation.words.queue import ahead_text
from solver import Criterion, criterion_at

_AHEAD = """
SELECT own, number, differs_at, band, strength, fixed, bookings
FROM portal_queue_ahead(%s, %s) ORDER BY own DESC, number
"""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Bookings ahead by one key of the order. `labels` are those of the own tenant."""

    rule: Criterion
    is_own: bool
    count: int
    labels: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Who goes first and why, in the reader's language."""
        return ahead_text(self.rule, self.count, is_own=self.is_own)


def queue_ahead(booking: Booking, order: Sequence[str]) -> tuple[Ahead, ...]:
    """The bookings ahead, planned to start before this one's planned end, in a class that it
    requests; the own tenant's first.

    `order` are the keys of the policy. Runs inside a transaction of the booking's tenant. Empty
    until a decision has given it a place in the queue.
    """
    with connection.cursor() as cursor:
        cursor.execute(_AHEAD, [booking.id, list(order)])
        rows = cursor.fetchall()
    found: dict[tuple[Criterion, bool], tuple[int, tuple[str, ...]]] = {}
    for is_own, number, differs_at, band, strength, is_fixed, bookings in rows:
        # Arrays of the database begin at 1.
        at = None if differs_at is None else differs_at - 1
        is_inside = strength in (PlannedStrength.FIRM, PlannedStrength.GUARANTEED)
        rule = criterion_at(order, at, band, is_fixed=is_fixed, is_inside=is_inside)
        count, labels = found.get((rule, is_own), (0, ()))
        new = (f"BK-{number}",) if is_own else ()
        found[rule, is_own] = count + bookings, labels + new
    return tuple(Ahead(rule, own, *each) for (rule, own), each in found.items())
