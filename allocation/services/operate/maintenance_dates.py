"""Maintenance that repeats: one row for each date, at the same time on the wall clock."""

from copy import copy
from datetime import datetime
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from allocation.models import Maintenance
from allocation.rules.recurrence import Recurrence, dates_of, dates_overlap
from tenants.platform.errors import invalid

MAX_DATES = 60


def maintenance_dates(
    first: Maintenance, rule: Recurrence, zone: str, latest: datetime
) -> tuple[Maintenance, ...]:
    """The blackout at every date of the rule, each as long as the first. Not saved.

    Raises:
        Refused: `series_too_long`, `series_overlap`, `no_dates`, `advance_window`.
    """
    try:
        dates = dates_of(rule, first.starts, ZoneInfo(zone), "repeat")
    except AskError as error:
        raise invalid(error.code, error.sentence, "repeat") from error
    if len(dates.starts) > MAX_DATES:
        sentence = f"Maintenance repeats {MAX_DATES} times at most. Say an earlier last day."
        raise invalid("series_too_long", sentence, "repeat")
    if dates_overlap(dates.starts, int((first.ends - first.starts).total_seconds())):
        sentence = "A date would begin before the one before it is over. Make them shorter."
        raise invalid("series_overlap", sentence, "repeat")
    if dates.starts[-1] > latest:
        raise invalid("advance_window", "Plan at most a year ahead.", "repeat")
    series = uuid4()
    return tuple(_dated(first, starts, rule.text, zone, series) for starts in dates.starts)


def _dated(first: Maintenance, starts: datetime, rule: str, zone: str, series: UUID) -> Maintenance:
    later, found = starts - first.starts, copy(first)
    found.id, found.series = uuid4(), series
    found.rule, found.zone = rule, zone
    found.starts, found.ends = starts, first.ends + later
    found.drain_by = first.drain_by + later
    return found
