"""Seconds of peak hours between two instants, summed once for all."""

from bisect import bisect_right
from datetime import UTC, datetime

from billing.rates import PeakHours


class PeakSeconds:
    """The peak hours of a time, as sums from its begin on."""

    def __init__(self, hours: PeakHours, since: int, until: int) -> None:
        """Sums in [since, until); there is no peak outside."""
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (since, until))
        self._starts, self._ends, self._before = list[int](), list[int](), list[int]()
        total = 0
        for starts, ends, is_peak in hours.parts(begin, end) if hours.weekly else ():
            if is_peak:
                self._starts.append(int(starts.timestamp()))
                self._ends.append(int(ends.timestamp()))
                self._before.append(total)
                total += self._ends[-1] - self._starts[-1]

    def between(self, since: int, until: int) -> int:
        """Returns the peak seconds of [since, until)."""
        return self._until(until) - self._until(since) if self._starts else 0

    def _until(self, at: int) -> int:
        number = bisect_right(self._starts, at) - 1
        if number < 0:
            return 0
        return self._before[number] + min(at, self._ends[number]) - self._starts[number]
