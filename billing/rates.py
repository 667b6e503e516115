"""Prices of a time: peak hours of the week, and what a span of time costs. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from billing.rules import UNITS_PER_GPU, cost_of
from tenants.rules.limit_times import hour_at

HOURS_OF_WEEK = 7 * 24
WEEK_SECONDS = HOURS_OF_WEEK * 3600


@dataclass(frozen=True, slots=True)
class Spell:
    """Seconds, and how many of them are in peak hours."""

    seconds: int = 0
    peak: int = 0

    def __add__(self, other: "Spell") -> "Spell":
        return Spell(self.seconds + other.seconds, self.peak + other.peak)

    def __sub__(self, other: "Spell") -> "Spell":
        return Spell(self.seconds - other.seconds, self.peak - other.peak)


@dataclass(frozen=True, slots=True)
class PeakHours:
    """Hours of the week with peak prices, by the clocks of a time zone.

    `weekly` has (weekday, first hour, hour of the end), Monday is 0: (4, 8, 20) is Friday from
    08:00 to 20:00. The entries of a day are in order and don't overlap.
    """

    zone: str = "UTC"
    weekly: tuple[tuple[int, int, int], ...] = ()

    def spell(self, since: datetime, until: datetime) -> Spell:
        """The seconds of [since, until), none if it ends before it begins."""
        seconds = max(0, int((until - since).total_seconds()))
        peak = sum(int((ends - begins).total_seconds()) for begins, ends in self._of(since, until))
        return Spell(seconds, min(seconds, peak))

    def parts(self, since: datetime, until: datetime) -> list[tuple[datetime, datetime, bool]]:
        """The spans between the boundaries in [since, until), each with whether it is peak."""
        spans = list(self._of(since, until))
        bounds = sorted({since, until, *(bound for span in spans for bound in span)})
        peaks = {begins for begins, _ in spans}
        return [(begins, ends, begins in peaks) for begins, ends in pairwise(bounds)]

    def most(self, seconds: int) -> Spell:
        """The most peak seconds that a time of this length can have, whenever it begins."""
        return Spell(seconds, _most(self.weekly, seconds))

    def _of(self, since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        if not self.weekly or until <= since:
            return
        zone = ZoneInfo(self.zone)
        day, last = since.astimezone(zone).date(), until.astimezone(zone).date()
        while day <= last:
            for _, first, end in (each for each in self.weekly if each[0] == day.weekday()):
                begins = max(since, hour_at(day, first, zone))
                ends = min(until, hour_at(day, end, zone))
                if begins < ends:
                    yield begins, ends
            day += timedelta(days=1)


NO_PEAKS = PeakHours()


@dataclass(frozen=True, slots=True)
class Rate:
    """What a whole booking costs for an hour. `peak` is at least `plain`."""

    plain: Decimal
    peak: Decimal
    hours: PeakHours = NO_PEAKS

    def between(self, since: datetime, until: datetime) -> Spell:
        """The time from `since` to `until`."""
        return self.hours.spell(since, until)

    def surcharge(self, spell: Spell) -> Decimal:
        """What the peak part costs more than other time."""
        return _cost(self.peak - self.plain, spell.peak)

    def cost(self, spell: Spell) -> Decimal:
        """The cost of a time: of all of it at the plain price, and the surcharge of its peak."""
        return _cost(self.plain, spell.seconds) + self.surcharge(spell)

    def most(self, seconds: int) -> Decimal:
        """The highest cost of a time of this length, whenever it begins."""
        return self.cost(self.hours.most(seconds))


def _cost(per_hour: Decimal, seconds: int) -> Decimal:
    return cost_of(per_gpu_hour=per_hour, units=UNITS_PER_GPU, seconds=seconds)


@lru_cache(maxsize=4096)
def _most(weekly: tuple[tuple[int, int, int], ...], seconds: int) -> int:
    week = [(24 * day + first, 24 * day + end) for day, first, end in weekly]
    whole, rest = divmod(seconds, WEEK_SECONDS)
    spans = [
        (3600 * (first + shift), 3600 * (end + shift)) for first, end in week for shift in (0, HOURS_OF_WEEK)
    ]
    # The most is reached where the time begins with a peak or ends with one.
    starts = {begins for begins, _ in spans} | {max(0, ends - rest) for _, ends in spans}
    most = max((_overlap(spans, start, start + rest) for start in starts), default=0)
    return whole * sum(3600 * (end - first) for first, end in week) + most


def _overlap(spans: Sequence[tuple[int, int]], since: int, until: int) -> int:
    return sum(max(0, min(until, ends) - max(since, begins)) for begins, ends in spans)


def peak_hours(zone: str, weekly: Iterable[Sequence[int]]) -> PeakHours:
    """Peak hours of stored or sent entries, in order, with those that touch joined."""
    joined: list[list[int]] = []
    for day, first, end in sorted(tuple(each) for each in weekly):
        if joined and joined[-1][0] == day and first <= joined[-1][2]:
            joined[-1][2] = max(end, joined[-1][2])
        else:
            joined.append([day, first, end])
    return PeakHours(zone, tuple((day, first, end) for day, first, end in joined))
