"""Decisions that REST clients wait for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef

from allocation.models import Allocation, Booking, BookingChange
from allocation.rules.states import State
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

_current = Compiled(
    lambda _now, keys: (
        Allocation.objects.filter(booking_id__in=keys, abandoned=False)
        .exclude(state=Allocation.State.SUPERSEDED)
        .select_related("gpu__node")
        .order_by("period", "gpu_number", "start")
    )
)

PARTS = ("pauses", "moved_starts__claimant", "changes", "dependencies__parent")
"""What the representation of a booking shows of other tables."""


@dataclass(frozen=True, slots=True)
class DecidedBooking:
    """A decided booking with its current allocations, by start and GPU."""

    booking: Booking
    allocations: Sequence[Allocation]


def bookings_decided(bookings: Collection[UUID]) -> set[UUID]:
    """The ids of those without a request or a change that no cycle has looked at yet. A change that
    waits for room has reasons. Runs inside a transaction of their tenant."""
    asked = BookingChange.objects.filter(
        booking=OuterRef("id"), state=BookingChange.State.ASKED, reasons=[]
    )
    rows = Booking.objects.filter(id__in=bookings).exclude(state=State.REQUESTED)
    return set(rows.exclude(Exists(asked)).values_list("id", flat=True))


def decided_bookings_read(bookings: Collection[UUID]) -> Mapping[UUID, DecidedBooking]:
    """The bookings with their allocations, in a few queries. Runs inside a transaction of their
    tenant."""
    rows = list(
        Booking.objects.filter(id__in=bookings)
        .select_related("project", "tier", "owner")
        .prefetch_related(*PARTS)
    )
    allocations = allocations_current(rows)
    return {row.id: DecidedBooking(row, allocations[row.id]) for row in rows}


def allocations_current(bookings: Iterable[Booking]) -> dict[UUID, list[Allocation]]:
    """The current allocations of each booking, by start and GPU."""
    found: dict[UUID, list[Allocation]] = {booking.id: [] for booking in bookings}
    for row in _current(ASKED_AT, found) if found else ():
        found[row.booking_id].append(row)
    return found
