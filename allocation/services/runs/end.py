"""Ends of runs: by the clock, by an owner, or by a node's report that the devices are empty."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from django.db.models import F, Q

from allocation.models import Allocation, Booking, Node, Occupancy
from allocation.rules.charging import end_time
from allocation.rules.states import PLANNED_TIMES, State
from allocation.services.record.conflicts import unready_note
from allocation.services.record.costs import (
    earlier_charges,
    final_settle,
    run_time,
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
)
from allocation.services.runs.pause_settle import paused_booking_end, run_paused
from allocation.services.runs.transition import (
    allocation_booking_lock,
    allocation_read,
    booking_change,
    booking_lock,
    booking_move,
    planned_rows_supersede,
)
from allocation.words.events import event_text
from billing.rates import Spell
from billing.rules import money_text, rest_in_cents

STARTED = (Allocation.State.STARTING, Allocation.State.ACTIVE)
# Paused bookings that have GPUs to resume on.
# The state comes first: PostgreSQL evaluates in this order, and most bookings are in another state.
RESUME_PLANNED = Q(state=State.PAUSED) & Q(
    id__in=Allocation.objects.filter(state=Allocation.State.PLANNED).values("booking_id")
)
# A lower bound that excludes no row. With both ends of a range PostgreSQL expects few rows and uses
# the index, also in a cached statement, which is planned without the times.
_LONG_AGO = timedelta(days=3_650)
# Outcomes by which owners give up time that is left.
ENDED_EARLY = ("cancelled", "released", "no_show")
# A node's clock may be fast by up to this much. A report that a run is over so shortly before its
# end is the agent's own end, not a fault.
CLOCK_TOLERANCE = timedelta(minutes=1)


def ends_due(now: datetime) -> int:
    """Ends bookings whose time is over or that were released, and asks their nodes to clear them.

    Returns how many.
    """
    over = Booking.objects.filter(bookings_over(now) | never_started(now))
    ids = list(over.order_by("id").values_list("id", flat=True))
    return sum(_end(booking_id, now) for booking_id in ids)


def start_planned_by(now: datetime) -> Q:
    """Returns the filter of bookings whose planned start has come."""
    return Q(planned_starts__gt=now - _LONG_AGO, planned_starts__lte=now)


def never_started(now: datetime) -> Q:
    """Returns the filter of bookings whose planned time has passed without a start."""
    return Q(start_planned_by(now), state=State.SCHEDULED, planned_ends__lte=now)


def bookings_over(now: datetime) -> Q:
    """Returns the filter of bookings that have to leave their GPUs, or can't resume any more."""
    return runs_over(now) | leaving_over(now)


def runs_over(now: datetime) -> Q:
    """Returns the filter of runs whose time has passed."""
    passed = Q(planned_ends__gt=now - _LONG_AGO, planned_ends__lte=now)
    return Q(passed, state__in=[State.STARTING, State.ACTIVE])


def leaving_over(now: datetime) -> Q:
    """Returns the filter of bookings that end or pause and have to leave their GPUs, and of those
    that can't resume any more."""
    started = Allocation.objects.filter(state__in=STARTED).values("booking_id")
    live = Allocation.objects.filter(state__in=Allocation.LIVE, abandoned=False)
    # Started, or without a device because all of its hardware failed.
    to_clear = Q(id__in=started) | ~Q(id__in=live.values("booking_id"))
    return (
        (Q(state=State.ENDING) & to_clear)
        | (Q(state=State.PAUSING) & Q(id__in=pauses_due(now).values("booking_id")) & to_clear)
        | Q(RESUME_PLANNED, planned_ends__lte=now)
        | (Q(state=State.PAUSED) & Q(id__in=pauses_expired(now).values("booking_id")))
    )


def allocation_saved(allocation_id: UUID, saved: datetime, now: datetime) -> None:
    """Records that the owner saved everything here; a gang is saved when all its members are.

    During a pause's grace period a save ends the grace. The time is free in the calendar at once,
    the devices when they are reported empty.
    """
    with transaction.atomic():
        booking = allocation_booking_lock(allocation_id)
        if booking is None:
            return
        saved = min(saved, now)
        Allocation.objects.filter(id=allocation_id, state__in=STARTED).update(saved_at=saved)
        rows = booking.allocations.filter(state__in=STARTED)
        times = list(rows.values_list("saved_at", flat=True))
        if not times or None in times or booking.state not in (State.ACTIVE, State.PAUSING):
            return
        all_saved = min(time for time in times if time is not None)
        if booking.saved_at is None or booking.saved_at < all_saved:
            booking_change(booking, now=now, saved_at=all_saved)
        if pause_acknowledge(booking, all_saved, now):
            _end(booking.id, now)


def allocation_empty(allocation_id: UUID, now: datetime) -> None:
    """Records that a device is proven empty; the booking is over when all of its devices are."""
    with transaction.atomic():
        booking = allocation_booking_lock(allocation_id)
        if booking is None:
            return
        allocation = allocation_read(allocation_id)
        is_over = allocation.period.upper <= now or booking.state == State.ENDING
        if allocation.state in STARTED and is_over:
            # The agent's clock ended it before the cycle did.
            _end(booking.id, now)
            booking.refresh_from_db()
            allocation.refresh_from_db()
        elif booking.state == State.STARTING and allocation.period.upper > now + CLOCK_TOLERANCE:
            # The node's clock is wrong, so the run would never begin. See `run_disputed` for runs
            # that were handed over.
            allocation_failed(allocation_id, "it was cleared before it was ready", now)
            booking.refresh_from_db()
            allocation.refresh_from_db()
        if allocation.state != Allocation.State.RELEASING:
            return
        Occupancy.objects.filter(allocation=allocation, closed=None).update(closed=now)
        Allocation.objects.filter(id=allocation_id).update(state=Allocation.State.ENDED)
        generations_raise([allocation.gpu_id])
        # In any other state the booking has moved on, and this device was left behind.
        if booking.state in (State.ENDING, State.PAUSING):
            run_complete(booking, now)


