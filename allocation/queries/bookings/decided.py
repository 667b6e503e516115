"""What a booking's representation shows of other tables, and decisions that clients wait for."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Exists, Model, OuterRef

from allocation.models import (
    Allocation,
    Booking,
    BookingChange,
    Dependency,
    MovedStart,
    Pause,
)
from allocation.points import BOOKING_PARTS
from allocation.queries.bookings.after_parents import estimated_starts
from allocation.rules.changes import Strength
from allocation.rules.states import State
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

# The table and the rows of each part of `BookingParts`.
_PARTS: Mapping[str, tuple[type[Model], Compiled[Any]]] = {
    "allocations": (
        Allocation,
        Compiled(
            lambda _, keys: (
                Allocation.objects.filter(booking_id__in=keys, abandoned=False)
                .exclude(state=Allocation.State.SUPERSEDED)
                .select_related("gpu__node")
                .order_by("period", "gpu_number", "start")
            )
        ),
    ),
    "pauses": (
        Pause,
        Compiled(lambda _, keys: Pause.objects.filter(booking_id__in=keys).order_by("number")),
    ),
    "moved_starts": (
        MovedStart,
        Compiled(
            lambda _, keys: (
                MovedStart.objects.filter(booking_id__in=keys).select_related("claimant").order_by("id")
            )
        ),
    ),
    "changes": (
        BookingChange,
        Compiled(
            lambda _, keys: BookingChange.objects.filter(
                booking_id__in=keys, strength=Strength.STRONGER
            ).order_by("-asked_at", "id")
        ),
    ),
    "parents": (
        Dependency,
        Compiled(
            lambda _, keys: (
                Dependency.objects.filter(booking_id__in=keys).select_related("parent").order_by("id")
            )
        ),
    ),
}


@cache
def _parts() -> Mapping[str, tuple[type[Model], Compiled[Any]]]:
    """The parts of the core and of features."""

    def query(table: Any) -> Compiled[Any]:  # noqa: ANN401 (a model)
        return Compiled(lambda _, keys: table.objects.filter(booking_id__in=keys))

    return {**_PARTS, **{each.name: (each.table, query(each.table)) for each in BOOKING_PARTS}}


_HAS_ROWS = (
    "EXISTS (SELECT FROM {table} WHERE tenant_id = ANY (%(tenants)s) AND booking_id = ANY (%(bookings)s))"
)


@cache
def _are_there() -> str:
    """Most bookings have rows in few of the tables."""
    return "SELECT " + ", ".join(
        _HAS_ROWS.format(table=model._meta.db_table) for model, _ in _parts().values()
    )


@dataclass(frozen=True, slots=True)
class BookingParts:
    """What the representation of a booking shows of other tables."""

    allocations: Sequence[Allocation] = ()
    """The current ones, by start and GPU."""
    pauses: Sequence[Pause] = ()
    moved_starts: Sequence[MovedStart] = ()
    changes: Sequence[BookingChange] = ()
    """Those that needed a decision, the latest first."""
    parents: Sequence[Dependency] = ()
    estimate: datetime | None = None
    """Its estimated start by the bookings that it waits for."""
    features: Mapping[str, Any] = field(default_factory=dict)
    """The rows of features that it has, by the name of the part."""


@dataclass(frozen=True, slots=True)
class DecidedBooking:
    """A decided booking with its parts."""

    booking: Booking
    parts: BookingParts


def parts_of(bookings: Collection[Booking]) -> dict[UUID, BookingParts]:
    """The parts of each booking, in one statement and one more for each part that is there. Runs
    inside a transaction of their tenant, or of an operator."""
    found = {name: _rows(_parts()[name][1], bookings) for name in _parts_there(bookings)}
    features = {name: found.pop(name) for name in found.keys() - _PARTS.keys()}
    estimates = estimated_starts(bookings)
    return {
        key: BookingParts(
            estimate=estimates.get(key),
            features={name: rows[key][0] for name, rows in features.items() if key in rows},
            **{name: rows.get(key, ()) for name, rows in found.items()},
        )
        for key in (each.id for each in bookings)
    }


def bookings_decided(bookings: Collection[UUID]) -> set[UUID]:
    """The ids of those without a request or a change that no cycle has looked at yet. A change that
    waits for room has reasons. Runs inside a transaction of their tenant."""
    asked = BookingChange.objects.filter(booking=OuterRef("id"), state=BookingChange.State.ASKED, reasons=[])
    rows = Booking.objects.filter(id__in=bookings).exclude(state=State.REQUESTED)
    return set(rows.exclude(Exists(asked)).values_list("id", flat=True))


def decided_bookings_read(bookings: Collection[UUID]) -> Mapping[UUID, DecidedBooking]:
    """The bookings with their parts, in a few queries. Runs inside a transaction of their
    tenant."""
    rows = Booking.objects.filter(id__in=bookings).select_related("project", "tier", "owner")
    found = list(rows)
    parts = parts_of(found)
    return {row.id: DecidedBooking(row, parts[row.id]) for row in found}


def _parts_there(bookings: Collection[Booking]) -> Sequence[str]:
    """The parts that at least one of the bookings has."""
    if not bookings:
        return ()
    asked = {
        "tenants": list({each.tenant_id for each in bookings}),
        "bookings": [each.id for each in bookings],
    }
    with connection.cursor() as cursor:
        cursor.execute(_are_there(), asked)
        answers = cursor.fetchone()
    return [name for name, is_there in zip(_parts(), answers, strict=True) if is_there]


def _rows(query: Compiled[Any], bookings: Collection[Booking]) -> Mapping[UUID, Any]:
    """The rows of each booking that has some."""
    found: dict[UUID, list[Any]] = defaultdict(list)
    for row in query(ASKED_AT, [each.id for each in bookings]):
        found[row.booking_id].append(row)
    return found
