"""Banners of planned outages, freezes and stops, and refusals during an outage."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from rest_framework.renderers import JSONRenderer

from allocation.models import PortalMode, Stop
from allocation.queries.fleet.portal_modes import (
    freeze_sentence,
    mode_in_force,
    modes_in_force,
    outage_is_closed,
)
from allocation.queries.fleet.stops import stop_sentence, stops_in_force
from allocation.services.nodes.clock import clock_jump_shown
from portal.api.errors import PROBLEM_JSON, problem
from portal.words import refusal_text
from tenants.platform.errors import Refused

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# Signing in and out, and operators' changes, always work.
ALWAYS = ("/ops/", "/sign-in", "/sign-out", "/api/v1/portal/")
RETRY_MOST = 600
LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Banner:
    """A banner above every page. `acts` is the operators' page that ends what it says."""

    tone: str
    icon: str
    heading: str
    text: str
    until: datetime | None
    acts: str = "ops-portal"


CLOCK_BANNER = Banner(
    "risk",
    "clock",
    "The portal's clock has jumped.",
    "Changes are refused, and nothing starts or ends, until the clock is right or an operator has"
    " checked it. Running bookings continue.",
    None,
    "ops-fleet",
)


class OutageMiddleware:
    """Refuses members' changes with 503 during a closed outage.

    A change that came just before is still written when the outage is closed. So a process that
    has found none asks again only after a moment.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._next_look = 0.0

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Returns the view's response, or 503 with the time to retry."""
        passes = request.method in SAFE or request.path_info.startswith(ALWAYS)
        if passes or settings.SERVES_OPERATORS or not self._is_closed():
            return self.get_response(request)
        now = timezone.now()
        mode = mode_in_force(PortalMode.Kind.OUTAGE, now)
        if mode is None or mode.closed_at is None or mode.until is None:
            return self.get_response(request)
        left = math.ceil((mode.until - now).total_seconds())
        sentence = refusal_text("portal_upgrading", until=f"{mode.until:%d %b %H:%M}")
        seconds = min(RETRY_MOST, max(1, left))
        return change_refused(request, "portal_upgrading", sentence, seconds)

    def _is_closed(self) -> bool:
        if time.monotonic() < self._next_look:
            return False
        began = time.monotonic()
        is_closed = outage_is_closed()
        if not is_closed:
            self._next_look = began + LOOK_SECONDS
        return is_closed


def change_refused(request: HttpRequest, code: str, sentence: str, seconds: int) -> HttpResponse:
    """Returns 503 with the time to retry, as a page or as problem JSON."""
    refused = Refused(code, sentence, numbers={"retry_after_seconds": seconds})
    if request.path_info.startswith("/api/"):
        answer = problem(refused)
        response = HttpResponse(JSONRenderer().render(answer.data), status=answer.status_code)
        response["Content-Type"] = PROBLEM_JSON
    elif "X-Fragment" in request.headers:
        response = HttpResponse(sentence, status=503, content_type="text/plain; charset=utf-8")
    else:
        response = render(request, "errors/refused.html", {"refusal": refused}, status=503)
    response["Retry-After"] = str(seconds)
    response["Cache-Control"] = "no-store, private"
    return response


def banners(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `portal_banners`, evaluated only by pages with a frame."""
    return {"portal_banners": _banners}


def _banners() -> list[Banner]:
    now = timezone.now()
    stops = [_stop_banner(stop, now) for stop in stops_in_force(now) if stop.booking_id is None]
    clock = [CLOCK_BANNER] if clock_jump_shown() else []
    return clock + [_banner(mode, now) for mode in modes_in_force(now)] + stops


def _stop_banner(stop: Stop, now: datetime) -> Banner:
    text = "New requests are refused, and what waits does not start. Running bookings continue."
    return Banner("risk", "block", stop_sentence(stop, now), text, stop.until, "ops-stops")


def _banner(mode: PortalMode, now: datetime) -> Banner:
    if mode.kind == PortalMode.Kind.FREEZE:
        text = "New bookings are accepted and wait. Running bookings continue until they end."
        return Banner("risk", "block", freeze_sentence(mode, now), text, mode.until)
    if mode.closed_at is None:
        text = "Running bookings continue, and no request is lost."
        heading = f"The portal will be down for an upgrade: {mode.reason.rstrip('.')}."
        return Banner("wait", "clock", heading, text, mode.until)
    text = "Changes are refused until the upgrade is done. Running bookings continue."
    heading = f"The portal is being upgraded: {mode.reason.rstrip('.')}."
    return Banner("risk", "clock", heading, text, mode.until)
