"""What follows from the clock and from proof: starts, ends, and the last line of the bill."""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from django.db.models import F, Q

from allocation.models import Allocation, Booking, Node, Occupancy
from allocation.rules.states import OPEN, State
from allocation.services.bookings import EXTENDABLE, booking_cost, earlier_settle
from allocation.services.history import event_add
from allocation.services.leases import lease_possible
from billing.rules import money_text
from billing.services import hold_settle

logger = logging.getLogger(__name__)

STARTED = (Allocation.State.STARTING, Allocation.State.ACTIVE)


def starts_due(now: datetime) -> int:
    """Tells nodes to start every scheduled booking whose time has come; returns how many.

    A gang starts whole or waits whole: an occupancy is opened for every member, and one that
    still lies on earlier work keeps all of them waiting.
    """
    due = Booking.objects.filter(
        state=State.SCHEDULED, planned_starts__lte=now, planned_ends__gt=now
    ).order_by("planned_starts", "id")
    return sum(_start(booking.id, now) for booking in due)


def ends_due(now: datetime) -> int:
    """Ends what is over by the clock or was given back, and tells the nodes; returns how many."""
    over = Booking.objects.filter(
        Q(state__in=[State.STARTING, State.ACTIVE], planned_ends__lte=now)
        | Q(state=State.ENDING, allocations__state__in=STARTED)
        | Q(state=State.SCHEDULED, planned_ends__lte=now)
    )
    return sum(_end(booking, now) for booking in over.order_by("id").distinct())


def is_anything_due(now: datetime) -> bool:
    """Whether the clock or a new wish gives a cycle at `now` something to do.

    Bookings that wait with a promise are left out: nothing changes for them with time alone, and
    whatever makes room for them asks for a whole turn.
    """
    return Booking.objects.filter(
        Q(state=State.REQUESTED)
        | Q(state=State.SCHEDULED, planned_starts__lte=now)
        | Q(state__in=[State.STARTING, State.ACTIVE], planned_ends__lte=now)
        | Q(state=State.ENDING, allocations__state__in=STARTED)
        | Q(extension_until__isnull=False, state__in=EXTENDABLE)
    ).exists()


def is_anyone_waiting() -> bool:
    """Whether there is a wish for the solver to answer, or a risk that may be over."""
    return Booking.objects.filter(
        Q(state__in=[State.REQUESTED, State.QUEUED])
        | Q(at_risk_from__isnull=False, state__in=OPEN)
        | Q(extension_until__isnull=False, state__in=EXTENDABLE)
    ).exists()


def allocation_ready(allocation_id: UUID, devices: list[str], now: datetime) -> None:
    """The agent has handed the device over; the booking is active when all of it is there."""
    with transaction.atomic():
        booking = _booking_of(allocation_id)
        if booking is None:
            return
        changed = Allocation.objects.filter(
            id=allocation_id, state=Allocation.State.STARTING
        ).update(state=Allocation.State.ACTIVE, devices=devices, error="")
        waiting = booking.allocations.filter(state=Allocation.State.STARTING).exists()
        if not changed or waiting or booking.state != State.STARTING:
            return
        booking.state, booking.ready_at = State.ACTIVE, now
        _save(booking, "state", "ready_at")
        event_add(booking, kind="started", sentence="Ready: the devices are handed over.", now=now)


def allocation_empty(allocation_id: UUID, now: datetime) -> None:
    """The agent has proven the device empty; the booking is over when all of it is."""
    with transaction.atomic():
        booking = _booking_of(allocation_id)
        if booking is None:
            return
        allocation = Allocation.objects.get(id=allocation_id)
        is_over = allocation.period.upper <= now or booking.state == State.ENDING
        if allocation.state in STARTED and is_over:
            # The agent ended it by its own clock before our cycle did.
            _end(booking, now)
            allocation.refresh_from_db()
            booking.refresh_from_db()
        if allocation.state != Allocation.State.RELEASING:
            return
        Occupancy.objects.filter(allocation=allocation, closed=None).update(closed=now)
        Allocation.objects.filter(id=allocation_id).update(state=Allocation.State.ENDED)
        nodes_bump([allocation.gpu_id])
        if booking.state != State.ENDING:
            # It has gone on elsewhere, and this was what it left behind.
            return
        if not booking.allocations.filter(state__in=Allocation.LIVE, left=False).exists():
            _finish(booking, now)


def allocation_failed(allocation_id: UUID, error: str, now: datetime) -> None:
    """The agent could not make it true; the whole booking is taken back and costs nothing."""
    with transaction.atomic():
        booking = _booking_of(allocation_id)
        if booking is None:
            return
        changed = Allocation.objects.filter(id=allocation_id, state__in=STARTED).update(
            error=error[:200]
        )
        if not changed or booking.state not in (State.STARTING, State.ACTIVE):
            return
        booking.state, booking.outcome = State.ENDING, "failed"
        booking.released_at = now
        _save(booking, "state", "outcome", "released_at")
        event_add(booking, kind="ending", sentence=f"The node could not start it: {error}", now=now)
        _release_rows(booking)


