"""Traces as a collector gets them: one request, from the program that sent it to the devices."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import resolve
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pytest_django import Settings

from allocation.models import Allocation, BookingEvent
from allocation.services.bookings.creation import booking_request
from portal.integrations.relay import outbox_relay
from portal.integrations.traces import _within, tracer
from portal.web.measured import MeasuredMiddleware
from tests.builders_allocation import NOW, Lab, a_booking_request, a_lab
from tests.roles import as_system
from tests.services.plant import Plant

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
NAMES = {
    "POST /api/v1/bookings",
    "booking BK-1",
    "wait for a decision",
    "wait for the start",
    "prepare the devices",
    "agent: get the document",
    "agent: hand over",
    "agent: report",
}


@pytest.fixture
def collector(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator["Queue[Span]"]:
    """The spans that reach a collector on this machine."""
    spans: Queue[Span] = Queue()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent = ExportTraceServiceRequest.FromString(body)
            for group in sent.resource_spans:
                for scope in group.scope_spans:
                    for span in scope.spans:
                        spans.put(span)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    settings.TRACES_URL = f"http://127.0.0.1:{server.server_port}/v1/traces"
    tracer.cache_clear()
    yield spans
    tracer.cache_clear()
    server.shutdown()
    thread.join()
    server.server_close()


def booked(lab: Lab, plant: Plant) -> None:
    """Books at the plant's time, inside the middleware that every request passes."""

    def answer(request: HttpRequest) -> HttpResponse:
        request.resolver_match = resolve(request.path)
        with as_system():
            booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
        return HttpResponse(status=201)

    headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    MeasuredMiddleware(answer)(RequestFactory().post("/api/v1/bookings", headers=headers))


def test_a_request_is_followed_to_the_device(plant: Plant, collector: "Queue[Span]") -> None:
    lab = a_lab("helix", gpus=0)
    booked(lab, plant)
    plant.round()
    with as_system():
        outbox_relay(plant.now)
    found: dict[str, Span] = {}
    while NAMES - found.keys():
        span = collector.get(timeout=20)
        found[span.name] = span
    assert {span.trace_id.hex() for span in found.values()} == {TRACE}
    request, booking = found["POST /api/v1/bookings"], found["booking BK-1"]
    assert request.parent_span_id.hex() == CALLER
    assert booking.parent_span_id == request.span_id
    of_agent = {name for name in NAMES if name.startswith("agent: ")}
    stages = NAMES - {request.name, booking.name} - of_agent
    assert {found[name].parent_span_id for name in stages} == {booking.span_id}
    # The agent's steps came with its report: nodes have no OpenTelemetry.
    prepared = found["prepare the devices"]
    for span in (found[name] for name in of_agent):
        assert span.parent_span_id == prepared.span_id
        assert prepared.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= prepared.end_time_unix_nano
        said = {each.key: each.value for each in span.attributes}
        assert said["gpu_portal.node"].string_value == "gpu-a1-01"
        assert said["gpu_portal.gpu"].int_value == 0
    about = {each.key: each.value.string_value for each in booking.attributes}
    assert about["gpu_portal.nodes"] == "gpu-a1-01"
    with as_system():
        started = BookingEvent.objects.get(kind="started")
    assert booking.end_time_unix_nano == started.at.timestamp() * 1e9


def test_without_a_collector_nothing_is_kept(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    booked(lab, plant)
    plant.round()
    with as_system():
        assert "trace" not in BookingEvent.objects.get(kind="requested").detail
        assert Allocation.objects.get(state=Allocation.State.ACTIVE).agent_steps is None


def test_a_wrong_clock_of_a_node_stays_inside_the_stage() -> None:
    began, ended = NOW, NOW + timedelta(seconds=9)
    at = round(NOW.timestamp() * 1000)
    step = timedelta(seconds=2)
    for start, times in (
        (at + 2000, (began + step, began + 2 * step)),
        (at - 1000, (began, began + timedelta(seconds=1))),
        (at - 9000, (began, began)),
        (at + 9_000_000, (ended, ended)),
    ):
        assert _within((began, ended), start, 2000) == times
