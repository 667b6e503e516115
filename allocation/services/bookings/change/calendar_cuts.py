"""What a weaker change takes off the calendar: later time, GPUs, or a start that is too early.

The booking's own fields follow at once. Its rows on the calendar, and its nodes, follow in the next
turn of the solver, which alone may write them.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from django.db.models import Max, Q, QuerySet, Sum

from allocation.models import Allocation, Booking, BookingChange, Decision, PlannedStrength
from allocation.rules.ask import MIN_DURATION_SECONDS, count_asked
from allocation.rules.states import PLANNED_TIMES, TERMINAL, State
from allocation.services.record.costs import run_time
from allocation.services.record.history import Event
from allocation.services.record.terms import Terms
from allocation.services.runs.end import generations_raise
from allocation.services.runs.transition import (
    booking_change,
    booking_lock,
    booking_move,
    planned_rows_supersede,
)
from allocation.words.events import event_text
from tenants.models import Quota

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


def resume_cut(booking: Booking, until: datetime, now: datetime) -> None:
    """Fits the planned resume of a locked fixed window to its earlier end; one that leaves less
    than a minute of it is planned again."""
    starts, ends = booking.planned_starts, booking.planned_ends
    if starts is None or ends is None:
        return
    if until - starts < timedelta(seconds=MIN_DURATION_SECONDS):
        _unplan(booking, now)
        return
    booking_change(booking, now=now, planned_ends=min(ends, until))


def _unplan(booking: Booking, now: datetime) -> None:
    planned_rows_supersede(booking)
    facts: dict[str, Any] = dict.fromkeys(PLANNED_TIMES)
    facts["planned_places"] = []
    if booking.state == State.SCHEDULED:
        event = Event("queued", event_text("queued_unplanned", because=""))
        booking_move(booking, State.QUEUED, event=event, now=now, **facts)
        return
    booking_change(booking, now=now, **facts)


def calendar_cuts_due() -> QuerySet[BookingChange]:
    """Returns changes of bookings of which the calendar has more than they still ask for."""
    return BookingChange.objects.filter(calendar_due=True)


def calendar_cut(now: datetime) -> None:
    """Takes off the calendar what weaker changes have given up since the last turn."""
    due = calendar_cuts_due().values_list("booking_id", flat=True)
    for booking_id in sorted(set(due)):
        with transaction.atomic():
            booking = booking_lock(booking_id)
            gone = _give_back(booking, now) + _cut(booking)
            if gone:
                _grant_anew(booking, gone)
            BookingChange.objects.filter(booking=booking, calendar_due=True).update(calendar_due=False)


def _give_back(booking: Booking, now: datetime) -> int:
    """Lets the nodes clear the places that a run gives back, which count as used until now.
    Returns their units."""
    due = BookingChange.objects.filter(booking=booking, calendar_due=True)
    ids = [row for each in due for row in each.gives_back]
    rows = booking.allocations.filter(id__in=ids, state=Allocation.State.ACTIVE, abandoned=False)
    gone = list(rows.order_by("id"))
    for row in gone:
        ends = max(row.period.lower + _SECOND, now.replace(microsecond=0) + _SECOND)
        row.period = DateTimeTZRange(row.period.lower, min(row.period.upper, ends))
        row.state, row.abandoned = Allocation.State.RELEASING, True
        row.counted_seconds = run_time(booking, now).seconds
        row.extended_from = row.extended_cycle = None
        row.save(
            update_fields=[
                "period",
                "state",
                "abandoned",
                "counted_seconds",
                "extended_from",
                "extended_cycle",
            ]
        )
        generations_raise([row.gpu_id])
    return sum(row.units for row in gone)


def _cut(booking: Booking) -> int:
    """Takes off what is over its end or its number. Returns the units of what is gone."""
    if booking.state in TERMINAL or booking.planned_ends is None:
        return 0
    units = 0
    rows = booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False)
    kept = sorted(rows, key=lambda row: (row.gpu_number, row.start))
    if booking.state == State.SCHEDULED:
        count = count_asked(booking.ask)
        gone = [row.id for row in kept[count:]]
        units = sum(row.units for row in kept[count:])
        Allocation.objects.filter(id__in=gone).update(state=Allocation.State.SUPERSEDED)
        kept = kept[:count]
    for row in kept:
        if row.period.upper > booking.planned_ends:
            _shorten(row, booking.planned_ends)
    generations_raise(row.gpu_id for row in kept)
    return units


def _grant_anew(booking: Booking, gone: int) -> None:
    """Gives a booking that borrowed, and has fewer units now, a grant after all others. With its
    old one it would take the guarantee from bookings that were granted since."""
    rows = booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False)
    first = rows.order_by("granted_cycle", "granted_position").first()
    if first is None or _was_inside(booking, first, gone):
        return
    decision = Decision.objects.latest("id").id
    of_cycle = Allocation.objects.filter(granted_cycle=decision)
    last = of_cycle.aggregate(last=Max("granted_position"))["last"]
    rows.update(
        granted_cycle=decision,
        granted_position=0 if last is None else last + 1,
        extended_from=None,
        extended_cycle=None,
    )


def _was_inside(booking: Booking, row: Allocation, gone: int) -> bool:
    """Whether it was inside its organisation's guarantee with `gone` units more, next to all that
    was granted before it and overlaps it."""
    model = row.model_id
    quotas = Quota.objects.filter(tenant_id=booking.tenant_id, project=None)
    guaranteed = quotas.filter(gpu_class=booking.planned_class).aggregate(units=Sum("guaranteed_units"))[
        "units"
    ]
    before = Allocation.objects.filter(
        Q(granted_cycle__lt=row.granted_cycle or 0)
        | Q(granted_cycle=row.granted_cycle, granted_position__lt=row.granted_position or 0),
        tenant_id=booking.tenant_id,
        model_id=model,
        state__in=Allocation.LIVE,
        abandoned=False,
        period__overlap=row.period,
    ).exclude(booking=booking)
    units = before.aggregate(units=Sum("units"))["units"] or 0
    own = booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False)
    kept = own.aggregate(units=Sum("units"))["units"] or 0
    return bool(units + kept + gone <= (guaranteed or 0))


def _shorten(row: Allocation, until: datetime) -> None:
    row.period = DateTimeTZRange(row.period.lower, until)
    if row.extended_from is not None and row.extended_from >= until:
        row.extended_from = row.extended_cycle = None
    row.save(update_fields=["period", "extended_from", "extended_cycle"])
