"""What follows from the clock and from proof: ends, and the last line of the bill."""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from django.db.models import F, Q

from allocation.models import Allocation, Booking, CompactionOrder, Node, Occupancy
from allocation.rules.charging import end_seconds
from allocation.rules.states import EXTENDABLE, OPEN, State
from allocation.services.record.conflicts import unready_note
from allocation.services.record.costs import (
    earlier_charges,
    final_settle,
    run_seconds,
    unused_seconds,
    waiting_settle,
)
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import (
    pause_acknowledge,
    pause_end,
    pause_open,
    pauses_due,
    pauses_expired,
    pauses_to_extend,
)
from allocation.services.runs.pause_settle import paused_booking_end, run_paused
from allocation.services.runs.transition import booking_change, booking_move
from billing.rules import money_text

logger = logging.getLogger(__name__)

STARTED = (Allocation.State.STARTING, Allocation.State.ACTIVE)
# Paused, with a place to go on.
RESUME_PLANNED = Q(
    state=State.PAUSED,
    id__in=Allocation.objects.filter(state=Allocation.State.PLANNED).values("booking_id"),
)
# Outcomes by which owners give up time that they still had.
ENDED_EARLY = ("cancelled", "released", "no_show")
# A node's clock may be a little fast.
CLOCK_TOLERANCE = timedelta(minutes=1)


def ends_due(now: datetime) -> int:
    """Ends what is over by the clock or was given back, and tells the nodes; returns how many."""
    over = Booking.objects.filter(_over(now) | Q(state=State.SCHEDULED, planned_ends__lte=now))
    return sum(_end(booking, now) for booking in over.order_by("id"))


def _over(now: datetime) -> Q:
    """What has to leave its place: its time is over, it was given back, or it is paused."""
    started = Allocation.objects.filter(state__in=STARTED).values("booking_id")
    here = Allocation.objects.filter(state__in=Allocation.LIVE, abandoned=False).values(
        "booking_id"
    )
    # Started, or without a device: all of it was left behind on hardware that failed.
    goes = Q(id__in=started) | ~Q(id__in=here)
    return (
        Q(state__in=[State.STARTING, State.ACTIVE], planned_ends__lte=now)
        | Q(goes, state=State.ENDING)
        | Q(goes, state=State.PAUSING, id__in=pauses_due(now).values("booking_id"))
        | Q(RESUME_PLANNED, planned_ends__lte=now)
        | Q(state=State.PAUSED, id__in=pauses_expired(now).values("booking_id"))
    )


def is_anything_due(now: datetime) -> bool:
    """Whether the clock or a new wish gives a cycle at `now` something to do.

    Bookings that wait with a promise are left out: nothing changes for them with time alone, and
    whatever makes room for them asks for a whole turn.
    """
    return (
        pauses_to_extend().exists()
        or Booking.objects.filter(
            Q(state=State.REQUESTED)
            | Q(state=State.SCHEDULED, planned_starts__lte=now)
            | Q(RESUME_PLANNED, planned_starts__lte=now)
            | Q(extension_until__isnull=False, state__in=EXTENDABLE)
            | _over(now)
        ).exists()
    )


def is_anything_undecided() -> bool:
    """Whether there is a wish for the solver to answer, or a risk that may be over."""
    return (
        CompactionOrder.objects.filter(decided_at=None).exists()
        or Booking.objects.filter(
            Q(state__in=[State.REQUESTED, State.QUEUED, State.PAUSING, State.PAUSED])
            | Q(at_risk_from__isnull=False, state__in=OPEN)
            | Q(extension_until__isnull=False, state__in=EXTENDABLE)
        ).exists()
    )


def allocation_saved(allocation_id: UUID, saved: datetime, now: datetime) -> None:
    """The owner told the agent that everything is saved here; a gang is saved when all of it is.

    While a pause counts down, saving after its notice ends the grace: the places are free for
    others at once, the devices only when they are proven empty.
    """
    with transaction.atomic():
        booking = _booking_of(allocation_id)
        if booking is None:
            return
        saved = min(saved, now)
        Allocation.objects.filter(id=allocation_id, state__in=STARTED).update(saved_at=saved)
        rows = booking.allocations.filter(state__in=STARTED)
        times = list(rows.values_list("saved_at", flat=True))
        if not times or None in times or booking.state not in (State.ACTIVE, State.PAUSING):
            return
        everywhere = min(time for time in times if time is not None)
        if booking.saved_at is None or booking.saved_at < everywhere:
            booking_change(booking, now=now, saved_at=everywhere)
        if pause_acknowledge(booking, everywhere, now):
            _end(booking, now)


def allocation_suspended(allocation_id: UUID) -> None:
    """What ran there is frozen on its node, and can go on only there."""
    Allocation.objects.filter(id=allocation_id).update(suspended=True)


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
        elif booking.state == State.STARTING and allocation.period.upper > now + CLOCK_TOLERANCE:
            # By a wrong clock it is over already, and nobody will begin it. See `run_disputed` for
            # what was handed over.
            allocation_failed(allocation_id, "it was cleared before it was ready", now)
        allocation.refresh_from_db()
        booking.refresh_from_db()
        if allocation.state != Allocation.State.RELEASING:
            return
        Occupancy.objects.filter(allocation=allocation, closed=None).update(closed=now)
        Allocation.objects.filter(id=allocation_id).update(state=Allocation.State.ENDED)
        nodes_bump([allocation.gpu_id])
        if booking.state not in (State.ENDING, State.PAUSING):
            # It has gone on elsewhere, and this was what it left behind.
            return
        run_complete(booking, now)