def allocation_failed(allocation_id: UUID, error: str, now: datetime) -> None:
    """Records that an agent could not start an allocation: the whole booking fails, at no charge.

    A run that was handed over does not fail by a report: see `run_disputed`.
    """
    with transaction.atomic():
        booking = allocation_booking_lock(allocation_id)
        if booking is None:
            return
        changed = Allocation.objects.filter(id=allocation_id, state__in=STARTED).update(error=error[:200])
        if not changed or booking.state != State.STARTING:
            return
        event = Event("ending", event_text("start_failed", why=error[:200]))
        booking_move(booking, State.ENDING, event=event, now=now, outcome="failed", released_at=now)
        unready_note(booking, now)
        _rows_release(booking, now)


def run_abandon(booking: Booking, now: datetime, counted_seconds: int = 0) -> None:
    """Gives up the devices of a run; does not change the booking.

    The time is free in the calendar from now on, the hardware when it is proven empty.
    `counted_seconds` of the run are charged; they count against caps of GPU hours.
    """
    _rows_release(booking, now)
    booking.allocations.filter(state=Allocation.State.RELEASING, abandoned=False).update(
        abandoned=True, counted_seconds=counted_seconds
    )


def generations_raise(gpu_ids: Iterable[UUID]) -> None:
    """Raises the generation of every node of the GPUs, because its assignment changed."""
    Node.objects.filter(gpus__in=list(gpu_ids)).update(generation=F("generation") + 1)


def run_complete(booking: Booking, now: datetime) -> bool:
    """Bills a run that ends or pauses.

    Returns False while a device has to be cleared, or before the grace period is over.
    """
    if booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False).exists():
        return False
    if booking.state == State.ENDING:
        _finish(booking, now)
        return True
    if not pauses_due(now).filter(booking=booking).exists():
        return False
    run_paused(booking, now)
    return True


def _end(booking_id: UUID, now: datetime) -> bool:
    """Takes the next step to the end of a booking that is over; returns whether there was one.

    A run on devices releases them first; the booking ends when they are reported empty.
    """
    with transaction.atomic():
        booking = booking_lock(booking_id)
        ends = booking.planned_ends or now
        if booking.state == State.PAUSED:
            return _paused_end(booking, now)
        if booking.state == State.PAUSING:
            is_due = pauses_due(now).filter(booking=booking).exists()
            return is_due and (_rows_release(booking, None) or run_complete(booking, now))
        if booking.state == State.SCHEDULED and ends <= now:
            _expire(booking, now)
            return True
        if booking.state in (State.STARTING, State.ACTIVE) and ends <= now:
            event = Event("ending", event_text("time_over"))
            booking_move(booking, State.ENDING, event=event, now=now, outcome="completed", released_at=ends)
        if booking.state != State.ENDING:
            return False
        if booking.ready_at is None:
            unready_note(booking, now)
        return _rows_release(booking, booking.released_at) or run_complete(booking, now)


def _rows_release(booking: Booking, released: datetime | None) -> bool:
    """Asks the nodes to clear the booking and frees its time in the calendar.

    The time is free after `released`, or after the save that ended a pause's grace. A booking that
    is planned there next starts only when the occupancy is closed. Returns False if the booking is
    on no device.
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
    generations_raise(row.gpu_id for row in rows)
    return True


def _expire(booking: Booking, now: datetime) -> None:
    planned_rows_supersede(booking)
    charged = waiting_settle(booking, now)
    pause_end(booking, now)
    text = event_text("expired", charged=money_text(charged, booking.currency) if charged else "")
    booking_move(
        booking,
        State.EXPIRED,
        event=Event("expired", text),
        now=now,
        outcome="never_started",
        charged=charged,
        ended_at=now,
    )


def _paused_end(booking: Booking, now: datetime) -> bool:
    """Ends a paused booking whose window is over, or takes back GPUs that never became free."""
    if pauses_expired(now).filter(booking=booking).exists():
        paused_booking_end(booking, "not_resumed", event_text("window_over"), now)
        return True
    if booking.planned_ends is None or booking.planned_ends > now:
        return False
    if not planned_rows_supersede(booking):
        return False
    event = Event("moved", event_text("resume_missed"))
    booking_change(booking, event=event, now=now, **dict.fromkeys(PLANNED_TIMES))
    return True


def _finish(booking: Booking, now: datetime) -> None:
    """Charges the seconds of this run, releases the rest of the hold, and ends the booking."""
    run, rest = Spell(), 0
    if booking.released_at and booking.outcome != "failed":
        run = run_time(booking, booking.released_at)
        rest = unused_seconds(booking, booking.released_at)
    given_up = rest if booking.outcome in ENDED_EARLY else 0
    used = end_time(run, earlier_charges(booking), given_up)
    amount = booking.settled + final_settle(booking, used, now, booking.fee_seconds)
    pause_end(booking, now)
    to = State.FAILED if booking.outcome == "failed" else State.ENDED
    text = event_text(
        "cleared",
        charged=money_text(amount, booking.currency),
        freed=money_text(rest_in_cents(booking.hold_amount, amount), booking.currency),
    )
    booking_move(booking, to, event=Event(str(to), text), now=now, charged=amount, ended_at=now)
