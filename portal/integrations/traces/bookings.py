"""Spans of a booking, written when its devices are handed over; also those of its agents.

The history knows when each stage was over, so no program has to keep a span open for the hours
that a booking waits. The first event keeps the `traceparent` of the request that made the booking.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

from django.conf import settings

from allocation.models import Allocation, Booking, BookingEvent
from portal.integrations.traces.tracer import span_write
from tenants.models import OutboxMessage

STARTED = "started"
STAGES = {
    "queued": "wait for a decision",
    "scheduled": "wait for a decision",
    "starting": "wait for the start",
    STARTED: "prepare the devices",
}
"""By the event that ends it, the name of a stage."""
AGENT_STEPS = {
    "clear": "agent: clear the place",
    "mode": "agent: change the mode",
    "slice": "agent: make the slice",
    "hand_over": "agent: hand over",
}
DOCUMENT, REPORT = "agent: get the document", "agent: report"
"""From the start until the first step of an agent; from its last step until the portal has its
report."""


def bookings_trace(messages: Iterable[OutboxMessage]) -> None:
    """Writes the spans of bookings that have started for the first time."""
    if not settings.TRACES_URL:
        return
    started = [UUID(each.payload["id"][3:]) for each in messages if each.kind == "booking.started"]
    histories: defaultdict[UUID, list[BookingEvent]] = defaultdict(list)
    events = BookingEvent.objects.filter(booking__in=started, kind__in=("requested", *STAGES))
    for event in events.order_by("id"):
        histories[event.booking_id].append(event)
    for booking in Booking.objects.filter(id__in=histories).select_related("tenant"):
        if [event.kind for event in histories[booking.id]].count(STARTED) == 1:
            _trace(booking, histories[booking.id])


def _trace(booking: Booking, events: Sequence[BookingEvent]) -> None:
    rows = Allocation.objects.filter(booking=booking, state=Allocation.State.ACTIVE)
    rows = rows.select_related("gpu__node").order_by("gpu__node__name", "gpu__index", "id")
    nodes = sorted({row.gpu.node.name for row in rows})
    about = {
        "gpu_portal.booking": booking.label,
        "gpu_portal.tenant": booking.tenant.slug,
        "gpu_portal.nodes": ",".join(nodes),
    }
    ends: dict[str, datetime] = {}
    for event in events:
        # A plan that moves ends no stage a second time.
        ends.setdefault(STAGES.get(event.kind, ""), event.at)
    caller = str(events[0].detail.get("trace", ""))
    whole = span_write(f"booking {booking.label}", caller, (events[0].at, events[-1].at), about)
    for (_, began), (name, ended) in pairwise(ends.items()):
        stage = span_write(name, whole, (began, ended), about)
        if name == STAGES[STARTED]:
            for row in rows:
                _agent_trace(row, stage, (began, ended), about)


def _agent_trace(
    row: Allocation, stage: str, bounds: tuple[datetime, datetime], about: Mapping[str, str]
) -> None:
    """Writes what the agent reported. Its clock may differ, so times are limited to the stage."""
    if not row.agent_steps:
        return
    place: dict[str, str | int] = {
        **about,
        "gpu_portal.node": row.gpu.node.name,
        "gpu_portal.gpu": row.gpu.index,
    }
    began, ended = bounds
    steps = [(name, *_within(bounds, start, took)) for name, start, took in row.agent_steps]
    span_write(DOCUMENT, stage, (began, min(since for _, since, _ in steps)), place)
    for name, since, until in steps:
        span_write(AGENT_STEPS[name], stage, (since, until), place)
    span_write(REPORT, stage, (max(until for _, _, until in steps), ended), place)


def _within(bounds: tuple[datetime, datetime], start: int, took: int) -> tuple[datetime, datetime]:
    """The times of a step, limited to its stage."""
    began, ended = bounds
    since, until = (datetime.fromtimestamp(at / 1000, UTC) for at in (start, start + took))
    return min(max(since, began), ended), min(max(until, began), ended)
