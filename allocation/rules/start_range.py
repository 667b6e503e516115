"""The range in which a planned start will happen, from how well past planned starts were kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

MIN_STARTS = 20
MIN_SLACK = timedelta(minutes=30)
_LOW, _HIGH = 10, 90


@dataclass(frozen=True, slots=True)
class StartRange:
    """The range in which 8 of 10 such bookings start, from the last `of` starts in the tier.

    With `of` 0 there were too few starts, and the range is an assumption.
    """

    earliest: datetime
    latest: datetime
    of: int


def start_range(
    promised: datetime, now: datetime, history: Sequence[tuple[int, int]]
) -> StartRange | None:
    """The range of a planned start, seen from now. None if the start is due.

    `history` holds (lead, lateness) of past planned starts in seconds, with a lead above zero.
    Lateness is scaled by the lead, because a start planned for tomorrow can miss by more than one
    planned for the next hour. With fewer than `MIN_STARTS` the assumed lateness is a quarter of the
    lead, and at least half an hour.
    """
    if promised <= now:
        return None
    if len(history) < MIN_STARTS:
        slack = max(MIN_SLACK, (promised - now) / 4)
        return StartRange(promised, promised + slack, 0)
    ahead = int((promised - now).total_seconds())
    late = sorted(late * ahead // lead for lead, late in history)
    low, high = (_rank(late, percent) for percent in (_LOW, _HIGH))
    earliest = max(now, promised + timedelta(seconds=min(low, 0)))
    return StartRange(earliest, promised + timedelta(seconds=max(high, 0)), len(late))


def _rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that is not below `percent` of all values."""
    return ordered[-(-len(ordered) * percent // 100) - 1]
