"""Bookings that depend on others: they are planned when those are over.

A booking depends on existing ones only, and no change of it adds one, so there are no cycles.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.access import access_booking
from allocation.models import Booking, Dependency
from allocation.rules.states import TERMINAL, WAITING, State
from allocation.services.bookings.results import REPORTED_WITHIN
from allocation.services.bookings.withdrawals import booking_withdraw
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock, booking_move
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from allocation.words.refusals import refusal_text
from solver.reasons.reason import reason
from tenants.access import Actor
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid

PARAM = "depends_on"
Parent = tuple[str, str]
"""A reference of a booking, and what of it is needed: `end` or `success`."""


def dependencies_add(actor: Actor, booking: Booking, parents: Sequence[Parent]) -> None:
    """Makes a booking that was created in this transaction wait for others.

    Raises:
        Refused: as `parents_read`.
    """
    found = parents_read(actor, parents, booking.starts, booking.submitted)
    dependencies_write(booking, found)


def parents_read(
    actor: Actor, parents: Sequence[Parent], starts: datetime | None, now: datetime
) -> list[tuple[Booking, str]]:
    """The bookings that a new one is to wait for, and what of each is needed. `starts`: the fixed
    start of the new one.

    Raises:
        Refused: `not_found`, `depends_fixed`, `depends_twice`, `too_many_parents`, `parent_failed`.
    """
    parents_check(len(parents), starts)
    found: list[tuple[Booking, str]] = []
    for reference, needs in parents:
        parent = access_booking(actor, reference)
        if parent.id in {each.id for each, _ in found}:
            raise invalid("depends_twice", refusal_text("depends_twice", label=parent.label), PARAM)
        if _is_met(Dependency(parent=parent, needs=needs), now) is False:
            sentence = refusal_text("parent_failed", label=parent.label)
            raise Refused("parent_failed", sentence, "conflict", PARAM)
        found.append((parent, needs))
    return found


def parents_check(count: int, starts: datetime | None) -> None:
    """Raises Refused `too_many_parents` or `depends_fixed`."""
    if count > Dependency.MOST:
        sentence = refusal_text("too_many_parents", most=Dependency.MOST)
        raise invalid("too_many_parents", sentence, PARAM)
    if starts is not None:
        raise invalid("depends_fixed", refusal_text("depends_fixed"), PARAM)


def dependencies_write(booking: Booking, parents: Sequence[tuple[Booking, str]]) -> None:
    """Writes what a booking that was created in this transaction waits for."""
    Dependency.objects.bulk_create(
        Dependency(tenant_id=booking.tenant_id, booking=booking, parent=parent, needs=needs)
        for parent, needs in parents
    )
    booking_change(booking, now=booking.submitted, awaits_parents=True)


def dependencies_due(now: datetime) -> QuerySet[Dependency]:
    """Returns the dependencies whose parent is over, so that something follows from it."""
    over = Q(parent__state__in=TERMINAL)
    unsaid = Q(needs=Dependency.Needs.SUCCESS, parent__state=State.ENDED, parent__result="")
    unsaid &= Q(parent__ended_at__gt=now - REPORTED_WITHIN)
    last = Q(booking__state__in=WAITING, booking__awaits_parents=True)
    return Dependency.objects.filter(last, over).exclude(unsaid)


def dependencies_advance(now: datetime) -> None:
    """Plans the bookings whose parents are over, and cancels those whose parents failed. For the
    turn of the solver, before its snapshot."""
    rows = Booking.objects.filter(awaits_parents=True, state__in=WAITING).order_by("id")
    for booking_id in list(rows.values_list("id", flat=True)):
        _advance(booking_id, now)


def _advance(booking_id: UUID, now: datetime) -> None:
    with transaction.atomic():
        booking = booking_lock(booking_id, "project", "tier", "owner")
        if booking.state not in WAITING or not booking.awaits_parents:
            return
        rows = list(booking.dependencies.select_related("parent"))
        answers = [_is_met(row, now) for row in rows]
        if False in answers:
            parent = rows[answers.index(False)].parent
            why = reason_data(reason("dependency_failed", **_named(booking, parent)))
            text = event_text("because", because=why)
            booking_withdraw(booking, text, now, outcome="dependency", reasons=[why], awaits_parents=False)
        elif None not in answers:
            last = max(row.parent.ended_at or now for row in rows)
            event = Event("changed", event_text("parents_over"))
            booking_change(booking, event=event, now=now, awaits_parents=False, ranked_at=last, reasons=[])
            task_request("allocation.cycle")
        elif booking.state == State.REQUESTED:
            parent = rows[answers.index(None)].parent
            why = reason_data(reason("awaits_booking", **_named(booking, parent)))
            event = Event("queued", event_text("queued_unplanned", because=why))
            booking_move(booking, State.QUEUED, event=event, now=now, reasons=[why])


def _named(booking: Booking, parent: Booking) -> dict[str, str]:
    """The number of the parent, if all who read the booking's history may see it."""
    return {"booking": parent.label} if parent.project_id == booking.project_id else {}


def _is_met(row: Dependency, now: datetime) -> bool | None:
    """Whether the parent has ended as needed; None while that is open."""
    parent = row.parent
    if parent.state not in TERMINAL:
        return None
    if parent.state != State.ENDED:
        return False
    if row.needs == Dependency.Needs.END or parent.result == "success":
        return True
    is_open = parent.ended_at is None or now - parent.ended_at < REPORTED_WITHIN
    return None if parent.result == "" and is_open else False
