"""The tracer of this process, and its spans of requests.

OpenTelemetry is an optional extra, so this module alone imports it, and only if TRACES_URL is set.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

from django.conf import settings

from allocation.models import Allocation, Booking, BookingEvent
from tenants.models import OutboxMessage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

SERVICE = "gpu-portal"
Attributes = Mapping[str, str | int]
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


@dataclass
class OpenSpan:
    """A span that has begun. `parent_header` is its W3C `traceparent`, for what it causes."""

    span: "Span"

    @property
    def parent_header(self) -> str:
        """The `traceparent` of this span."""
        at = self.span.get_span_context()
        return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}"

    def end(self, name: str, attributes: Attributes, *, has_failed: bool) -> None:
        """Ends the span, and names it by what is known only now."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 (an optional extra)

        self.span.update_name(name)
        self.span.set_attributes(attributes)
        if has_failed:
            self.span.set_status(StatusCode.ERROR)
        self.span.end()


@contextmanager
def span_open(name: str, parent_header: str) -> Iterator[OpenSpan | None]:
    """Opens a span, the current one in the block, after the `traceparent` of a caller; None without
    TRACES_URL. It lasts until it is ended, which may be after the block."""
    if not settings.TRACES_URL:
        yield None
        return
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 (an optional extra)

    with tracer().start_as_current_span(
        name, context=_after(parent_header), kind=SpanKind.SERVER, end_on_exit=False
    ) as span:
        yield OpenSpan(span)


def span_write(
    name: str, parent_header: str, times: tuple[datetime, datetime], attributes: Attributes
) -> str:
    """Writes a span of the past; returns its own `traceparent`."""
    began, ended = (round(at.timestamp() * 1e9) for at in times)
    span = tracer().start_span(name, context=_after(parent_header), start_time=began, attributes=attributes)
    span.end(end_time=ended)
    return OpenSpan(span).parent_header


def _after(parent_header: str) -> "Context":
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 (an optional extra)
        TraceContextTextMapPropagator,
    )

    return TraceContextTextMapPropagator().extract({"traceparent": parent_header})


@cache
def tracer() -> "Tracer":
    """Made on first use, so that each process that a worker forks sends its own spans."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 (an optional extra)
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 (an optional extra)
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create({"service.name": SERVICE, "service.version": settings.CODE_COMMIT})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.TRACES_URL)))
    return provider.get_tracer(SERVICE)


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
            _booking_trace(booking, histories[booking.id])


def _booking_trace(booking: Booking, events: Sequence[BookingEvent]) -> None:
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
