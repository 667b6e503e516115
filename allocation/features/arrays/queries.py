"""Arrays as pages and REST show them: counts of their elements by what happens to them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet, Sum

from allocation.models import Booking, BookingArray
from allocation.queries.bookings.booking_list import COUNTED
from allocation.queries.bookings.money.spending import PAID
from allocation.rules.states import OPEN, State

_FAILED = Q(state=State.FAILED) | Q(state=State.ENDED, result="failure")


@dataclass(frozen=True, slots=True)
class ArrayCounts:
    """Elements by what happens to them. `later` are no bookings yet."""

    waiting: int = 0
    scheduled: int = 0
    running: int = 0
    paused: int = 0
    ended: int = 0
    failed: int = 0
    cancelled: int = 0
    later: int = 0

    @property
    def open(self) -> int:
        """Elements that are bookings and not over."""
        return self.waiting + self.scheduled + self.running + self.paused


@dataclass(frozen=True, slots=True)
class ArrayShown:
    """An array with its counts. `held` is the money that is held for it, `charged` what it cost."""

    array: BookingArray
    counts: ArrayCounts
    held: Decimal
    charged: Decimal

    @property
    def reference(self) -> str:
        """Its id as programs use it, `ar_<hex>`."""
        return f"ar_{self.array.id.hex}"

    @property
    def hold(self) -> str:
        """Which elements have their money held."""
        return "all" if self.array.holds_all else "rolling"

    @property
    def is_open(self) -> bool:
        """Whether anything of it can be cancelled."""
        return self.counts.open > 0 or (self.counts.later > 0 and not self.array.outcome)


def array_shown(array: BookingArray) -> ArrayShown:
    """The array with its counts. Runs inside a transaction of its tenant."""
    counts = array_counts([array])[array.id]
    rows = Booking.objects.filter(array=array)
    money = rows.aggregate(held=Sum("hold_amount", filter=Q(state__in=OPEN)), charged=Sum(PAID))
    held = money["held"] or Decimal(0)
    if array.holds_all and not array.outcome:
        held += Decimal(array.terms["hold_amount"]) * counts.later
    return ArrayShown(array, counts, held, money["charged"] or Decimal(0))


def array_counts(arrays: Iterable[BookingArray]) -> Mapping[UUID, ArrayCounts]:
    """The counts of several arrays, in one query."""
    arrays = list(arrays)
    rows = (
        Booking.objects.filter(array__in=arrays)
        .values("array_id")
        .annotate(
            **COUNTED,
            ended=Count("id", filter=Q(state=State.ENDED) & ~Q(result="failure")),
            failed=Count("id", filter=_FAILED),
            all=Count("id"),
        )
    )
    found: dict[UUID, dict[str, Any]] = {row["array_id"]: {**row} for row in rows.order_by()}
    return {array.id: _counts(array, found.get(array.id, {})) for array in arrays}


def arrays_words(arrays: Iterable[BookingArray]) -> dict[UUID, str]:
    """Returns the counts of arrays as words: `3 running, 17 waiting, 480 of 500 over`."""
    found = list(arrays)
    counts = array_counts(found)
    return {array.id: _words(counts[array.id], array.count) for array in found}


def _words(counts: ArrayCounts, count: int) -> str:
    over = counts.ended + counts.failed + counts.cancelled
    failed = f", {counts.failed} failed" if counts.failed else ""
    paused = f", {counts.paused} paused" if counts.paused else ""
    scheduled = f", {counts.scheduled} scheduled" if counts.scheduled else ""
    ahead = counts.waiting + counts.later
    return f"{counts.running} running{paused}{scheduled}, {ahead} waiting, {over} of {count} over{failed}"


def array_elements(array: BookingArray) -> QuerySet[Booking]:
    """The elements that are bookings, in order."""
    rows = Booking.objects.filter(array=array).select_related("project", "tier", "owner")
    return rows.order_by("array_index")


def _counts(array: BookingArray, row: Mapping[str, Any]) -> ArrayCounts:
    known = {name: row.get(name, 0) for name in (*COUNTED, "ended", "failed")}
    ahead = sum(last - first + 1 for first, last in array.cancelled)
    others = row.get("all", 0) - sum(known.values())
    later = array.count - row.get("all", 0) - ahead
    if array.outcome:
        # No further element is booked.
        ahead, later = ahead + later, 0
    return ArrayCounts(**known, cancelled=others + ahead, later=later)
