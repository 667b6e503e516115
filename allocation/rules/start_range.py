"""How well promised starts were kept, and the range that follows for the next one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

MIN_STARTS = 20
MIN_SLACK = timedelta(minutes=30)
_LOW, _HIGH = 10, 90


@dataclass(frozen=True, slots=True)
class StartRange:
    """From when to when 8 of 10 like it started; learnt from the last `of` in its tier.

    With `of` 0 too few have started: the range is an assumption.
    """

    earliest: datetime
    latest: datetime
    of: int


def start_range(
    promised: datetime, now: datetime, history: Sequence[tuple[int, int]]
) -> StartRange | None:
    """The range of a promised start, seen from now. None: it is due.

    With fewer than `MIN_STARTS` to learn from, a quarter of the lead and at least half an hour is
    assumed to be lost.

    `history` are (lead above zero, lateness) of earlier promises in seconds; a promise for tomorrow
    may miss by more than one for the next hour, so lateness counts by its part of the lead.
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
    """The smallest value that so many percent do not exceed."""
    return ordered[-(-len(ordered) * percent // 100) - 1]
