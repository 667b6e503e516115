"""The one writer of a booking's state.

`rules.states` lists the steps and the fields that each step clears. A change raises the version and
writes its event in the same transaction. The database checks the steps again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from uuid import UUID

from django.db import IntegrityError, connection, models, transaction

from allocation.models import Allocation, Booking
from allocation.rules.states import State, fields_cleared, is_transition_allowed
from allocation.services.record.history import Event, events_add
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT


class TransitionRefused(IntegrityError):
    """The table has no such step. The database would raise the same error."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one booking for `bookings_change`; without `to` the state stays the same, and
    without `event` its history has nothing to say."""

    booking: Booking
    event: Event | None
    to: State | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


_allocations = Compiled(lambda _, keys: Allocation.objects.filter(id__in=keys).select_related("gpu__node"))
_of_allocation = Compiled(
    lambda _, keys: (
        Booking.objects.select_for_update(of=("self",)).filter(allocations__id__in=keys).order_by("id")
    )
)


@cache
def _by_id(related: tuple[str, ...]) -> Compiled[Booking]:
    return Compiled(
        lambda _, keys: (
            Booking.objects.select_for_update(of=("self",)).select_related(*related).filter(id__in=keys)
        )
    )


def booking_lock(booking_id: UUID, *related: str) -> Booking:
    """Returns the booking, locked, together with the `related` rows."""
    find = _by_id(related)
    # Who waited for the lock while the owner or the tier became another one gets no row: PostgreSQL joins
    # the new booking with the old related row. The booking is locked then, and the next statement sees it.
    rows = find(ASKED_AT, [booking_id]) or find(ASKED_AT, [booking_id])
    if not rows:
        raise Booking.DoesNotExist
    return rows[0]


def allocation_booking_lock(allocation_id: UUID, *states: State) -> Booking | None:
    """Returns the locked booking of an allocation; None if it is in none of the `states`.

    Reports about members of a gang are applied one at a time.
    """
    booking = next(iter(_of_allocation(ASKED_AT, [allocation_id])), None)
    return booking if booking is None or not states or booking.state in states else None


def allocation_read(allocation_id: UUID) -> Allocation:
    """Returns an allocation with its GPU and node."""
    return _allocations(ASKED_AT, [allocation_id])[0]


def planned_rows_supersede(booking: Booking) -> int:
    """Takes a booking's planned GPUs off the calendar; returns how many."""
    planned = booking.allocations.filter(state=Allocation.State.PLANNED)
    return planned.update(state=Allocation.State.SUPERSEDED)


def booking_move(booking: Booking, to: State, *, event: Event, now: datetime, **facts: object) -> None:
    """Moves the locked booking to another state and writes the event.

    `facts` are other fields of the booking; they override what the step clears.

    Raises:
        TransitionRefused: the table has no such step.
    """
    _store(booking, _moved(booking, to, facts, now), event, now)


def booking_change(booking: Booking, *, event: Event | None = None, now: datetime, **facts: object) -> None:
    """Writes fields of a locked booking without a step, and the event if there is one."""
    _store(booking, _changed(booking, facts, now), event, now)


def bookings_change(changes: Sequence[Change], *, now: datetime) -> None:
    """Writes many changes of locked bookings in as few statements as one change.

    Raises:
        TransitionRefused: the table does not have one of the steps.
    """
    if not changes:
        return
    fields: dict[str, None] = {}
    for each in changes:
        facts = dict(each.facts)
        names = (
            _changed(each.booking, facts, now)
            if each.to is None
            else _moved(each.booking, each.to, facts, now)
        )
        fields.update(dict.fromkeys(names))
    with transaction.atomic(savepoint=False):
        _write([each.booking for each in changes], list(fields))
        events_add([each.event.row(each.booking, now) for each in changes if each.event])


def _moved(booking: Booking, to: State, facts: Mapping[str, object], now: datetime) -> list[str]:
    """Sets the state and its fields on the object; returns the names of the fields to save."""
    old = State(booking.state)
    if not is_transition_allowed(old, to):
        raise TransitionRefused(f"{booking.label} can't go from {old} to {to}")
    empty = {name: _field(name).get_default() for name in fields_cleared(old, to)}
    return ["state", *_changed(booking, {**empty, **facts, "state": to}, now)]


def _changed(booking: Booking, facts: Mapping[str, object], now: datetime) -> list[str]:
    for name, value in facts.items():
        setattr(booking, _field(name).name, value)
    booking.version += 1
    # A cycle writes what it began to decide before a person's change of another booking.
    booking.changed_at = max(now, booking.changed_at or now)
    return ["version", "changed_at", *facts]


def _store(booking: Booking, fields: list[str], event: Event | None, now: datetime) -> None:
    # Every caller has a transaction; without a savepoint this adds no statement.
    with transaction.atomic(savepoint=False):
        booking.save(update_fields=fields)
        if event is not None:
            events_add([event.row(booking, now)])


def _write(bookings: Sequence[Booking], names: Sequence[str]) -> None:
    fields = [_field(name) for name in names]
    columns = ", ".join(str(each.column) for each in fields)
    arrays = ", ".join(f"%s::{each.db_type(connection)}[]" for each in fields)
    assignments = ", ".join(f"{each.column} = new.{each.column}" for each in fields)
    values = [
        [each.get_db_prep_save(getattr(booking, each.attname), connection) for booking in bookings]
        for each in fields
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE allocation_booking AS booking SET {assignments} "  # noqa: S608 (our own names)
            f"FROM unnest(%s::uuid[], {arrays}) AS new (id, {columns}) "
            "WHERE booking.id = new.id",
            [[booking.id for booking in bookings], *values],
        )


def _field(name: str) -> "models.Field[object, object]":
    found = Booking._meta.get_field(name)
    if not isinstance(found, models.Field):
        raise TypeError(f"{name} is not a stored field of a booking")
    return found
