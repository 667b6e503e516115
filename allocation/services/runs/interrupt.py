"""Interruptions: bookings leave hardware that failed, is drained or is in maintenance.

All of it follows from the present state of the hardware, so every turn of the cycle asks again.
Places that a booking leaves stay occupied until their node proves them empty, or an operator states
that the hardware is off.
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
from allocation.rules.ask import count_asked
from allocation.rules.states import RUNNING, State
from allocation.services.nodes.gpu_modes import pinned_to_other_mode
from allocation.services.record.conflicts import refund_note
from allocation.services.record.costs import (
    granted_seconds,
    run_saved_time,
    run_time,
    used_facts,
    used_time,
)
from allocation.services.record.history import Event, event_add
from allocation.services.record.places import place_data, place_of_row
from allocation.services.runs.end import STARTED, run_abandon, run_complete
from allocation.services.runs.transition import (
    booking_change,
    booking_lock,
    booking_move,
    planned_rows_supersede,
)
from allocation.words.events import EventText, event_text
from allocation.words.fleet import mode_text

logger = logging.getLogger(__name__)

# A booking on closed hardware gets other GPUs if it starts this soon; later ones may keep theirs.
REPLAN_AHEAD = timedelta(hours=1)
PLACED = (State.SCHEDULED, State.PAUSED)


@dataclass(frozen=True, slots=True)
class Interruption:
    """The rule that interrupts a booking, and the sentence for its history."""

    rule: str
    text: EventText


def is_hardware_to_vacate(now: datetime) -> bool:
    """Returns whether a booking has to leave its hardware, or must not start there."""
    maintenances = maintenance_open(now)
    return _rows_to_vacate(now, maintenances).exists() or _rows_blocked(now, maintenances).exists()


def rows_on_closed_hardware(now: datetime) -> tuple[QuerySet[Allocation], QuerySet[Allocation]]:
    """Returns the rows that have to leave their hardware, and those that can't start on it, for
    other reasons than a maintenance."""
    # Their GPUs are looked up first, because there are few of them, and many bookings.
    drained = Gpu.objects.filter(Q(drain_by__isnull=False) | Q(node__drain_by__isnull=False))
    closed = Gpu.objects.filter(
        ~Q(health=Gpu.Health.OK)
        | ~Q(node__state=Node.State.READY)
        | Q(node__long_unreachable=True)
        | ~Q(mode_pinned="")
    )
    return (
        _rows_to_vacate(now, ()).filter(gpu__in=drained),
        _rows_blocked(now, ()).filter(gpu__in=closed),
    )


def hardware_vacate(now: datetime, *, planned: bool = True) -> int:
    """Takes bookings off hardware that they can't stay or start on; returns how many.

    `planned`: also for maintenance and drains, not only off hardware that failed.
    """
    maintenances = maintenance_open(now)
    leaving = _rows_to_vacate(now, maintenances)
    if not planned:
        leaving = leaving.filter(gpu__drain_by__lte=now)
    interrupted = [
        run_interrupt(row.booking_id, _cause_of(row, now, maintenances), now, _failed_node(row))
        for row in _first_of_each(leaving)
    ]
    blocked = _first_of_each(_rows_blocked(now, maintenances)) if planned else []
    withdrawn = [_place_withdraw(row.booking_id, _cause_of(row, now, maintenances), now) for row in blocked]
    return sum(interrupted) + sum(withdrawn)


def run_interrupt(
    booking_id: UUID, cause: Interruption, now: datetime, failed_on: UUID | None = None
) -> bool:
    """Interrupts a run and returns the whole booking to its place in the queue.

    Only work that is known to be saved is charged. A flexible booking gets the rest of its time, a
    fixed one what is left of its window; its money stays held. The uncharged time is added up for
    the node `failed_on`. Returns False when nothing runs.
    """
    with transaction.atomic():
        booking = booking_lock(booking_id)
        if booking.state == State.PAUSING:
            return pausing_run_interrupt(booking, cause, now, is_hardware=True)
        if booking.state not in RUNNING:
            return False
        length = granted_seconds(booking)
        kept = run_saved_time(booking)
        if failed_on is not None:
            lost = run_time(booking, now) - kept
            refund_note(failed_on, lost.seconds * count_asked(booking.ask))
        places = [] if booking.starts else _places(booking, STARTED)
        run_abandon(booking, now, kept.seconds)
        detail = {"rule": cause.rule, "kept_seconds": kept.seconds}
        text = event_text("broken_off_saved" if kept.seconds else "broken_off", cause=cause.text)
        booking_move(
            booking,
            State.QUEUED,
            event=Event("broken_off", text, detail=detail),
            now=now,
            duration_seconds=length,
            **used_facts(used_time(booking) + kept),
            planned_places=places,
            hardware_lost_at=now,
            checked_in_at=None,
        )
        logger.warning("%s was interrupted: %s", booking.label, cause.text)
        return True


def pausing_run_interrupt(booking: Booking, cause: Interruption, now: datetime, *, is_hardware: bool) -> bool:
    """Gives up the devices of a booking during the grace period of its pause.

    The booking is paused when the grace period is over, whatever becomes of the devices, and can't
    resume on them. `is_hardware`: the hardware failed, which changes the bill; an unreachable node,
    or its report, proves nothing. Returns False when the devices were given up before.
    """
    if not booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False).exists():
        return False
    run_abandon(booking, now)
    booking.allocations.filter(suspended=True).update(suspended=False)
    text = event_text("pause_broken" if is_hardware else "pause_lost", cause=cause.text)
    event = Event("broken_off", text, detail={"rule": cause.rule})
    lost = now if is_hardware else booking.hardware_lost_at
    booking_change(booking, event=event, now=now, hardware_lost_at=lost)
    run_complete(booking, now)
    return True


def drain_notify(where: Q, by: datetime, cause: Interruption, now: datetime) -> None:
    """Notifies the owners of bookings that run `where` after `by` that they will be interrupted."""
    rows = Allocation.objects.filter(
        where, state__in=STARTED, booking__state__in=RUNNING, period__endswith__gt=by
    )
    for booking in Booking.objects.filter(allocations__in=rows).distinct().order_by("id"):
        event_add(
            booking,
            kind="leave_by",
            sentence=event_text("leave_by", cause=cause.text),
            now=now,
            detail={"rule": cause.rule, "until": by.isoformat()},
        )


def place_withdraw(booking: Booking, event: Event, now: datetime, **facts: object) -> None:
    """Takes back the planned GPUs of a locked booking; the next cycle plans it again.

    A flexible booking keeps its turn: its planned start stays.
    """
    if booking.allocations.filter(state=Allocation.State.PLANNED).exists():
        places = [] if booking.starts else _places(booking, (Allocation.State.PLANNED,))
        # The granted length includes extensions.
        facts |= {"planned_places": places, "duration_seconds": granted_seconds(booking)}
        planned_rows_supersede(booking)
    if booking.state == State.SCHEDULED:
        booking_move(booking, State.QUEUED, event=event, now=now, **facts)
    else:
        booking_change(booking, event=event, now=now, **facts)


def _place_withdraw(booking_id: UUID, cause: Interruption, now: datetime) -> bool:
    with transaction.atomic():
        booking = booking_lock(booking_id)
        if booking.state not in PLACED:
            return False
        text = event_text("place_withdrawn", cause=cause.text)
        place_withdraw(booking, Event("moved", text, detail={"rule": cause.rule}), now)
        return True


def _rows_to_vacate(now: datetime, maintenances: Iterable[Maintenance]) -> QuerySet[Allocation]:
    """Returns running rows on hardware that has to be empty by now.

    A pausing booking also leaves rows that are being cleared on lost hardware: nothing proves them
    empty.
    """
    over = Q(gpu__drain_by__lte=now) | Q(gpu__node__drain_by__lte=now)
    for maintenance in maintenances:
        if maintenance.drain_by <= now < maintenance.ends:
            over |= in_scope(maintenance)
    runs = Q(state__in=STARTED, booking__state__in=[*RUNNING, State.PAUSING])
    stuck = Q(state=Allocation.State.RELEASING, gpu__health=Gpu.Health.LOST)
    stuck &= Q(booking__state=State.PAUSING, abandoned=False)
    return Allocation.objects.filter(over, runs | stuck)


def _rows_blocked(now: datetime, maintenances: Iterable[Maintenance]) -> QuerySet[Allocation]:
    """Returns planned rows whose booking could not start, or not stay, on their hardware."""
    soon = Q(period__startswith__lte=now + REPLAN_AHEAD)
    ready = Q(gpu__node__state=Node.State.READY, gpu__node__long_unreachable=False)
    blocked = (soon & (~Q(gpu__health=Gpu.Health.OK) | ~ready)) | pinned_to_other_mode()
    for maintenance in maintenances:
        blocked |= in_scope(maintenance) & Q(period__overlap=(maintenance.starts, maintenance.ends))
    return Allocation.objects.filter(blocked, state=Allocation.State.PLANNED, booking__state__in=PLACED)


def _first_of_each(rows: QuerySet[Allocation]) -> list[Allocation]:
    """Returns one row per booking, on its worst hardware; bookings in the order of their ids."""
    ordered = rows.select_related("gpu__node__rack").order_by("booking_id", "gpu__drain_by", "id")
    return list(ordered.distinct("booking_id"))


def _cause_of(row: Allocation, now: datetime, maintenances: Iterable[Maintenance]) -> Interruption:
    """Returns why the row can't stay on its hardware: the first rule that applies."""
    gpu, node = row.gpu, row.gpu.node
    where = {"index": gpu.index, "node": node.name}
    if gpu.health != Gpu.Health.OK:
        why = gpu.health_text or gpu.health_reason.rstrip(".")
        return Interruption("R62", event_text("gpu_out", **where, why=why))
    if gpu.mode_pinned and (gpu.mode_pinned == "sliced") != bool(row.profile):
        mode = mode_text(gpu.mode_pinned)
        return Interruption("R95", event_text("gpu_pinned", **where, mode=mode))
    for maintenance in maintenances:
        if maintenance.covers(gpu) and maintenance.starts < row.period.upper:
            text = event_text("maintenance", where=maintenance.where, why=maintenance.reason)
            return Interruption("R33", text)
    if node.state == Node.State.READY and node.long_unreachable:
        return Interruption("R85", event_text("node_long_unreachable", node=node.name))
    if node.state_reason:
        why = node.state_text or node.state_reason.rstrip(".")
        return Interruption("R63", event_text("node_closed_why", node=node.name, why=why))
    return Interruption("R63", event_text("node_closed", node=node.name))


def _failed_node(row: Allocation) -> UUID | None:
    """Returns the node of a GPU that failed."""
    return row.gpu.node_id if row.gpu.health != Gpu.Health.OK else None


def _places(booking: Booking, states: Iterable[str]) -> list[dict[str, object]]:
    """Returns the booking's places, which it keeps as its planned start."""
    rows = booking.allocations.filter(state__in=states).order_by("gpu_id", "start")
    return [place_data(place_of_row(row)) for row in rows]
