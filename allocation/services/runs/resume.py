"""What pauses have left frozen on nodes: who goes on with it, and what can be forgotten."""

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
# Older ones are forgotten with the next document that their node gets for another reason.
LOOKBACK = timedelta(days=1)
PAUSE_STATES = (State.PAUSING, State.PAUSED)


@dataclass(frozen=True, slots=True)
class SuspendedWork:
    """What pauses have left frozen on a node.

    `resumes`: the allocation that each one goes on with. `kept`: the allocations that may still be
    resumed here: of what pauses or is paused the last run, and what is just gone on with.
    Everything else that is frozen can be forgotten.
    """

    resumes: Mapping[UUID, str]
    kept: tuple[str, ...]


NOTHING = SuspendedWork({}, ())


def suspended_work_on(nodes: Iterable[Node]) -> dict[UUID, SuspendedWork]:
    """What is frozen, by node; nodes without are left out.

    What goes on and what it goes on with are both taken by device and slot, so that each goes on
    where it was, or beside it.
    """
    rows = _suspended_rows(nodes)
    if not rows:
        return {}
    runs = _runs({row.booking_id for row in rows})
    told = Allocation.objects.filter(
        gpu__node__in={row.gpu.node_id for row in rows}, booking__in=list(runs), state__in=ON_NODE,
        abandoned=False,
    ).select_related("gpu")  # fmt: skip
    # Only the run before this one can go on: an earlier one has gone on already.
    old = _by_place(row for row in rows if row.period.lower in runs[row.booking_id][-2:-1])
    new = _by_place(
        row
        for row in told.order_by("gpu__index", "start", "id")
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


def suspended_nodes_update(booking: Booking) -> None:
    """It goes on, perhaps elsewhere: the nodes that keep what is frozen are to hear of it."""
    if booking.pause_count:
        _bump(booking.allocations.filter(suspended=True))


def suspended_work_forget(now: datetime) -> None:
    """What bookings that are over have left frozen is forgotten, and its nodes are to hear of it.

    Not done where they end: that may be a web request, which can't write to nodes.
    """
    ended = Pause.objects.filter(method="suspend", ended_at__gt=now - LOOKBACK)
    rows = Allocation.objects.filter(
        suspended=True, booking__in=ended.values("booking_id"), booking__state__in=TERMINAL
    )
    with transaction.atomic():
        found = Allocation.objects.filter(id__in=list(rows.values_list("id", flat=True)))
        _bump(found)
        found.update(suspended=False)


def _bump(rows: QuerySet[Allocation]) -> None:
    nodes = Node.objects.filter(id__in=rows.values("gpu__node_id"))
    nodes.update(generation=F("generation") + 1)


def _suspended_rows(nodes: Iterable[Node]) -> list[Allocation]:
    """Of bookings that are not over, by device and slot."""
    rows = Allocation.objects.filter(
        gpu__node__in=list(nodes), suspended=True, abandoned=False, state=Allocation.State.ENDED,
        booking__state__in=[*PAUSE_STATES, State.STARTING, State.ACTIVE, State.ENDING],
    )  # fmt: skip
    return list(rows.select_related("booking", "gpu").order_by("gpu__index", "start", "id"))


def _by_place(rows: Iterable[Allocation]) -> dict[tuple[UUID, UUID], list[Allocation]]:
    """By node and booking, in the order they come in."""
    found: dict[tuple[UUID, UUID], list[Allocation]] = defaultdict(list)
    for row in rows:
        found[row.gpu.node_id, row.booking_id].append(row)
    return found


def _runs(bookings: Iterable[UUID]) -> dict[UUID, list[datetime]]:
    """When each run of the bookings began, on whatever node; the oldest first."""
    rows = Allocation.objects.filter(booking__in=list(bookings), state__in=EVER_STARTED)
    found: dict[UUID, list[datetime]] = defaultdict(list)
    for booking, begins in (
        rows.order_by("period__startswith")
        .values_list("booking_id", "period__startswith")
        .distinct()
    ):
        found[booking].append(begins)
    return found
