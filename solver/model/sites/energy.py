"""What energy costs and emits in a zone, by hour of its day."""

from bisect import bisect_right
from dataclasses import dataclass

_HOUR, _DAY = 3_600, 86_400
LONGEST = 7 * _DAY
"""Of longer work the first week is compared."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Of each of the 24 hours of a day the price of a kWh in ten-thousandths of the currency, and the
    CO2 in grams; empty: not known. `offsets` are (from that second on, seconds east of UTC), rising."""

    zone: str
    price: tuple[int, ...]
    grams: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]

    def hours(self, prefers: str) -> tuple[int, ...]:
        """The amounts of the hours for a preference, `price` or `carbon`."""
        return self.price if prefers == "price" else self.grams


class EnergyCalendar:
    """Mean amounts of windows in one zone."""

    def __init__(self, energy: Energy, prefers: str) -> None:
        """`prefers` is `price` or `carbon`."""
        self._hours, self._offsets = energy.hours(prefers), energy.offsets

    @property
    def is_known(self) -> bool:
        """Whether the amounts are known."""
        return bool(self._hours)

    def mean(self, starts: int, seconds: int) -> int:
        """The mean over a window, rounded down; of one longer than a week, over its first week."""
        ends, at, total = starts + min(seconds, LONGEST), starts, 0
        while at < ends:
            until = min(ends, self.edge(at))
            total += self._hours[(at + self._offset(at)) // _HOUR % 24] * (until - at)
            at = until
        return total // (ends - starts)

    def clock(self, at: int) -> str:
        """The time of day in the zone: `02:00`."""
        hours, seconds = divmod((at + self._offset(at)) % _DAY, _HOUR)
        return f"{hours:02}:{seconds // 60:02}"

    def hour(self, at: int) -> int:
        """The first second of the hour of the day that it is then."""
        return at - (at + self._offset(at)) % _HOUR

    def edge(self, at: int) -> int:
        """The first second after `at` at which another hour of the day begins."""
        edge = at + _HOUR - (at + self._offset(at)) % _HOUR
        return min((since for since, _ in self._offsets if at < since < edge), default=edge)

    def _offset(self, at: int) -> int:
        place = bisect_right(self._offsets, at, key=lambda row: row[0])
        return self._offsets[max(0, place - 1)][1]
