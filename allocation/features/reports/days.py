"""Which days a report has, and when it is due. Pure."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal

Cadence = Literal["weekly", "monthly"]
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ReportTime:
    """UTC days [starts, ends), and the moment from which on their report is sent."""

    starts: date
    ends: date
    due: datetime


def report_after(cadence: Cadence, now: datetime, zone: tzinfo, at: time) -> ReportTime:
    """The next report that is due after `now`.

    Weeks are from Monday to Sunday. Days are of UTC, as those of statements, so a report is due
    when a clock in the zone first shows `at` after the end of its days, east and west of UTC.
    """
    today = now.astimezone(UTC).date()
    found = _period_of(cadence, today - timedelta(days=40))
    while (due := _due(found[1], zone, at)) <= now:
        found = _period_of(cadence, found[1])
    return ReportTime(*found, due)


def report_latest(cadence: Cadence, now: datetime, zone: tzinfo, at: time) -> ReportTime | None:
    """The latest report that is due at `now`, so that an outage sends one and not many."""
    following = report_after(cadence, now, zone, at)
    starts, ends = _period_of(cadence, following.starts - DAY)
    due = _due(ends, zone, at)
    return ReportTime(starts, ends, due) if due <= now else None


def _period_of(cadence: Cadence, day: date) -> tuple[date, date]:
    if cadence == "weekly":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=7)
    first = day.replace(day=1)
    return first, (first + timedelta(days=32)).replace(day=1)


def _due(ends: date, zone: tzinfo, at: time) -> datetime:
    """The first moment from midnight UTC on at which a clock in the zone shows `at`."""
    over = datetime.combine(ends, time(), UTC)
    day = over.astimezone(zone).date()
    for each in (day, day + DAY):
        # The instant of an hour that does not exist is that of the clock before the change.
        due = datetime.combine(each, at, zone).astimezone(UTC)
        if due >= over:
            return due
    return datetime.combine(day + 2 * DAY, at, zone).astimezone(UTC)
