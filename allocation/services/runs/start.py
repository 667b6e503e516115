"""Starts: telling nodes to begin what is due, and what agents say has begun. Many at a time, as a
cycle or a report brings them, in as few statements as for one."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from psycopg.types.json import Jsonb

from allocation.models import Allocation, Booking, Node, Occupancy
from allocation.rules.states import State
from allocation.services.nodes.leases import lease_possible
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import pause_resume
from allocation.services.runs.end import RESUME_PLANNED
from allocation.services.runs.resume import suspended_nodes_update
from allocation.services.runs.transition import Change, bookings_change

# Bookings that are locked at a time: people who want to cancel one wait as long as that takes.
BATCH_SIZE = 128
_WRITE = """
UPDATE allocation_allocation AS allocation SET state = 'active', devices = said.devices, error = ''
FROM unnest(%s::uuid[], %s::jsonb[]) AS said (id, devices) WHERE allocation.id = said.id
"""


def starts_due(now: datetime) -> int:
    """Tells nodes to start every scheduled booking whose time has come; returns how many.

    A gang starts whole or waits whole: an occupancy is opened for every member, and one that
    still lies on earlier work keeps all of them waiting.
    """
    due = Booking.objects.filter(
        Q(state=State.SCHEDULED) | Q(RESUME_PLANNED), planned_starts__lte=now, planned_ends__gt=now
    )
    # A node that does not answer may be gone: what has not begun there can still go elsewhere.
    silent = Allocation.objects.filter(
        state=Allocation.State.PLANNED, gpu__node__unreachable_since__isnull=False
    )
    due = due.exclude(id__in=silent.values("booking_id"))
    ids = list(due.order_by("planned_starts", "id").values_list("id", flat=True))
    return sum(_start(ids[at : at + BATCH_SIZE], now) for at in range(0, len(ids), BATCH_SIZE))


def allocations_ready(said: Mapping[UUID, Sequence[str]], now: datetime) -> None:
    """Agents have handed devices over; a booking is active when all of it is there."""
    with transaction.atomic():
        bookings = _locked(_bookings_of(said))
        rows = Allocation.objects.filter(id__in=list(said), state=Allocation.State.STARTING)
        changed = dict(rows.values_list("id", "booking_id"))
        _handed_over({row: said[row] for row in changed})
        waiting = Allocation.objects.filter(
            booking__in=bookings, state=Allocation.State.STARTING
        ).values_list("booking_id", flat=True)
        missing, here = set(waiting), set(changed.values())
        _active(
            [
                booking
                for booking in bookings
                if booking.state == State.STARTING and booking.id in here - missing
            ],
            now,
        )


def _handed_over(devices: Mapping[UUID, Sequence[str]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, [list(devices), [Jsonb(list(each)) for each in devices.values()]])


def _active(bookings: Sequence[Booking], now: datetime) -> None:
    said = "Resumed: the devices are handed over again, and are charged from now on."
    resumed = Event("resumed", said)
    started = Event("started", "Ready: the devices are handed over.")
    changes = []
    for booking in bookings:
        event = resumed if booking.pause_count and pause_resume(booking, now) else started
        changes.append(Change(booking, event, State.ACTIVE, {"ready_at": now}))
    bookings_change(changes, now=now)


def _start(ids: Sequence[UUID], now: datetime) -> int:
    """Starts all of them or, where one has to wait, each half for itself."""
    with transaction.atomic():
        # What they are is asked under the lock: somebody may just be taking one of them back.
        startable = (State.SCHEDULED, State.PAUSED)
        found = [each for each in _locked(ids) if each.state in startable]
        planned = Allocation.objects.filter(booking__in=found, state=Allocation.State.PLANNED)
        rows = list(planned.order_by("id"))
        placed = {row.booking_id for row in rows}
        bookings = [each for each in found if each.id in placed]
        if _occupied(rows, now):
            _begin(bookings, rows, now)
            return len(bookings)
        transaction.set_rollback(True)
    if len(ids) == 1:
        return 0
    middle = len(ids) // 2
    return _start(ids[:middle], now) + _start(ids[middle:], now)


def _occupied(rows: Sequence[Allocation], now: datetime) -> bool:
    """Opens an occupancy for each; False when one still lies on earlier work."""
    Occupancy.objects.bulk_create(
        [
            Occupancy(
                allocation=row, gpu_id=row.gpu_id, slots=row.slots, share=row.share, opened=now
            )
            for row in rows
        ],
        ignore_conflicts=True,
    )
    return Occupancy.objects.filter(allocation__in=rows, closed=None).count() == len(rows)


def _begin(bookings: Sequence[Booking], rows: Sequence[Allocation], now: datetime) -> None:
    gpus: dict[UUID, list[UUID]] = {booking.id: [] for booking in bookings}
    for row in rows:
        gpus[row.booking_id].append(row.gpu_id)
    leased = [booking for booking in bookings if lease_possible(booking, gpus[booking.id])]
    planned = Allocation.objects.filter(id__in=[row.id for row in rows])
    planned.filter(booking__in=leased).update(state=Allocation.State.STARTING, leased=True)
    planned.exclude(booking__in=leased).update(state=Allocation.State.STARTING, leased=False)
    _nodes_bump(planned)
    for booking in bookings:
        suspended_nodes_update(booking)
    event = Event("starting", "The node was told to start it.")
    bookings_change([Change(each, event, State.STARTING) for each in bookings], now=now)


def _bookings_of(allocations: Iterable[UUID]) -> "QuerySet[Allocation, UUID]":
    rows = Allocation.objects.filter(id__in=list(allocations))
    return rows.values_list("booking_id", flat=True)


def _nodes_bump(rows: "QuerySet[Allocation]") -> None:
    """Raises generations as often as if each booking had started alone: what is told does not
    depend on what came together."""
    here = rows.filter(gpu__node=OuterRef("pk")).order_by().values("gpu__node")
    times = here.annotate(times=Count("booking", distinct=True)).values("times")
    Node.objects.filter(gpus__allocation__in=rows).update(
        generation=F("generation") + Subquery(times)
    )


def _locked(ids: Iterable[UUID]) -> list[Booking]:
    """Always in one order: so does everyone who locks several."""
    rows = Booking.objects.select_for_update(of=("self",)).select_related("tier")
    return list(rows.filter(id__in=ids).order_by("id"))
