"""Work leaves hardware that failed or is taken out: whole gangs go back in line, at no loss.

All of it follows from what is true of the hardware now, so it is safe to ask again at any time: a
turn of the cycle does, before it looks. Places that are taken from a booking stay occupied until
their node proves them empty, or an operator states that the hardware is off.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.models import Allocation, Booking, Gpu, Maintenance, Node
from allocation.queries.fleet.maintenance import in_scope, maintenance_open
from allocation.rules.states import State
from allocation.services.nodes.gpu_modes import pinned_to_other_mode
from allocation.services.record.conflicts import refund_note
from allocation.services.record.costs import granted_seconds, run_saved_seconds, run_seconds
from allocation.services.record.history import Event, event_add
from allocation.services.record.places import place_data, place_of_row
from allocation.services.runs.end import STARTED, run_abandon
from allocation.services.runs.pause_breaks import pausing_run_interrupt
from allocation.services.runs.transition import booking_change, booking_move
from allocation.words.fleet import MODE_WORDS

logger = logging.getLogger(__name__)

# What starts within this on hardware that takes no work is placed anew; what starts later may still
# find it well again.
REPLAN_AHEAD = timedelta(hours=1)
RUNNING = (State.STARTING, State.ACTIVE)
# What is paused has a place to go on.
PLACED = (State.SCHEDULED, State.PAUSED)


@dataclass(frozen=True, slots=True)
class Interruption:
    """The rule of the catalogue, and a sentence without clock times for the booking's history."""

    rule: str
    sentence: str


def is_hardware_to_vacate(now: datetime) -> bool:
    """Whether any booking has to leave its hardware, or must not start there."""
    blackouts = maintenance_open(now)
    return _rows_to_vacate(now, blackouts).exists() or _rows_blocked(now, blackouts).exists()


def hardware_vacate(now: datetime, *, planned: bool = True) -> int:
    """Takes bookings off hardware that they can't stay or start on; returns how many.

    Without `planned` only what runs on hardware that failed: maintenance and drains wait.
    """
    blackouts = maintenance_open(now)
    leaving = _rows_to_vacate(now, blackouts)
    if not planned:
        rows = _first_of_each(leaving.filter(gpu__drain_by__lte=now))
        return sum(
            run_interrupt(
                row.booking_id, _interruption_of(row, now, blackouts), now, _failed_on(row)
            )
            for row in rows
        )
    return _rows_vacate(_first_of_each(leaving), now, blackouts)


def _rows_vacate(leaving: list[Allocation], now: datetime, blackouts: list[Maintenance]) -> int:
    broken = [
        run_interrupt(row.booking_id, _interruption_of(row, now, blackouts), now, _failed_on(row))
        for row in leaving
    ]
    blocked = _first_of_each(_rows_blocked(now, blackouts))
    unplaced = [
        _place_withdraw(row.booking_id, _interruption_of(row, now, blackouts), now)
        for row in blocked
    ]
    return sum(broken) + sum(unplaced)


def run_interrupt(
    booking_id: UUID, cause: Interruption, now: datetime, failed_on: UUID | None = None
) -> bool:
    """Breaks a run off and puts the whole booking back in line, where it was; False if none runs.

    The broken run is not charged, but for what is known to be saved. A flexible booking gets the
    rest of its time, a fixed one what is left of its window. Its money stays held. What is not
    charged is added up for the node that it `failed_on`.
    """
    with transaction.atomic():
        booking = Booking.objects.select_for_update(of=("self",)).get(id=booking_id)
        if booking.state == State.PAUSING:
            return pausing_run_interrupt(booking, cause.rule, cause.sentence, now, is_hardware=True)
        if booking.state not in RUNNING:
            return False
        length = granted_seconds(booking)
        kept = run_saved_seconds(booking)
        if failed_on is not None:
            refund_note(failed_on, (run_seconds(booking, now) - kept) * booking.ask["count"])
        places = [] if booking.starts else _places(booking, STARTED)
        run_abandon(booking, now, kept)
        booking_move(
            booking,
            State.QUEUED,
            event=_broken_off(cause, kept),
            now=now,
            duration_seconds=length,
            used_seconds=booking.used_seconds + kept,
            planned_places=places,
            hardware_lost_at=now,
            checked_in_at=None,
        )
        logger.warning("%s was broken off: %s", booking.label, cause.sentence)
        return True


def _broken_off(cause: Interruption, kept: int) -> Event:
    left = (
        "with the time it has left: what it has saved is charged, and not done again."
        if kept
        else "with all the time it had; the run that was broken off is not charged."
    )
    return Event(
        "broken_off",
        f"{cause.sentence} It goes back in line where it was, {left}",
        detail={"rule": cause.rule, "kept_seconds": kept},
    )


