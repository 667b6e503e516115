"""The series of dates that change together: cut in two where the change begins."""

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from allocation.models import Booking, BookingChange, Series
from allocation.rules.recurrence import recurrence_read


def series_facts(booking: Booking, change: BookingChange) -> dict[str, object]:
    """What a change that is made says about the series of its booking: a new one from its date on,
    or the same."""
    series = booking.series
    if change.group is None or series is None:
        return {}
    new = Series.objects.filter(id=change.group).first()
    if new is not None and new.id != series.id:
        series_cut(series, new)
        return {"series": new}
    if change.target["starts"] and change.before["starts"] == series.first.isoformat():
        series.first = datetime.fromisoformat(change.target["starts"])
        series.save(update_fields=["first"])
    return {}


def series_cut(series: Series, new: Series) -> None:
    """Ends the rule of a series before the first date of a new one."""
    rule = recurrence_read(series.rule)
    last = new.first.astimezone(ZoneInfo(series.zone)).date() - timedelta(days=1)
    text = replace(rule, times=None, until=last).text
    if text != series.rule:
        later = skipped_from(series, new.first)
        series.rule, series.skipped = text, [day for day in series.skipped if day not in later]
        series.save(update_fields=["rule", "skipped"])


def skipped_from(series: Series, first: datetime) -> list[str]:
    """The days without a date from the month of a date on."""
    month = f"{first.astimezone(ZoneInfo(series.zone)):%Y-%m}"
    return [day for day in series.skipped if day[: len(month)] >= month]
