"""The range in which a planned start will happen, from what it is worth and from past starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

MIN_STARTS = 20
MIN_SLACK = timedelta(minutes=30)
# Lateness that 8 of 10 past starts did not exceed, and the step to which ranges are rounded up.
_PERCENT = 80
_STEP = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class StartRange:
    """A planned start, and the latest start that is to be expected.

    `of` is the number of past starts of the tier that it takes into account; with 0 there were too
    few, and the range is an assumption.
    """

    earliest: datetime
    latest: datetime
    of: int = 0

    def includes(self, moment: datetime) -> bool:
        """Whether the moment is in the range."""
        return self.earliest <= moment <= self.latest


def start_range(
    starts: datetime,
    now: datetime,
    history: Sequence[tuple[int, int]],
    *,
    is_expected: bool = True,
) -> StartRange:
    """The range of a planned start, seen from now: one instant unless it `is_expected` only.

    Other bookings may delay an expected start by half an hour, a quarter of its lead, or as much as
    8 of 10 past starts were late at most; the longest counts. `history` holds (lead, lateness) of
    past planned starts in seconds, with a lead above zero. Lateness is scaled by the lead, because
    a start planned for tomorrow can miss by more than one planned for the next hour. Fewer than
    `MIN_STARTS` say nothing.
    """
    lead = starts - now
    if not is_expected or lead <= timedelta(0):
        return StartRange(starts, starts)
    slack = max(MIN_SLACK, lead / 4)
    known = len(history) if len(history) >= MIN_STARTS else 0
    if known:
        ahead = int(lead.total_seconds())
        late = sorted(late * ahead // lead_then for lead_then, late in history)
        slack = max(slack, timedelta(seconds=late[-(-known * _PERCENT // 100) - 1]))
    return StartRange(starts, starts + _STEP * ceil(slack / _STEP), known)