def run_break_off(booking: Booking, now: datetime) -> None:
    """Takes the devices back in the middle of a run that counts for nothing; saves no booking.

    The places are free in the calendar from now on, the hardware when it is proven empty.
    """
    booking.released_at = now
    _release_rows(booking)
    booking.allocations.filter(state=Allocation.State.RELEASING).update(left=True)
    booking.released_at = booking.ready_at = None


def nodes_bump(gpu_ids: Iterable[UUID]) -> None:
    """Raises the generation of every node that has one of the GPUs: its assignment changed."""
    Node.objects.filter(gpus__in=list(gpu_ids)).update(generation=F("generation") + 1)


def _start(booking_id: UUID, now: datetime) -> bool:
    with transaction.atomic():
        booking = _lock(booking_id)
        if booking.state != State.SCHEDULED:
            return False
        rows = list(booking.allocations.filter(state=Allocation.State.PLANNED).order_by("id"))
        Occupancy.objects.bulk_create(
            [
                Occupancy(
                    allocation=row, gpu_id=row.gpu_id, slots=row.slots, share=row.share, opened=now
                )
                for row in rows
            ],
            ignore_conflicts=True,
        )
        if Occupancy.objects.filter(allocation__in=rows, closed=None).count() != len(rows):
            transaction.set_rollback(True)
            return False
        booking.allocations.filter(state=Allocation.State.PLANNED).update(
            state=Allocation.State.STARTING,
            leased=lease_possible(booking, [row.gpu_id for row in rows]),
        )
        nodes_bump(row.gpu_id for row in rows)
        booking.state = State.STARTING
        _save(booking, "state")
        event_add(booking, kind="starting", sentence="The node was told to start it.", now=now)
        return True


def _end(booking: Booking, now: datetime) -> bool:
    with transaction.atomic():
        booking = _lock(booking.id)
        ends = booking.planned_ends or now
        if booking.state == State.SCHEDULED and ends <= now:
            _expire(booking, now)
            return True
        if booking.state in (State.STARTING, State.ACTIVE) and ends <= now:
            booking.state, booking.outcome = State.ENDING, "completed"
            booking.released_at, booking.extension_until = ends, None
            _save(booking, "state", "outcome", "released_at", "extension_until")
            event_add(booking, kind="ending", sentence="Its time is over; being cleared.", now=now)
        if booking.state != State.ENDING:
            return False
        return _release_rows(booking)


def _release_rows(booking: Booking) -> bool:
    """Tells the nodes to clear it, and frees what is left of its time in the calendar.

    Whoever is planned there next still starts only when the occupancy is closed.
    """
    rows = list(booking.allocations.filter(state__in=STARTED))
    if not rows:
        return False
    period = rows[0].period
    released = booking.released_at or period.upper
    second = timedelta(seconds=1)
    whole = released.replace(microsecond=0) + (second if released.microsecond else timedelta(0))
    ends = min(period.upper, max(whole, period.lower + second))
    booking.allocations.filter(state__in=STARTED).update(
        state=Allocation.State.RELEASING, period=DateTimeTZRange(period.lower, ends)
    )
    nodes_bump(row.gpu_id for row in rows)
    return True


def _expire(booking: Booking, now: datetime) -> None:
    booking.allocations.filter(state=Allocation.State.PLANNED).update(
        state=Allocation.State.SUPERSEDED
    )
    booking.charged, booking.ended_at = earlier_settle(booking, now), now
    booking.state, booking.outcome = State.EXPIRED, "never_started"
    _save(booking, "state", "outcome", "charged", "ended_at")
    charged = money_text(booking.charged, booking.currency) if booking.charged else "Nothing"
    event_add(
        booking,
        kind="expired",
        sentence=f"Its device was never free in its window. {charged} is charged.",
        now=now,
    )


def _finish(booking: Booking, now: datetime) -> None:
    """Charges the seconds between ready and release, lets the rest of the hold go, and ends."""
    used = booking.used_seconds
    if booking.ready_at and booking.released_at and booking.outcome != "failed":
        used += max(0, int((booking.released_at - booking.ready_at).total_seconds()))
    due = min(booking.held, booking_cost(booking, used)) if used else Decimal(0)
    booking.charged = hold_settle(
        tenant_id=booking.tenant_id, reference=booking.id, amount=due, now=now
    )
    booking.state = State.FAILED if booking.outcome == "failed" else State.ENDED
    booking.ended_at = now
    _save(booking, "state", "charged", "ended_at")
    charged = money_text(booking.charged, booking.currency)
    freed = money_text(booking.held - booking.charged, booking.currency)
    event_add(
        booking,
        kind=str(booking.state),
        sentence=f"The device is proven empty. {charged} charged, {freed} free again.",
        now=now,
    )


def _booking_of(allocation_id: UUID) -> Booking | None:
    """The booking of an allocation, locked: its members' reports are taken one at a time."""
    return (
        Booking.objects.select_for_update(of=("self",))
        .filter(allocations__id=allocation_id)
        .first()
    )


def _lock(booking_id: UUID) -> Booking:
    return Booking.objects.select_for_update(of=("self",)).get(id=booking_id)


def _save(booking: Booking, *fields: str) -> None:
    booking.version += 1
    booking.save(update_fields=[*fields, "version"])
