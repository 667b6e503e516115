"""What a weaker change takes off the calendar: later time, GPUs, or a start that is too early.

The booking's own fields follow at once. Its rows on the calendar, and its nodes, follow in the next
turn of the solver, which alone may write them.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Booking, BookingChange, PlannedStrength
from allocation.rules.ask import count_asked
from allocation.rules.states import PLANNED_TIMES, TERMINAL, State
from allocation.services.record.costs import run_time
from allocation.services.record.history import Event
from allocation.services.record.terms import Terms
from allocation.services.runs.end import nodes_bump
from allocation.services.runs.transition import (
    booking_change,
    booking_lock,
    booking_move,
    planned_rows_supersede,
)
from allocation.words.events import event_text

_SECOND = timedelta(seconds=1)


def is_awaited(booking: Booking) -> bool:
    """Whether other bookings are paused for it: a change must not make that useless."""
    if booking.state == State.QUEUED:
        return booking.starts is None and booking.planned_strength == PlannedStrength.FIRM
    rows = booking.allocations.filter(state__in=Allocation.LIVE, preemptor=True)
    return rows.exists()


def plan_cut(booking: Booking, terms: Terms, now: datetime) -> None:
    """Fits the plan of a locked booking to weaker terms; a start that is too early for them is
    planned again."""
    starts = booking.planned_starts
    if starts is None:
        return
    if starts < terms.not_before:
        _unplan(booking, now)
        return
    booking_change(
        booking,
        now=now,
        planned_ends=starts + timedelta(seconds=terms.duration_seconds),
        planned_places=booking.planned_places[: count_asked(terms.ask)],
    )


def _unplan(booking: Booking, now: datetime) -> None:
    planned_rows_supersede(booking)
    facts: dict[str, Any] = dict.fromkeys(PLANNED_TIMES)
    facts["planned_places"] = []
    if booking.state == State.SCHEDULED:
        event = Event("queued", event_text("queued_unplanned", because=""))
        booking_move(booking, State.QUEUED, event=event, now=now, **facts)
        return
    booking_change(booking, now=now, **facts)


def calendar_cuts_due() -> bool:
    """Returns whether the calendar has more of a booking than it still asks for."""
    return BookingChange.objects.filter(calendar_due=True).exists()


def calendar_cut(now: datetime) -> None:
    """Takes off the calendar what weaker changes have given up since the last turn."""
    due = BookingChange.objects.filter(calendar_due=True).values_list("booking_id", flat=True)
    for booking_id in sorted(set(due)):
        with transaction.atomic():
            booking = booking_lock(booking_id)
            _give_back(booking, now)
            _cut(booking)
            BookingChange.objects.filter(booking=booking, calendar_due=True).update(
                calendar_due=False
            )


def _give_back(booking: Booking, now: datetime) -> None:
    """Lets the nodes clear the places that a run gives back. It counts as used until now."""
    due = BookingChange.objects.filter(booking=booking, calendar_due=True)
    ids = [row for each in due for row in each.gives_back]
    rows = booking.allocations.filter(id__in=ids, state=Allocation.State.ACTIVE, abandoned=False)
    for row in rows.order_by("id"):
        ends = max(row.period.lower + _SECOND, now.replace(microsecond=0) + _SECOND)
        row.period = DateTimeTZRange(row.period.lower, min(row.period.upper, ends))
        row.state, row.abandoned = Allocation.State.RELEASING, True
        row.counted_seconds = run_time(booking, now).seconds
        row.extended_from = row.extended_cycle = None
        row.save(
            update_fields=["period", "state", "abandoned", "counted_seconds", "extended_from",
                           "extended_cycle"]
        )  # fmt: skip
        nodes_bump([row.gpu_id])


def _cut(booking: Booking) -> None:
    if booking.state in TERMINAL or booking.planned_ends is None:
        return
    rows = booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False)
    kept = sorted(rows, key=lambda row: (row.gpu_number, row.start))
    if booking.state == State.SCHEDULED:
        count = count_asked(booking.ask)
        gone = [row.id for row in kept[count:]]
        Allocation.objects.filter(id__in=gone).update(state=Allocation.State.SUPERSEDED)
        kept = kept[:count]
    for row in kept:
        if row.period.upper > booking.planned_ends:
            _shorten(row, booking.planned_ends)
    nodes_bump(row.gpu_id for row in kept)


def _shorten(row: Allocation, until: datetime) -> None:
    row.period = DateTimeTZRange(row.period.lower, until)
    if row.extended_from is not None and row.extended_from >= until:
        row.extended_from = row.extended_cycle = None
    row.save(update_fields=["period", "extended_from", "extended_cycle"])
