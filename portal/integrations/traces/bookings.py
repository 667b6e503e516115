"""Spans of a booking, written when its devices are handed over.

The history knows when each stage was over, so no program has to keep a span open for the hours
that a booking waits. The first event keeps the `traceparent` of the request that made the booking.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
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
    nodes = sorted(set(rows.values_list("gpu__node__name", flat=True)))
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
        span_write(name, whole, (began, ended), about)
