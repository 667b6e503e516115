"""The remaining time of a booking that runs again, and its work that is suspended on nodes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from allocation.models import Allocation, Booking, Node, Pause
from allocation.rules.states import TERMINAL, State

ON_NODE = (Allocation.State.STARTING, Allocation.State.ACTIVE, Allocation.State.RELEASING)
EVER_STARTED = (*ON_NODE, Allocation.State.ENDED)
# Work of pauses that ended earlier needs no document of its own: its node forgets it with the next
# document that it gets for another reason.
LOOKBACK = timedelta(days=1)
PAUSE_STATES = (State.PAUSING, State.PAUSED)


@dataclass(frozen=True, slots=True)
class SuspendedWork:
    """Work that pauses have suspended on a node.

    `resumes`: by allocation, the suspended one that it resumes. `kept`: the suspended allocations
    that the node has to keep, because they are resumed now or may be later.
    """

    resumes: Mapping[UUID, str]
    kept: tuple[str, ...]


NO_SUSPENDED_WORK = SuspendedWork({}, ())


def has_earlier_run(booking: Booking) -> bool:
    """Returns whether an earlier run counts, so that only the rest of the time is placed."""
    return booking.replacement_count > 0 or booking.used_seconds > 0


def time_remaining(booking: Booking, now: datetime) -> tuple[int, datetime | None]:
    """Returns the seconds that a requeued booking has left, and its latest end."""
    left = seconds_remaining(booking, booking.duration_seconds, booking.used_seconds, now)
    if booking.starts is None:
        return left, booking.deadline
    return left, booking.starts + timedelta(seconds=booking.duration_seconds)


def seconds_remaining(booking: Booking, length: int, used: int, now: datetime) -> int:
    """Returns what is left of `length` after `used` seconds; a fixed window ends in time."""
    if booking.starts is None:
        return length - used
    ends = booking.starts + timedelta(seconds=length)
    return min(length - used, int((ends - now).total_seconds()))


def suspended_work_on(nodes: Iterable[Node]) -> dict[UUID, SuspendedWork]:
    """Returns suspended work by node; nodes without any are left out.

    Old and new allocations are paired in the order of devices and slots, so that each resumes on
    its own GPU where possible.
    """
    rows = _suspended_rows(nodes)
    if not rows:
        return {}
    runs = _runs({row.booking_id for row in rows})
    current = Allocation.objects.filter(
        gpu__node__in={row.gpu.node_id for row in rows},
        booking__in=list(runs),
        state__in=ON_NODE,
        abandoned=False,
    ).select_related("gpu")
    # Only the previous run can be resumed: an earlier one was resumed before.
    old = _by_booking(row for row in rows if row.period.lower in runs[row.booking_id][-2:-1])
    new = _by_booking(
        row
        for row in current.order_by("gpu__index", "start", "id")
        if row.period.lower == runs[row.booking_id][-1]
    )
    resumes: dict[UUID, dict[UUID, str]] = defaultdict(dict)
    for node, booking in old.keys() & new.keys():
        pairs = zip(new[node, booking], old[node, booking], strict=False)
        resumes[node] |= {after.id: before.id.hex for after, before in pairs}
    kept: dict[UUID, set[str]] = defaultdict(set)
    for row in rows:
        waits = row.booking.state in PAUSE_STATES and row.period.lower == runs[row.booking_id][-1]
        kept[row.gpu.node_id] |= {row.id.hex} if waits else set()
    return {
        node: SuspendedWork(resumes[node], tuple(sorted(found.union(resumes[node].values()))))
        for node, found in kept.items()
    }


def allocation_suspended(allocation_id: UUID) -> None:
    """Records that a node keeps the suspended programs of an allocation."""
    Allocation.objects.filter(id=allocation_id).update(suspended=True)


def suspended_nodes_update(booking: Booking) -> None:
    """Raises the generation of nodes with suspended work of a booking that starts again."""
    if booking.pause_count:
        _generations_raise(booking.allocations.filter(suspended=True))


def suspended_work_over(now: datetime) -> QuerySet[Allocation]:
    """Returns the suspended work of bookings that are over."""
    ended = Pause.objects.filter(method="suspend", ended_at__gt=now - LOOKBACK)
    return Allocation.objects.filter(
        suspended=True, booking__in=ended.values("booking_id"), booking__state__in=TERMINAL
    )


def suspended_work_forget(now: datetime) -> None:
    """Forgets the suspended work of bookings that are over, and notifies their nodes.

    A web request may end a booking, and its database role can't write to nodes.
    """
    ids = list(suspended_work_over(now).values_list("id", flat=True))
    if not ids:
        return
    with transaction.atomic():
        found = Allocation.objects.filter(id__in=ids)
        _generations_raise(found)
        found.update(suspended=False)


def _generations_raise(rows: QuerySet[Allocation]) -> None:
    nodes = Node.objects.filter(id__in=rows.values("gpu__node_id"))
    nodes.update(generation=F("generation") + 1)


def _suspended_rows(nodes: Iterable[Node]) -> list[Allocation]:
    """Returns suspended rows of bookings that are not over, by device and slot."""
    rows = Allocation.objects.filter(
        gpu__node__in=list(nodes),
        suspended=True,
        abandoned=False,
        state=Allocation.State.ENDED,
        booking__state__in=[*PAUSE_STATES, State.STARTING, State.ACTIVE, State.ENDING],
    )
    return list(rows.select_related("booking", "gpu").order_by("gpu__index", "start", "id"))


def _by_booking(rows: Iterable[Allocation]) -> dict[tuple[UUID, UUID], list[Allocation]]:
    """Groups rows by node and booking, in their order."""
    found: dict[tuple[UUID, UUID], list[Allocation]] = defaultdict(list)
    for row in rows:
        found[row.gpu.node_id, row.booking_id].append(row)
    return found


def _runs(bookings: Iterable[UUID]) -> dict[UUID, list[datetime]]:
    """Returns the starts of each booking's runs on any node, the oldest first."""
    rows = Allocation.objects.filter(booking__in=list(bookings), state__in=EVER_STARTED)
    found: dict[UUID, list[datetime]] = defaultdict(list)
    for booking, begins in (
        rows.order_by("period__startswith").values_list("booking_id", "period__startswith").distinct()
    ):
        found[booking].append(begins)
    return found
