"""Limits that depend on the time: GPU-hour caps of months or of any so many days."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from solver import UNITS_PER_GPU, Cap, Used

GPU_HOUR = UNITS_PER_GPU * 3_600
# Limits by the hour are planned as far ahead: the longest notice and the longest booking.
HORIZON_DAYS = 120


@dataclass(frozen=True, slots=True)
class CapRule:
    """The most GPU-hours of a class that an owner uses: in any so many `days`, or in a month.

    With `carries` a month also has what the one before it left. The use of `projects` counts next to that
    of the owner: those of a lab.
    """

    owner: str
    gpu_class: str
    gpu_hours: int
    days: int | None
    carries: bool
    projects: frozenset[str] = frozenset()

    def counts(self, row: Used) -> bool:
        """Returns whether use counts against it, in its time."""
        is_own = self.owner in (row.tenant, row.project) or row.project in self.projects
        return is_own and row.gpu_class == self.gpu_class

    def caps(self, used: Iterable[Used], now: datetime) -> Iterator[Cap]:
        """Yields the rolling cap, or those of this month and the next two after so much use."""
        if self.rolling is not None:
            yield self.rolling
            return
        most = self.gpu_hours * GPU_HOUR
        before, *starts = (int(month.timestamp()) for month in month_starts(now, 5))
        carried = 0
        if self.carries:
            rows = (each for each in used if before <= each.day < starts[0] and self.counts(each))
            carried = max(0, most - sum(each.unit_seconds for each in rows))
        for begin, end in pairwise(starts):
            yield self._of(most + carried, begin, end)
            carried = 0

    @property
    def rolling(self) -> Cap | None:
        """The cap of any so many days; None: it is of months."""
        return None if self.days is None else self._of(self.gpu_hours * GPU_HOUR, 0, 0)

    def _of(self, most: int, starts: int, ends: int) -> Cap:
        return Cap(self.owner, self.gpu_class, most, starts, ends, self.days)


def caps_at(rules: Iterable[CapRule], used: Collection[Used], now: datetime) -> tuple[Cap, ...]:
    """The caps of rules at an instant."""
    return tuple(cap for rule in rules for cap in rule.caps(used, now))


def month_starts(now: datetime, count: int) -> list[datetime]:
    """Starts of `count` months, from last month on."""
    first = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    months = [(first - timedelta(days=1)).replace(day=1)]
    while len(months) < count:
        months.append((months[-1] + timedelta(days=32)).replace(day=1))
    return months
