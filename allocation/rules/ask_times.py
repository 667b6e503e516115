"""Words of time in an ask: `6h`, `1h30m`, `mon 9`, `tomorrow 14:00`, in the asker's zone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

_UNIT = r"(?:w|weeks?|d|days?|h|hrs?|hours?|m|mins?|minutes?)"
_DURATION = re.compile(rf"(?:\d{{1,5}}(?:\.\d{{1,2}})?{_UNIT})+", re.ASCII)
_AMOUNT = re.compile(rf"(\d{{1,5}}(?:\.\d{{1,2}})?)({_UNIT})", re.ASCII)
_NUMBER = re.compile(r"\d{1,5}(?:\.\d{1,2})?", re.ASCII)
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60}
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)
_CLOCK_12 = re.compile(r"(\d{1,2})(?::(\d{2}))?(am|pm)", re.ASCII)
_HOUR = re.compile(r"\d{1,2}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2}t\d{2}:\d{2}(?::\d{2})?)(z|[+-]\d{2}:\d{2})?", re.ASCII)
WEEKDAY_WORDS = {
    word: number
    for number, day in enumerate(
        ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    )
    for word in (day, day[:3])
} | {"tues": 1, "wednes": 2, "thurs": 3, "thur": 3}
_NAMED_CLOCKS = {"noon": time(12), "midnight": time(0)}
_FIRST_DATE, _LAST_DATE = date(2000, 1, 1), date(2199, 12, 31)


class NoSuchTime(ValueError):
    """A wall clock time that its day does not have, or one that is over; the text says which."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What words said about a time: a day, a time of the day, or both; `fixed` said all of it."""

    words: int
    day: date | None = None
    clock: time | None = None
    weekday: bool = False
    fixed: datetime | None = None


def duration_in(words: Sequence[str]) -> tuple[int, int]:
    """(words used, seconds); (0, 0) when they do not begin with a duration."""
    used, total = 0, 0
    while used < len(words):
        word = words[used]
        if _DURATION.fullmatch(word):
            total += sum(_amount(*found) for found in _AMOUNT.findall(word))
            used += 1
        elif _NUMBER.fullmatch(word) and used + 1 < len(words) and _is_unit(words[used + 1]):
            total += _amount(word, words[used + 1])
            used += 2
        else:
            break
    return used, total


def moment_in(words: Sequence[str], today: date, *, bare_hour: bool) -> Moment | None:
    """The moment that the words begin with; `bare_hour` lets `9` mean nine o'clock."""
    if not words:
        return None
    instant = _instant(words[0])
    if instant is not None:
        return instant
    day, weekday = _day(words[0], today)
    if day is not None:
        clock = clock_of(words[1], bare_hour=bare_hour) if len(words) > 1 else None
        return Moment(1 + (clock is not None), day, clock, weekday)
    clock = clock_of(words[0], bare_hour=bare_hour)
    if clock is None:
        return None
    day, weekday = _day(words[1], today) if len(words) > 1 else (None, False)
    return Moment(1 + (day is not None), day, clock, weekday)


def instant_of(moment: Moment, zone: ZoneInfo, *, after: datetime, end_of_day: bool) -> datetime:
    """UTC time of the moment, after `after` where the words leave a choice of days.

    A day without a time is its beginning, or its end with `end_of_day`. NoSuchTime when the day
    does not have that wall clock time (the night when clocks go forward).
    """
    if moment.fixed is not None:
        found = moment.fixed
        return found.astimezone(UTC) if found.tzinfo else wall(found.date(), found.time(), zone)
    day = moment.day or after.astimezone(zone).date()
    found = _on(moment, day, zone, end_of_day=end_of_day)
    repeats = moment.weekday or moment.day is None
    has_begun = moment.clock is None and day_bounds(day, zone)[1] > after
    if found > after or has_begun or not repeats:
        return found
    again = day + timedelta(days=7 if moment.weekday else 1)
    return _on(moment, again, zone, end_of_day=end_of_day)


def wall(day: date, clock: time, zone: ZoneInfo) -> datetime:
    """UTC time of a wall clock time. NoSuchTime when the day does not have it."""
    local = datetime.combine(day, clock, tzinfo=zone)
    found = local.astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        raise NoSuchTime(f"{day.isoformat()} has no {clock:%H:%M} in {zone.key}.")
    return found


def day_bounds(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Begin of the day and of the next one, UTC; the first second there is."""
    begins = datetime.combine(day, time(0), tzinfo=zone).astimezone(UTC)
    ends = datetime.combine(day + timedelta(days=1), time(0), tzinfo=zone).astimezone(UTC)
    return begins, ends


def day_text(seconds: int) -> str:
    """`1 d 2 h 30 min` for people."""
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts) or "0 s"


def _on(moment: Moment, day: date, zone: ZoneInfo, *, end_of_day: bool) -> datetime:
    if moment.clock is not None:
        return wall(day, moment.clock, zone)
    begins, ends = day_bounds(day, zone)
    return ends if end_of_day else begins


def _amount(number: str, unit: str) -> int:
    whole, _, rest = number.partition(".")
    hundredths = int(whole) * 100 + int(rest.ljust(2, "0") or 0)
    return hundredths * _SECONDS[unit[0]] // 100


def _is_unit(word: str) -> bool:
    return re.fullmatch(_UNIT, word) is not None


def _day(word: str, today: date) -> tuple[date | None, bool]:
    """The day a word means and whether it is a weekday, which comes again."""
    if word in ("today", "tomorrow"):
        return today + timedelta(days=word == "tomorrow"), False
    if word in WEEKDAY_WORDS:
        return today + timedelta(days=(WEEKDAY_WORDS[word] - today.weekday()) % 7), True
    if not _DATE.fullmatch(word):
        return None, False
    try:
        day = date.fromisoformat(word)
    except ValueError:
        return None, False
    return (day, False) if _FIRST_DATE <= day <= _LAST_DATE else (None, False)


def clock_of(word: str, *, bare_hour: bool) -> time | None:
    """The time of day that a word says; `bare_hour` lets `9` mean nine o'clock."""
    if word in _NAMED_CLOCKS:
        return _NAMED_CLOCKS[word]
    if bare_hour and _HOUR.fullmatch(word):
        return _time(int(word), 0)
    found = _CLOCK.fullmatch(word)
    if found:
        return _time(int(found[1]), int(found[2]))
    found = _CLOCK_12.fullmatch(word)
    if found and 1 <= int(found[1]) <= 12:
        return _time(int(found[1]) % 12 + 12 * (found[3] == "pm"), int(found[2] or 0))
    return None


def _time(hour: int, minute: int) -> time | None:
    return time(hour, minute) if hour < 24 and minute < 60 else None


def _instant(word: str) -> Moment | None:
    if not _INSTANT.fullmatch(word):
        return None
    try:
        found = datetime.fromisoformat(word.upper())
    except ValueError:
        return None
    return Moment(1, fixed=found) if _FIRST_DATE <= found.date() <= _LAST_DATE else None
