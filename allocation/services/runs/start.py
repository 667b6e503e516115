"""Starts: nodes are asked to start bookings and report their devices, in time or late.

A cycle or a report brings many bookings at a time; they take as few statements as one.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from psycopg.types.json import Jsonb

from allocation.models import Allocation, Booking, GpuEvent, Node, Occupancy
from allocation.queries.fleet.stops import bookings_covered, stops_in_force
from allocation.rules.states import State
from allocation.services.nodes.fleet import node_policy
from allocation.services.nodes.leases import lease_possible
from allocation.services.record.costs import setup_charge
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import pause_resume
from allocation.services.runs.end import RESUME_PLANNED, start_planned_by
from allocation.services.runs.resume import suspended_nodes_update
from allocation.services.runs.transition import (
    Change,
    booking_change,
    booking_lock,
    bookings_change,
)
from allocation.words.events import event_text
from allocation.words.fleet import fleet_text
from allocation.words.reasons import reason_data
from solver.reasons.reason import reason
from tenants.failures import each_apart
from tenants.platform.database.compiled import Compiled

# Bookings that are locked at a time: an owner waits as long to cancel one of them.
BATCH_SIZE = 128
SLOW = "start_slow"
_DEVICES_WRITE = """
UPDATE allocation_allocation AS allocation SET state = 'active', devices = new.devices, error = ''
FROM unnest(%s::uuid[], %s::jsonb[]) AS new (id, devices) WHERE allocation.id = new.id
"""
# A stop or a budget keeps these from starting or resuming (`plans.restraints`). A fixed window that
# may not borrow any more keeps its borrowed GPUs and starts late.
RESTRAINED = Q(is_drained=True) | Q(state=State.SCHEDULED, may_borrow=False, borrowed_units__gt=0)


# Bookings are locked in the order that every other transaction uses.
_locked = Compiled(lambda _, keys: _lockable().filter(id__in=keys).order_by("id"))
_locked_with = Compiled(
    lambda _, keys: (
        _lockable().filter(id__in=Allocation.objects.filter(id__in=keys).values("booking_id")).order_by("id")
    )
)
_starting = Compiled(
    lambda _, keys: Allocation.objects.filter(id__in=keys, state=Allocation.State.STARTING).values_list(
        "id", "booking_id"
    )
)
_waiting = Compiled(
    lambda _, keys: Allocation.objects.filter(booking__in=keys, state=Allocation.State.STARTING).values_list(
        "booking_id", flat=True
    )
)
_planned = Compiled(
    lambda _, keys: Allocation.objects.filter(booking__in=keys, state=Allocation.State.PLANNED).order_by("id")
)


def _lockable() -> QuerySet[Booking]:
    return Booking.objects.select_for_update(of=("self",)).select_related("tier")


def bookings_to_start(now: datetime) -> QuerySet[Booking]:
    """Returns the bookings whose planned start has come and that nothing restrains."""
    due = Booking.objects.filter(
        Q(state=State.SCHEDULED) | RESUME_PLANNED, start_planned_by(now), planned_ends__gt=now
    )
    due = due.exclude(RESTRAINED)
    # An unreachable node may be lost: a booking that has not started there can still move.
    unreachable = Allocation.objects.filter(
        state=Allocation.State.PLANNED, gpu__node__unreachable_since__isnull=False
    )
    return due.exclude(id__in=unreachable.values("booking_id"))


def starts_due(now: datetime) -> int:
    """Asks nodes to start every scheduled booking that is due; returns how many.

    A gang starts whole or waits whole: an occupancy is opened for every member, and one place that
    earlier work still occupies keeps all of them waiting.
    """
    due = bookings_to_start(now)
    if stops := stops_in_force(now):
        # `restraints_apply` marks at most 500 bookings per turn, so a stop may have unmarked ones.
        due = due.exclude(bookings_covered(stops))
    ids = list(due.order_by("planned_starts", "id").values_list("id", flat=True))
    return sum(_start(ids[at : at + BATCH_SIZE], now) for at in range(0, len(ids), BATCH_SIZE))


def allocations_ready(devices: Mapping[UUID, Sequence[str]], now: datetime) -> None:
    """Records devices that agents have handed over; a booking with all of them is active."""
    with transaction.atomic():
        bookings = _locked_with(now, devices)
        ready = dict(_starting(now, devices))
        values = [Jsonb(list(devices[row])) for row in ready]
        with connection.cursor() as cursor:
            cursor.execute(_DEVICES_WRITE, [list(ready), values])
        complete = set(ready.values()) - set(_waiting(now, [each.id for each in bookings]))
        _activate([each for each in bookings if each.state == State.STARTING and each.id in complete], now)


def slow_starts_notify(now: datetime) -> int:
    """Notifies owners of starts that are late, once each; returns how many.

    Operators see the number of late starts per node while there are any. Nothing is charged before
    the devices are handed over.
    """
    rows = _slow_starts(now)
    per_node = rows.values_list("gpu__node").annotate(waiting=Count("booking", distinct=True))
    _nodes_note(dict(per_node), now)
    unnotified = rows.exclude(booking__reasons__contains=[{"code": SLOW}])
    bookings = Booking.objects.filter(id__in=unnotified.values("booking")).only("id", "tenant")
    return each_apart("slow starts", bookings, lambda each: _owner_notify(each.id, now), now)


def _activate(bookings: Sequence[Booking], now: datetime) -> None:
    changes = []
    for booking in bookings:
        kind = "resumed" if booking.pause_count and pause_resume(booking, now) else "started"
        event = Event(kind, event_text(kind))
        facts = {"ready_at": now, **setup_charge(booking, now)}
        changes.append(Change(booking, event, State.ACTIVE, facts))
    bookings_change(changes, now=now)


def _start(ids: Sequence[UUID], now: datetime) -> int:
    """Starts all of the bookings; halves the batch until only those wait that have to.

    Returns how many started.
    """
    with transaction.atomic():
        # The state is read under the lock: an owner may be cancelling one of them.
        startable = (State.SCHEDULED, State.PAUSED)
        locked = _locked(now, ids)
        found = [each for each in locked if each.state in startable and not _is_restrained(each)]
        rows = _planned(now, [each.id for each in found])
        placed = {row.booking_id for row in rows}
        bookings = [each for each in found if each.id in placed]
        if _occupancies_open(rows, now):
            _begin(bookings, rows, now)
            return len(bookings)
        transaction.set_rollback(True)
    if len(ids) == 1:
        return 0
    middle = len(ids) // 2
    return _start(ids[:middle], now) + _start(ids[middle:], now)


def _occupancies_open(rows: Sequence[Allocation], now: datetime) -> bool:
    """Opens an occupancy for each row; returns False when earlier work still occupies one."""
    Occupancy.objects.bulk_create(
        [
            Occupancy(allocation=row, gpu_id=row.gpu_id, slots=row.slots, share=row.share, opened=now)
            for row in rows
        ],
        ignore_conflicts=True,
    )
    return Occupancy.objects.filter(allocation__in=rows, closed=None).count() == len(rows)


def _is_restrained(booking: Booking) -> bool:
    """Whether `RESTRAINED` holds for a locked booking."""
    borrows = not booking.may_borrow and booking.borrowed_units > 0
    return booking.is_drained or (borrows and booking.state == State.SCHEDULED)


def _begin(bookings: Sequence[Booking], rows: Sequence[Allocation], now: datetime) -> None:
    gpus: dict[UUID, list[UUID]] = {booking.id: [] for booking in bookings}
    for row in rows:
        gpus[row.booking_id].append(row.gpu_id)
    leased = [booking for booking in bookings if lease_possible(booking, gpus[booking.id])]
    planned = Allocation.objects.filter(id__in=[row.id for row in rows])
    planned.filter(booking__in=leased).update(state=Allocation.State.STARTING, leased=True)
    planned.exclude(booking__in=leased).update(state=Allocation.State.STARTING, leased=False)
    _generations_raise(planned)
    for booking in bookings:
        suspended_nodes_update(booking)
    event = Event("starting", event_text("starting"))
    bookings_change([Change(each, event, State.STARTING) for each in bookings], now=now)


def _generations_raise(rows: "QuerySet[Allocation]") -> None:
    """Raises generations by one per booking, so that they do not depend on the batches."""
    here = rows.filter(gpu__node=OuterRef("pk")).order_by().values("gpu__node")
    times = here.annotate(times=Count("booking", distinct=True)).values("times")
    Node.objects.filter(gpus__allocation__in=rows).update(generation=F("generation") + Subquery(times))


def _slow_starts(now: datetime) -> "QuerySet[Allocation]":
    """Returns rows of starts that are not ready in time, or that wait for an unreachable node."""
    since = now - timedelta(seconds=node_policy().start_slow)
    starting = Q(state=Allocation.State.STARTING, booking__state=State.STARTING)
    starting &= Q(occupancy__closed=None, occupancy__opened__lte=since)
    due = Q(state=Allocation.State.PLANNED, booking__state=State.SCHEDULED)
    due &= Q(booking__planned_starts__lte=since, gpu__node__unreachable_since__isnull=False)
    return Allocation.objects.filter(starting | due)


def _owner_notify(booking_id: UUID, now: datetime) -> bool:
    with transaction.atomic():
        booking = booking_lock(booking_id)
        rows = _slow_starts(now).filter(booking=booking).select_related("gpu__node")
        first = rows.order_by("gpu__node__name").first()
        if first is None:
            return False
        node = first.gpu.node
        answers = node.observed_generation >= node.generation and node.unreachable_since is None
        why = reason(SLOW, node=node.name, answers=int(answers))
        data = reason_data(why)
        event = Event(SLOW, event_text("because", because=data), detail={"rule": why.rule})
        booking_change(booking, event=event, now=now, reasons=[data])
        return True


def _nodes_note(waiting: dict[UUID, int], now: datetime) -> None:
    """Keeps one line in the history of each node while bookings wait for it."""
    known = GpuEvent.objects.filter(kind=GpuEvent.Kind.SLOW, until=None)
    known.exclude(node__in=waiting).update(until=now)
    GpuEvent.objects.bulk_create(
        [
            GpuEvent(
                node_id=node,
                kind=GpuEvent.Kind.SLOW,
                at=now,
                **GpuEvent.text_columns(fleet_text("starts_waiting", count=count)),
            )
            for node, count in waiting.items()
        ],
        ignore_conflicts=True,
    )
