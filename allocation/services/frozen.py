"""What pauses have left frozen on nodes: who goes on with it, and what can be forgotten."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from allocation.models import Allocation, Booking, Node, Pause
from allocation.rules.states import TERMINAL, State

TOLD = (Allocation.State.STARTING, Allocation.State.ACTIVE, Allocation.State.RELEASING)
BEGUN = (*TOLD, Allocation.State.ENDED)
# Older ones are forgotten with the next document that their node gets for another reason.
LOOKS_BACK = timedelta(days=1)
WAITS = (State.PAUSING, State.PAUSED)


def resumes_on(node: Node) -> dict[UUID, str]:
    """What was suspended on this node, by the allocation that goes on with it.

    Both sides are taken by device and slot, so that each goes on where it was, or beside it.
    """
    here = Allocation.objects.filter(gpu__node=node, left=False)
    here = here.order_by("gpu__index", "start", "id")
    found: dict[UUID, str] = {}
    frozen = _frozen(node)
    runs = _runs(frozen)
    for booking, rows in frozen.items():
        # Only the run before this one can go on: an earlier one has gone on already.
        before, this = runs[booking][-2:-1], runs[booking][-1]
        old = [row for row in rows if row.period.lower in before]
        goes_on = here.filter(state__in=TOLD, booking=booking, period__startswith=this)
        found |= {new.id: row.id.hex for new, row in zip(goes_on, old, strict=False)}
    return found


def suspended_on(node: Node, resumes: Iterable[str]) -> tuple[str, ...]:
    """The allocations that may still be resumed here: of what pauses or is paused the last run,
    and what is just gone on with. Everything else that is frozen can be forgotten."""
    frozen = _frozen(node)
    runs = _runs(frozen)
    found = {
        row.id.hex
        for booking, rows in frozen.items()
        for row in rows
        if row.booking.state in WAITS and row.period.lower == runs[booking][-1]
    }
    return tuple(sorted(found.union(resumes)))


def frozen_bump(booking: Booking) -> None:
    """It goes on, perhaps elsewhere: the nodes that keep what is frozen are to hear of it."""
    if booking.pause_count:
        _bump(booking.allocations.filter(suspended=True))


def frozen_forget(now: datetime) -> None:
    """What bookings that are over have left frozen is forgotten, and its nodes are to hear of it.

    Not done where they end: that may be a web request, which can't write to nodes.
    """
    ended = Pause.objects.filter(method="suspend", ended_at__gt=now - LOOKS_BACK)
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


def _frozen(node: Node) -> dict[UUID, list[Allocation]]:
    """By booking that is not over."""
    rows = Allocation.objects.filter(
        gpu__node=node, suspended=True, left=False, state=Allocation.State.ENDED,
        booking__state__in=[*WAITS, State.STARTING, State.ACTIVE, State.ENDING],
    )  # fmt: skip
    frozen: dict[UUID, list[Allocation]] = defaultdict(list)
    for row in rows.select_related("booking").order_by("gpu__index", "start", "id"):
        frozen[row.booking_id].append(row)
    return frozen


def _runs(bookings: Iterable[UUID]) -> dict[UUID, list[datetime]]:
    """When each run of the bookings began, on whatever node; the oldest first."""
    rows = Allocation.objects.filter(booking__in=list(bookings), state__in=BEGUN)
    found: dict[UUID, list[datetime]] = defaultdict(list)
    for booking, begins in (
        rows.order_by("period__startswith")
        .values_list("booking_id", "period__startswith")
        .distinct()
    ):
        found[booking].append(begins)
    return found
