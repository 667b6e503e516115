"""The tracer of this process, and its spans of requests.

OpenTelemetry is an optional extra, so this module alone imports it, and only if TRACES_URL is set.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

SERVICE = "gpu-portal"
Attributes = Mapping[str, str | int]


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
    span = tracer().start_span(
        name, context=_after(parent_header), start_time=began, attributes=attributes
    )
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
