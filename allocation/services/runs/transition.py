"""The one door for a booking's state: every change of a stored booking is written here.

`rules.states` has the two tables: which steps there are, and which fields each step clears. A
change raises the version, and its event is written in the same transaction. The database checks
the steps again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import IntegrityError, connection, models, transaction

from allocation.models import Booking
from allocation.rules.states import State, fields_cleared, is_transition_allowed
from allocation.services.record.history import Event, events_add


class TransitionRefused(IntegrityError):
    """The table lists no such step. It is the error that the database would raise."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one booking in `bookings_change`; without `to` it stays in its state."""

    booking: Booking
    event: Event
    to: State | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


def booking_move(
    booking: Booking, to: State, *, event: Event, now: datetime, **facts: object
) -> None:
    """Brings the locked booking into another state and writes the event.

    `facts` are other fields of the booking. They win over what the step clears.

    Raises:
        TransitionRefused: the table lists no step from its state.
    """
    _store(booking, _moved(booking, to, facts), event, now)


def booking_change(
    booking: Booking, *, event: Event | None = None, now: datetime, **facts: object
) -> None:
    """Writes facts of a locked booking that stays in its state, with the event if there is one."""
    _store(booking, _changed(booking, facts), event, now)


def bookings_change(changes: Sequence[Change], *, now: datetime) -> None:
    """Writes many changes of locked bookings in as many statements as one change takes.

    Raises:
        TransitionRefused: the table lists one of the steps not.
    """
    if not changes:
        return
    fields: dict[str, None] = {}
    for each in changes:
        facts = dict(each.facts)
        names = (
            _changed(each.booking, facts)
            if each.to is None
            else _moved(each.booking, each.to, facts)
        )
        fields.update(dict.fromkeys(names))
    with transaction.atomic(savepoint=False):
        _write([each.booking for each in changes], list(fields))
        events_add([each.event.row(each.booking, now) for each in changes])


def _moved(booking: Booking, to: State, facts: Mapping[str, object]) -> list[str]:
    """Sets the state and its facts on the object; the names of the fields that are to be saved."""
    old = State(booking.state)
    if not is_transition_allowed(old, to):
        raise TransitionRefused(f"{booking.label} can't go from {old} to {to}")
    empty = {name: _field(name).get_default() for name in fields_cleared(old, to)}
    return ["state", *_changed(booking, {**empty, **facts, "state": to})]


def _changed(booking: Booking, facts: Mapping[str, object]) -> list[str]:
    for name, value in facts.items():
        setattr(booking, _field(name).name, value)
    booking.version += 1
    return ["version", *facts]


def _store(booking: Booking, fields: list[str], event: Event | None, now: datetime) -> None:
    # Every caller has a transaction. Without a savepoint this adds no statement to it.
    with transaction.atomic(savepoint=False):
        booking.save(update_fields=fields)
        if event is not None:
            events_add([event.row(booking, now)])


def _write(bookings: Sequence[Booking], names: Sequence[str]) -> None:
    fields = [_field(name) for name in names]
    columns = ", ".join(str(each.column) for each in fields)
    sent = ", ".join(f"%s::{each.db_type(connection)}[]" for each in fields)
    given = ", ".join(f"{each.column} = given.{each.column}" for each in fields)
    values = [
        [each.get_db_prep_save(getattr(booking, each.attname), connection) for booking in bookings]
        for each in fields
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE allocation_booking AS booking SET {given} "  # noqa: S608 (our own names)
            f"FROM unnest(%s::uuid[], {sent}) AS given (id, {columns}) "
            "WHERE booking.id = given.id",
            [[booking.id for booking in bookings], *values],
        )


def _field(name: str) -> "models.Field[object, object]":
    found = Booking._meta.get_field(name)
    if not isinstance(found, models.Field):
        raise TypeError(f"a booking stores no {name}")
    return found
