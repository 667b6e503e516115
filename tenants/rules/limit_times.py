"""Limits that differ at some times: from day to day and by hours of the week, in a time zone. Pure.

Days and hours are by the clocks of the zone. An hour that the clocks skip is the moment at which
they jump; of an hour that they show twice, the first counts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

FOREVER = datetime(2400, 1, 1, tzinfo=UTC)
"""After all bookings."""


@dataclass(frozen=True, slots=True)
class Times:
    """Hours of some days, between two dates, both included; None: without a first or last day.

    `weekdays` without entries are all days. An `end_hour` that is not after the first is on the
    next day.
    """

    first_day: date | None = None
    last_day: date | None = None
    weekdays: tuple[int, ...] = ()
    first_hour: int = 0
    end_hour: int = 24
    zone: str = "UTC"

    @property
    def is_always(self) -> bool:
        """True without hours or weekdays, and without an end."""
        return (
            self.last_day is None
            and len(set(self.weekdays)) in (0, 7)
            and (self.first_hour, self.end_hour) == (0, 24)
        )

    def spans(self, since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The times inside [since, until), one for each day on which they begin."""
        zone = ZoneInfo(self.zone)
        # The hours of a day may last into the next.
        day = since.astimezone(zone).date() - timedelta(days=1)
        last = until.astimezone(zone).date()
        day = max(day, self.first_day) if self.first_day else day
        last = min(last, self.last_day) if self.last_day else last
        later = 24 if self.end_hour <= self.first_hour else 0
        while day <= last:
            if not self.weekdays or day.weekday() in self.weekdays:
                begins = max(since, hour_at(day, self.first_hour, zone))
                ends = min(until, hour_at(day, self.end_hour + later, zone))
                if begins < ends:
                    yield begins, ends
            day += timedelta(days=1)

    def lasts_past(self, moment: datetime) -> bool:
        """True when there may be more of it after a moment."""
        return self.last_day is None or hour_at(self.last_day, 48, ZoneInfo(self.zone)) > moment


@dataclass(frozen=True, slots=True)
class Step:
    """A limit in [starts, ends)."""

    starts: datetime
    ends: datetime
    limit: int


def limit_steps(
    base: int | None, rows: Iterable[tuple[int, Times]], since: datetime, until: datetime
) -> list[Step]:
    """When and how a limit differs from its `base` (None: no limit), from `since` on, in order.

    Of the rows (limit, times) that apply at a moment the lowest counts. After `until`, a row that
    applies at some hours only counts at all hours if it is lower than the base, and not at all if
    it is higher, so that nothing is planned there that might have to be refused.
    """
    limits = list(rows)
    changes: dict[datetime, list[tuple[int, int]]] = {}
    for limit, times in limits:
        for begins, ends in times.spans(since, until):
            changes.setdefault(begins, []).append((limit, 1))
            changes.setdefault(ends, []).append((limit, -1))
    steps: list[Step] = []
    counts: dict[int, int] = {}
    instants = sorted(changes)
    for number, moment in enumerate(instants[:-1]):
        for limit, change in changes[moment]:
            counts[limit] = counts.get(limit, 0) + change
        lowest = min((limit for limit, count in counts.items() if count), default=None)
        if lowest is not None and lowest != base:
            _extend(steps, Step(moment, instants[number + 1], lowest))
    after = _after(base, limits, until)
    if after is not None and after != base:
        _extend(steps, Step(until, FOREVER, after))
    return steps


def _after(base: int | None, rows: list[tuple[int, Times]], until: datetime) -> int | None:
    lasting = [(limit, times) for limit, times in rows if times.lasts_past(until)]
    always = [limit for limit, times in lasting if times.is_always]
    sometimes = [limit for limit, times in lasting if not times.is_always]
    usual = always or ([] if base is None else [base])
    return min([*usual, *sometimes], default=None)


def _extend(steps: list[Step], step: Step) -> None:
    if steps and (steps[-1].ends, steps[-1].limit) == (step.starts, step.limit):
        steps[-1] = Step(steps[-1].starts, step.ends, step.limit)
    else:
        steps.append(step)


def hour_at(day: date, hour: int, zone: ZoneInfo) -> datetime:
    """The instant at which the clocks show an hour, counted from the begin of a day."""
    local = datetime.combine(day, time()) + timedelta(hours=hour)
    return local.replace(tzinfo=zone).astimezone(UTC)