def drain_notify(where: Q, by: datetime, cause: Interruption, now: datetime) -> None:
    """Tells the owners of what runs `where`, longer than until `by`, that it will be broken off."""
    rows = Allocation.objects.filter(
        where, state__in=STARTED, booking__state__in=RUNNING, period__endswith__gt=by
    )
    for booking in Booking.objects.filter(allocations__in=rows).distinct().order_by("id"):
        event_add(
            booking,
            kind="leave_by",
            sentence=f"{cause.sentence} What still runs there then starts again elsewhere, and "
            "that run is not charged.",
            now=now,
            detail={"rule": cause.rule, "until": by.isoformat()},
        )


def _place_withdraw(booking_id: UUID, cause: Interruption, now: datetime) -> bool:
    """Takes back the place of a booking that has not started; the next decision finds another."""
    with transaction.atomic():
        booking = Booking.objects.select_for_update(of=("self",)).get(id=booking_id)
        if booking.state not in PLACED:
            return False
        planned = (Allocation.State.PLANNED,)
        facts = {
            "duration_seconds": granted_seconds(booking),
            "planned_places": [] if booking.starts else _places(booking, planned),
        }
        booking.allocations.filter(state__in=planned).update(state=Allocation.State.SUPERSEDED)
        said = f"{cause.sentence} Another place is being found."
        event = Event("moved", said, detail={"rule": cause.rule})
        if booking.state == State.SCHEDULED:
            booking_move(booking, State.QUEUED, event=event, now=now, **facts)
        else:
            booking_change(booking, event=event, now=now, **facts)
        return True


def _rows_to_vacate(now: datetime, blackouts: Iterable[Maintenance]) -> QuerySet[Allocation]:
    """Rows of running bookings on hardware that work has to have left by now; of those that pause
    also what is being cleared on lost hardware, which proves nothing."""
    over = Q(gpu__drain_by__lte=now) | Q(gpu__node__drain_by__lte=now)
    for blackout in blackouts:
        if blackout.drain_by <= now < blackout.ends:
            over |= in_scope(blackout)
    runs = Q(state__in=STARTED, booking__state__in=[*RUNNING, State.PAUSING])
    stuck = Q(state=Allocation.State.RELEASING, gpu__health=Gpu.Health.LOST)
    stuck &= Q(booking__state=State.PAUSING, abandoned=False)
    return Allocation.objects.filter(over, runs | stuck)


def _rows_blocked(now: datetime, blackouts: Iterable[Maintenance]) -> QuerySet[Allocation]:
    """Rows of bookings that could not start where they are planned, or not stay there."""
    soon = Q(period__startswith__lte=now + REPLAN_AHEAD)
    ready = Q(gpu__node__state=Node.State.READY, gpu__node__long_unreachable=False)
    blocked = (soon & (~Q(gpu__health=Gpu.Health.OK) | ~ready)) | pinned_to_other_mode()
    for blackout in blackouts:
        blocked |= in_scope(blackout) & Q(period__overlap=(blackout.starts, blackout.ends))
    return Allocation.objects.filter(
        blocked, state=Allocation.State.PLANNED, booking__state__in=PLACED
    )


def _first_of_each(rows: QuerySet[Allocation]) -> list[Allocation]:
    """One row per booking, those on the worst hardware first; bookings in order of their ids."""
    ordered = rows.select_related("gpu__node__rack").order_by("booking_id", "gpu__drain_by", "id")
    return list(ordered.distinct("booking_id"))


def _interruption_of(
    row: Allocation, now: datetime, blackouts: Iterable[Maintenance]
) -> Interruption:
    gpu, node = row.gpu, row.gpu.node
    if gpu.health != Gpu.Health.OK:
        where = f"GPU {gpu.index} of {node.name}"
        return Interruption("R62", f"{where} is out of service: {gpu.health_reason.rstrip('.')}.")
    if gpu.mode_pinned and (gpu.mode_pinned == "sliced") != bool(row.profile):
        where = f"GPU {gpu.index} of {node.name}"
        return Interruption(
            "R95", f"An operator has pinned {where} to {MODE_WORDS[gpu.mode_pinned]}."
        )
    for blackout in blackouts:
        if blackout.covers(gpu) and blackout.starts < row.period.upper:
            return Interruption("R33", f"Maintenance of {blackout.where}: {blackout.reason}.")
    if node.state == Node.State.READY and node.long_unreachable:
        return Interruption("R85", f"{node.name} has not answered for long.")
    why = f": {node.state_reason.rstrip('.')}" if node.state_reason else ""
    return Interruption("R63", f"{node.name} takes no work now{why}.")


def _failed_on(row: Allocation) -> UUID | None:
    """The node that said so, where hardware failed."""
    return row.gpu.node_id if row.gpu.health != Gpu.Health.OK else None


def _places(booking: Booking, states: Iterable[str]) -> list[dict[str, object]]:
    """Where it was, so that it keeps its turn: a promise that its hardware has broken."""
    rows = booking.allocations.filter(state__in=states).order_by("gpu_id", "start")
    return [place_data(place_of_row(row)) for row in rows]