def allocation_failed(allocation_id: UUID, error: str, now: datetime) -> None:
    """The agent could not begin it; the whole booking is taken back, and this run, which was never
    handed over, costs nothing. What runs already does not fail by a word: see `run_disputed`."""
    with transaction.atomic():
        booking = _booking_of(allocation_id)
        if booking is None:
            return
        changed = Allocation.objects.filter(id=allocation_id, state__in=STARTED).update(
            error=error[:200]
        )
        if not changed or booking.state != State.STARTING:
            return
        event = Event("ending", f"The node could not start it: {error}")
        booking_move(booking, State.ENDING, event=event, now=now, outcome="failed", released_at=now)
        unready_note(booking, now)
        _release_rows(booking, now)


def run_abandon(booking: Booking, now: datetime, counted_seconds: int = 0) -> None:
    """Takes the devices back in a run of which `counted_seconds` count; changes no booking.

    The places are free in the calendar from now on, the hardware when it is proven empty.
    """
    _release_rows(booking, now)
    booking.allocations.filter(state=Allocation.State.RELEASING, abandoned=False).update(
        abandoned=True, counted_seconds=counted_seconds
    )


def nodes_bump(gpu_ids: Iterable[UUID]) -> None:
    """Raises the generation of every node that has one of the GPUs: its assignment changed."""
    Node.objects.filter(gpus__in=list(gpu_ids)).update(generation=F("generation") + 1)


def _end(booking: Booking, now: datetime) -> bool:
    with transaction.atomic():
        booking = _lock(booking.id)
        ends = booking.planned_ends or now
        if booking.state == State.PAUSED:
            return _not_resumed(booking, now)
        if booking.state == State.PAUSING:
            is_out = pauses_due(now).filter(booking=booking).exists()
            return is_out and (_release_rows(booking, None) or run_complete(booking, now))
        if booking.state == State.SCHEDULED and ends <= now:
            _expire(booking, now)
            return True
        if booking.state in (State.STARTING, State.ACTIVE) and ends <= now:
            event = Event("ending", "Its time is over; being cleared.")
            booking_move(
                booking, State.ENDING, event=event, now=now, outcome="completed", released_at=ends
            )
        if booking.state != State.ENDING:
            return False
        if booking.ready_at is None:
            unready_note(booking, now)
        return _release_rows(booking, booking.released_at) or run_complete(booking, now)


def run_complete(booking: Booking, now: datetime) -> bool:
    """The last line of a run that ends or pauses when nothing of it is left to be cleared; False
    while there is, or before its grace is over."""
    if booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False).exists():
        return False
    if booking.state == State.ENDING:
        _finish(booking, now)
        return True
    if not pauses_due(now).filter(booking=booking).exists():
        return False
    run_paused(booking, now)
    return True


def _release_rows(booking: Booking, released: datetime | None) -> bool:
    """Tells the nodes to clear it, and frees its time after `released` in the calendar, or after
    the save that ended a pause's grace.

    Whoever is planned there next still starts only when the occupancy is closed.
    """
    rows = list(booking.allocations.filter(state__in=STARTED))
    if not rows:
        return False
    period = rows[0].period
    pause = pause_open(booking) if booking.state == State.PAUSING else None
    released = (pause.acknowledged_at if pause else released) or period.upper
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
    charged = waiting_settle(booking, now)
    pause_end(booking, now)
    said = money_text(charged, booking.currency) if charged else "Nothing"
    event = Event("expired", f"Its device was never free in its window. {said} is charged.")
    booking_move(
        booking,
        State.EXPIRED,
        event=event,
        now=now,
        outcome="never_started",
        charged=charged,
        ended_at=now,
    )


def _not_resumed(booking: Booking, now: datetime) -> bool:
    """A paused booking's window is over, or the place that it should resume on was never free."""
    if pauses_expired(now).filter(booking=booking).exists():
        paused_booking_end(booking, "not_resumed", "Its window is over while it was paused.", now)
        return True
    if booking.planned_ends is None or booking.planned_ends > now:
        return False
    planned = booking.allocations.filter(state=Allocation.State.PLANNED)
    if not planned.update(state=Allocation.State.SUPERSEDED):
        return False
    event = Event("moved", "The place to go on was not free in time; another one is being found.")
    booking_change(booking, event=event, now=now, planned_starts=None, planned_ends=None)
    return True


def _finish(booking: Booking, now: datetime) -> None:
    """Charges the seconds of this run, lets the rest of the hold go, and ends."""
    run, rest = 0, 0
    if booking.released_at and booking.outcome != "failed":
        run = run_seconds(booking, booking.released_at)
        rest = unused_seconds(booking, booking.released_at)
    used = end_seconds(run, earlier_charges(booking), rest if booking.outcome in ENDED_EARLY else 0)
    amount = booking.settled + final_settle(booking, used + booking.fee_seconds, now)
    pause_end(booking, now)
    to = State.FAILED if booking.outcome == "failed" else State.ENDED
    charged = money_text(amount, booking.currency)
    freed = money_text(booking.hold_amount - amount, booking.currency)
    said = f"The device is proven empty. {charged} charged, {freed} free again."
    event = Event(str(to), said)
    booking_move(booking, to, event=event, now=now, charged=amount, ended_at=now)


def _booking_of(allocation_id: UUID) -> Booking | None:
    """The booking of an allocation, locked: its members' reports are taken one at a time."""
    return (
        Booking.objects.select_for_update(of=("self",))
        .filter(allocations__id=allocation_id)
        .first()
    )


def _lock(booking_id: UUID) -> Booking:
    return Booking.objects.select_for_update(of=("self",)).get(id=booking_id)
