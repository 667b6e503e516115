"""Times and durations as text, in the reader's zone."""

from datetime import datetime, timedelta, tzinfo

from django import template
from django.utils import timezone

register = template.Library()


def clock(moment: datetime, zone: tzinfo) -> str:
    """`14:00`; `02:30 CET` where the day has that time twice."""
    local = moment.astimezone(zone)
    is_twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    return f"{local:%H:%M %Z}" if is_twice else f"{local:%H:%M}"


def day(moment: datetime, zone: tzinfo, now: datetime) -> str:
    """`today`, `tomorrow`, or `Tue 17 Nov` (with the year when it is another one)."""
    local, today = moment.astimezone(zone), now.astimezone(zone).date()
    if local.date() == today:
        return "today"
    if local.date() == today + timedelta(days=1):
        return "tomorrow"
    text = f"{local:%a} {local.day} {local:%b}"
    return text if local.year == today.year else f"{text} {local.year}"


def moment_words(moment: datetime, zone: tzinfo, now: datetime) -> str:
    """`today 14:00`, `Tue 17 Nov 09:30`."""
    return f"{day(moment, zone, now)} {clock(moment, zone)}"


@register.filter
def dated(value: datetime | None) -> str:
    """`Tue 17 Nov 09:30` in a template, in the reader's zone (with the year when it is another
    one); empty without a time."""
    return date_words(value, timezone.get_current_timezone()) if value else ""


def day_words(moment: datetime, zone: tzinfo) -> str:
    """`Tue 17 Nov`, also for today; `Tue 17 Nov 2027` in another year."""
    return date_words(moment, zone).removesuffix(f" {clock(moment, zone)}")


def date_words(moment: datetime, zone: tzinfo) -> str:
    """`Tue 17 Nov 09:30`, also for today; `Tue 17 Nov 2027 09:30` in another year."""
    local = moment.astimezone(zone)
    year = "" if local.year == timezone.now().astimezone(zone).year else f" {local.year}"
    return f"{local:%a} {local.day} {local:%b}{year} {clock(local, zone)}"


@register.filter
def moment(value: datetime, now: datetime) -> str:
    """`today 14:00` in a template, in the reader's zone."""
    return moment_words(value, timezone.get_current_timezone(), now)


def window_words(starts: datetime, ends: datetime, zone: tzinfo, now: datetime) -> str:
    """`today 14:00 – 20:00`, `today 22:00 – tomorrow 04:00`."""
    first = moment_words(starts, zone, now)
    same = starts.astimezone(zone).date() == ends.astimezone(zone).date()
    return f"{first} – {clock(ends, zone) if same else moment_words(ends, zone, now)}"


def length_words(seconds: float) -> str:
    """`6 h`, `1 h 30 min`, `2 d 4 h`, `45 min`, `30 s`: elapsed time, the two largest parts."""
    left = round(seconds)
    parts = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 min"


@register.filter
def waited(seconds: int | None) -> str:
    """A wait in words in a template: `0 min` without one, – where nothing is known."""
    if seconds is None:
        return "–"
    return length_words(seconds) if seconds else "0 min"
