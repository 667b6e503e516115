"""Refuses changes while the portal's clock is in doubt: they would be priced and dated by it."""

import math
import time
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from allocation.services.nodes.clock import JUMP, clock_jump_shown
from portal.web.outage import ALWAYS, SAFE, change_refused
from portal.words import refusal_text

SETTLE_SECONDS = 20.0
"""After a jump of this process's clock a solver has looked at its own within this time."""
LOOK_SECONDS = 0.25
RETRY_SECONDS = 30


def _steady() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockDoubt:
    """Whether changes wait: a solver has found a jump, or this process has just seen one."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = _steady,
        is_shown: Callable[[], bool] = clock_jump_shown,
    ) -> None:
        """Believes the clock as it is now, unless a solver does not."""
        self._wall, self._steady, self._is_shown = wall, steady, is_shown
        self._apart = wall() - steady()
        self._settled = self._next_look = -math.inf
        self._shown = False

    def look(self) -> bool:
        """Looks at the clocks. It costs next to nothing, so each request does."""
        steady = self._steady()
        apart = self._wall() - steady
        if abs(apart - self._apart) > JUMP.total_seconds():
            self._settled = steady + SETTLE_SECONDS
        self._apart = apart
        return steady < self._settled

    def __call__(self) -> bool:
        """Returns whether changes wait."""
        has_jumped, steady = self.look(), self._steady()
        if steady >= self._next_look:
            self._next_look = steady + LOOK_SECONDS
            self._shown = self._is_shown()
        return has_jumped or self._shown


class ClockMiddleware:
    """Refuses members' changes with 503 while the clock is in doubt."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._doubt = ClockDoubt()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Returns the view's response, or 503 with the time to retry."""
        passes = request.method in SAFE or request.path_info.startswith(ALWAYS)
        if passes or settings.SERVES_OPERATORS:
            self._doubt.look()
            return self.get_response(request)
        if not self._doubt():
            return self.get_response(request)
        sentence = refusal_text("clock_in_doubt")
        return change_refused(request, "clock_in_doubt", sentence, RETRY_SECONDS)
