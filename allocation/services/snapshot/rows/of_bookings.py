"""The rows of all bookings, or of those that have changed since the last turn."""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from django.db.models import F, Q, QuerySet

from allocation.models import Allocation, Booking, BookingChange, Pause, WaitMode
from allocation.rules.states import EXTENDABLE, WAITING, State
from allocation.services.record.open_pauses import OPEN
from tenants.platform.database.compiled import Compiled

Bookings: TypeAlias = "Collection[UUID] | None"
"""The bookings that are read; None for all."""
Row = TypeVar("Row")

# Only the columns that are needed, and no objects: all rows are read once a minute.
_HELD_COLUMNS = (
    *("id", "booking_id", "tenant_id", "project_id", "gpu_id", "profile", "start", "size", "share"),
    *("period", "granted_cycle", "granted_position", "preemptor", "extended_from"),
    *("extended_cycle", "state", "abandoned", "booking__state", "booking__ask"),
    *("booking__tier_id", "booking__owner_id", "booking__ready_at", "booking__saved_at"),
    *("booking__pause_count", "booking__has_override", "booking__extension_until"),
    "model__gpu_class_id",
)


def _reader(
    rows: Callable[[Bookings], "QuerySet[Any, Row]"],
) -> Callable[[datetime, Bookings], Iterable[Row]]:
    """Reads a query of bookings. That of some is run in each turn, so it is compiled once."""
    of_some: Compiled[Row] = Compiled(lambda _, keys: rows(keys))
    return lambda now, only: rows(None) if only is None else of_some(now, only)


def _among(field: str, only: Bookings) -> dict[str, Any]:
    return {} if only is None else {f"{field}__in": only}


def _held(only: Bookings) -> "QuerySet[Any, Any]":
    rows = Allocation.objects.filter(**_among("booking", only), state__in=Allocation.LIVE)
    return rows.order_by("id").values_list(*_HELD_COLUMNS, named=True)


def _places(only: Bookings) -> "QuerySet[Any, Any]":
    rows = Allocation.objects.filter(**_among("booking", only), state__in=Allocation.LIVE)
    return rows.values_list("booking_id", "id", "state", "period__endswith", "extended_from")


def _waiting(only: Bookings) -> QuerySet[Booking]:
    asks_again = Q(state=State.WAITLISTED, waitlist=WaitMode.AUTO)
    rows = Booking.objects.filter(Q(state__in=WAITING) | asks_again, **_among("id", only))
    rows = rows.filter(is_drained=False, awaits_parents=False)
    return rows.select_related("tier", "series")


def _running(only: Bookings) -> QuerySet[Booking]:
    rows = Booking.objects.filter(**_among("id", only), state=State.ACTIVE, tier__pausable=True)
    return rows.select_related("tier").order_by("id")


def _suspendable(only: Bookings) -> QuerySet[Allocation]:
    rows = Allocation.objects.filter(
        **_among("booking", only),
        state=Allocation.State.ACTIVE,
        booking__state=State.ACTIVE,
        booking__tier__pausable=True,
        booking__tier__pause_method="suspend",
    )
    return rows.select_related("booking", "gpu__node").order_by("gpu_id")


def _paused(only: Bookings) -> QuerySet[Pause]:
    placed = Allocation.objects.filter(state=Allocation.State.PLANNED).values("booking_id")
    rows = Pause.objects.filter(OPEN, **_among("booking", only))
    rows = rows.filter(booking__state__in=[State.PAUSING, State.PAUSED], booking__is_drained=False)
    # Who was paused because the GPUs were idle resumes only after a check-in.
    rows = rows.filter(booking__awaits_check_in=False).exclude(booking__in=placed)
    return rows.select_related("booking__tier").order_by("id")


def _changes(only: Bookings) -> QuerySet[BookingChange]:
    rows = BookingChange.objects.filter(
        **_among("booking", only),
        state=BookingChange.State.ASKED,
        until=None,
        booking__state__in=(State.QUEUED, State.SCHEDULED),
    )
    return rows.select_related("booking", "booking__series").order_by("booking_id")


def _extensions(only: Bookings) -> QuerySet[BookingChange]:
    rows = BookingChange.objects.filter(
        **_among("booking", only),
        state=BookingChange.State.ASKED,
        until=F("booking__extension_until"),
        booking__state__in=EXTENDABLE,
    )
    return rows.select_related("booking__tier", "booking__series").order_by("booking_id")


held_rows = _reader(_held)
place_rows = _reader(_places)
waiting_rows = _reader(_waiting)
running_rows = _reader(_running)
suspendable_rows = _reader(_suspendable)
paused_rows = _reader(_paused)
change_rows = _reader(_changes)
extension_rows = _reader(_extensions)
