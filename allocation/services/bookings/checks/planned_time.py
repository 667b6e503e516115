"""Whether the published plan has room for a request before its deadline, and when it would have."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from allocation.models import Booking, PolicyVersion
from allocation.rules.ask.words.document import MIN_DURATION_SECONDS
from allocation.services.policy.policies import policy_of
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import instant
from solver import Availability, QuoteRequest

_MINUTE = 60
# Longer bookings are offered in steps of five minutes.
_LENGTH_STEP = 300


class PlannedTime:
    """The plan that a quote would read. It is read with the first question, and only once."""

    def __init__(self, without: Booking | None, now: datetime) -> None:
        self._without, self._now = without, now
        self._site: _Site | None = None

    def fits(self, question: QuoteRequest) -> bool:
        """Whether the next cycle would plan the request before its deadline."""
        return self._ends(question) is not None

    def remedies(self, question: QuoteRequest) -> Iterator[dict[str, Any]]:
        """Yields the earliest deadline that the plan can meet, and the longest booking that it has
        room for before the present deadline."""
        # A request that is sent again begins later by a minute, or by a step of the grid.
        question = replace(question, earliest=question.earliest + self._read().grid + _MINUTE)
        ends = self._ends(replace(question, latest=None))
        if ends is not None:
            late = instant(ends) + timedelta(seconds=_MINUTE)
            yield {"deadline": late.replace(second=0, microsecond=0).isoformat()}
        duration = self._longest(question)
        if duration is not None:
            yield {"duration": duration}

    def _longest(self, question: QuoteRequest) -> int | None:
        """The longest duration, below the one that was asked for, that ends in time."""
        if question.lengths:
            # The duration of a workload is that of the first class only.
            return None
        most = min(question.duration - 1, (question.latest or 0) - question.earliest)
        step = _LENGTH_STEP if most >= 2 * _LENGTH_STEP else _MINUTE
        least, above = -(-MIN_DURATION_SECONDS // step), most // step + 1
        if least >= above or not self._has_room(question, least * step):
            return None
        while above - least > 1:
            middle = (least + above) // 2
            least, above = (middle, above) if self._has_room(question, middle * step) else (least, middle)
        return least * step

    def _has_room(self, question: QuoteRequest, duration: int) -> bool:
        return self.fits(replace(question, duration=duration))

    def _ends(self, question: QuoteRequest) -> int | None:
        options = self._read().availability.quote(question, only_as_asked=True).options
        return min((each.ends for each in options if each.kind == "as_asked"), default=None)

    def _read(self) -> "_Site":
        if self._site is None:
            policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
            snapshot = published_snapshot(self._now, policy, self._without)
            self._site = _Site(Availability(snapshot, policy), policy.grid)
        return self._site


@dataclass(frozen=True, slots=True)
class _Site:
    """The plan, and the step of its starts in seconds."""

    availability: Availability
    grid: int
