"""Counts the responses of web processes and their duration."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from uuid import uuid4

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from allocation.services.record.liveness import program_seen
from portal.integrations.traces import Attributes, OpenSpan, span_open
from portal.traffic import answer_count, traffic_add
from tenants.api.gathered import GatheredResponse
from tenants.platform.log_ids import log_id, log_ids

EVERY_SECONDS = 2.0
SERVER_ERROR = 500
REQUEST_ID = "X-Request-Id"
_NAME = re.compile(r"[A-Za-z0-9._-]{8,64}")
_PROBES = frozenset({"healthz", "readyz", "statusz", "metrics"})


class MeasuredMiddleware:
    """Counts responses by route, method and status, their duration by surface, and sets the request
    id. This is the outermost middleware, so that errors are counted as answered. The time a request
    waits for a decision is not counted: it holds no thread."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        """Django creates one per process."""
        self._get_response = get_response
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._added = -EVERY_SECONDS

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Counts the response.

        A web process counts requests that it forwards to the operators' process.
        """
        began = time.perf_counter()
        name, caller = request_id(request), request.META.get("HTTP_TRACEPARENT", "")
        with log_ids(request=name), span_open("request", caller) as span:
            if span is not None:
                log_id(trace=span.parent_header)
            response = self._get_response(request)
        response[REQUEST_ID] = name

        def note(answer: HttpResponseBase) -> None:
            self._note(request, answer.status_code, time.perf_counter() - began, span)

        if isinstance(response, GatheredResponse):
            response.when_answered(note)
        else:
            note(response)
        return response

    def _note(self, request: HttpRequest, status: int, seconds: float, span: OpenSpan | None) -> None:
        if span is not None:
            title = f"{request.method} {route_of(request)}"
            has_failed = status >= SERVER_ERROR
            span.end(title, _attributes(request, status), has_failed=has_failed)
        if not settings.SERVES_OPERATORS:
            self._count(request, status, seconds)
        due = self._due()
        if due is not None:
            program = "operators" if settings.SERVES_OPERATORS else "web"
            program_seen(program, timezone.now())
            traffic_add(due)

    def _count(self, request: HttpRequest, status: int, seconds: float) -> None:
        about = route_of(request), request.method or "", status, surface_of(request.path)
        with self._lock:
            answer_count(self._counts, *about, seconds)

    def _due(self) -> Counter[str] | None:
        with self._lock:
            if time.monotonic() - self._added < EVERY_SECONDS:
                return None
            self._added = time.monotonic()
            due, self._counts = self._counts, Counter()
            return due


def _attributes(request: HttpRequest, status: int) -> Attributes:
    """The attributes of a request's span, by the names of OpenTelemetry."""
    return {
        "http.request.method": request.method or "",
        "http.route": route_of(request),
        "http.response.status_code": status,
    }


def request_id(request: HttpRequest) -> str:
    """Returns the request id given by a proxy or client, or a new one."""
    given = request.META.get("HTTP_X_REQUEST_ID", "")
    return given if _NAME.fullmatch(given) else uuid4().hex


def route_of(request: HttpRequest) -> str:
    """Returns the route's pattern, which bounds the number of counters."""
    if request.resolver_match is not None:
        return f"/{request.resolver_match.route}".replace("|", "/")
    return "static" if request.path.startswith(f"/{settings.STATIC_URL.strip('/')}/") else "none"


def surface_of(path: str) -> str:
    """Returns the surface of a path: API, operators, pages, probes or static files."""
    first = path.lstrip("/").split("/", 1)[0]
    if first in _PROBES:
        return "probe"
    known = {"api": "api", "ops": "operators", settings.STATIC_URL.strip("/"): "static"}
    return known.get(first, "pages")
