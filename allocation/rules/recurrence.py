"""Dates that repeat: a small part of RRULE, in the asker's wall clock time.

`FREQ=DAILY|WEEKLY|MONTHLY` with INTERVAL, BYDAY (not with MONTHLY), and COUNT or UNTIL. The wall
clock time stays the same over a change of clocks. A time that its day does not have (clocks go
forward) is moved on by what they skip; of a time that its day has twice, the first is meant. A
day that its month does not have (the 31st) is left out and said.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import count, pairwise
from typing import Literal, cast
from zoneinfo import ZoneInfo

from allocation.errors import AskError

Freq = Literal["DAILY", "WEEKLY", "MONTHLY"]

MOST_DATES = 366
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
FREQS: dict[str, str] = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month"}
LONGEST_RULE = 120
_NUMBER = re.compile(r"[1-9]\d{0,9}", re.ASCII)
_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)
_MOST_INTERVAL = 99
_LAST_DAY = date(2199, 12, 31)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A rule. `days` are weekdays, 0 for Monday; it ends with `until` (a day, included) or after
    `times` dates."""

    freq: Freq
    interval: int = 1
    days: tuple[int, ...] = ()
    times: int | None = None
    until: date | None = None

    @property
    def text(self) -> str:
        """The canonical RRULE."""
        parts = [f"FREQ={self.freq}"]
        parts += [f"INTERVAL={self.interval}"] if self.interval > 1 else []
        parts += [f"BYDAY={','.join(DAYS[day] for day in self.days)}"] if self.days else []
        parts += [f"COUNT={self.times}"] if self.times is not None else []
        parts += [f"UNTIL={self.until:%Y%m%d}"] if self.until is not None else []
        return ";".join(parts)


@dataclass(frozen=True, slots=True)
class Dates:
    """Starts in UTC, in order, and the days of the rule that the calendar does not have."""

    starts: tuple[datetime, ...]
    skipped: tuple[str, ...]


def recurrence_read(text: str, param: str = "repeat.rrule") -> Recurrence:
    """Reads an RRULE. AskError: not of the part that is understood, or without an end."""
    parts: dict[str, str] = {}
    for part in text.upper().removeprefix("RRULE:").split(";"):
        name, _, value = part.partition("=")
        if name not in _READERS or name in parts or not value or len(text) > LONGEST_RULE:
            raise AskError("not_a_rule", _UNDERSTOOD, param)
        parts[name] = value
    if parts.get("FREQ") not in FREQS:
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    if "COUNT" in parts and "UNTIL" in parts:
        raise AskError("end_twice", "A series ends by COUNT or by UNTIL, not by both.", param)
    rule = Recurrence(
        freq=cast(Freq, parts["FREQ"]),
        interval=_number(parts.get("INTERVAL", "1"), _MOST_INTERVAL, param),
        days=_days(parts.get("BYDAY", ""), param),
        times=_number(parts["COUNT"], 10**9, param) if "COUNT" in parts else None,
        until=_day(parts["UNTIL"], param) if "UNTIL" in parts else None,
    )
    return recurrence_check(rule, param)


def recurrence_check(rule: Recurrence, param: str) -> Recurrence:
    """The rule itself. AskError: it has no end, too many dates, or weekdays in a month."""
    if rule.times is None and rule.until is None:
        raise AskError("no_end", "Say until when it repeats, or how many times.", param)
    if rule.freq == "MONTHLY" and rule.days:
        sentence = "What repeats by months falls on the same day of each; leave the weekdays out."
        raise AskError("not_a_rule", sentence, param)
    if rule.times is not None and rule.times > MOST_DATES:
        raise _too_long(param)
    return rule


def dates_of(rule: Recurrence, first: datetime, zone: ZoneInfo, param: str = "repeat") -> Dates:
    """All dates, from the wall clock time of `first` (aware) on.

    AskError: more than `MOST_DATES`, or none.
    """
    local = first.astimezone(zone)
    starts: list[datetime] = []
    skipped: list[str] = []
    for day in _walk(rule, local.date()):
        if isinstance(day, str):
            skipped.append(day)
            continue
        if day > (rule.until or _LAST_DAY) or len(starts) == rule.times:
            break
        if len(starts) == MOST_DATES:
            raise _too_long(param)
        starts.append(_at(day, local.time(), zone))
    if not starts:
        raise AskError("no_dates", "The series ends before its first date.", param)
    last = starts[-1].astimezone(zone).date().isoformat()
    return Dates(tuple(starts), tuple(day for day in skipped if day < last))


def overlaps(starts: tuple[datetime, ...], seconds: int) -> bool:
    """Whether a date begins before the one before it is over."""
    length = timedelta(seconds=seconds)
    return any(one + length > other for one, other in pairwise(starts))


def recurrence_words(rule: Recurrence) -> str:
    """`every Mon, Wed until 31 Jan 2027`, `every 2 weeks, 10 times`."""
    end = f" until {rule.until.day} {rule.until:%b %Y}" if rule.until else f", {rule.times} times"
    return f"{every_words(rule)}{end}"


def recurrence_line(rule: Recurrence) -> str:
    """The same in words that the one-line field reads."""
    end = f" until {rule.until.isoformat()}" if rule.until else f" {rule.times} times"
    return f"{every_words(rule).replace(',', '').lower()}{end}"


def every_words(rule: Recurrence) -> str:
    """`every Mon, Wed`, without its end."""
    names = ", ".join(_NAMES[day] for day in rule.days)
    names = "weekday" if rule.days == _WORKDAYS and rule.interval == 1 else names
    unit = FREQS[rule.freq]
    if rule.days and rule.interval == 1:
        return f"every {names}"
    often = f"every {unit}" if rule.interval == 1 else f"every {rule.interval} {unit}s"
    return f"{often} on {names}" if names else often


def _walk(rule: Recurrence, first: date) -> Iterator[date | str]:
    """Days of the rule from `first` on, without an end; text for those that do not exist."""
    if rule.freq == "MONTHLY":
        yield from _months(rule, first)
        return
    is_weekly = rule.freq == "WEEKLY"
    begin = first - timedelta(days=first.weekday()) if is_weekly else first
    wanted = rule.days or ((first.weekday(),) if is_weekly else range(7))
    steps = range(7) if is_weekly else range(1)
    for turn in count():
        for step in steps:
            ahead = turn * rule.interval * len(steps) + step
            if begin > _LAST_DAY - timedelta(days=ahead):
                return
            day = begin + timedelta(days=ahead)
            if day >= first and day.weekday() in wanted:
                yield day


def _months(rule: Recurrence, first: date) -> Iterator[date | str]:
    for turn in count():
        month = first.year * 12 + first.month - 1 + turn * rule.interval
        if month // 12 > _LAST_DAY.year:
            return
        try:
            yield first.replace(year=month // 12, month=month % 12 + 1)
        except ValueError:
            yield f"{month // 12:04}-{month % 12 + 1:02}-{first.day:02}"


def _at(day: date, clock: time, zone: ZoneInfo) -> datetime:
    # Without a fold, a time in a gap has the offset from before it: it comes out later by the gap.
    return datetime.combine(day, clock.replace(fold=0), tzinfo=zone).astimezone(UTC)


def _number(text: str, most: int, param: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > most:
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    return int(text)


def _days(text: str, param: str) -> tuple[int, ...]:
    names = text.split(",") if text else []
    if any(name not in DAYS for name in names):
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    return tuple(sorted({DAYS.index(name) for name in names}))


def _day(text: str, param: str) -> date:
    found = _DATE.fullmatch(text)
    try:
        return date(*map(int, found.groups())) if found else date(0, 0, 0)
    except ValueError:
        sentence = "UNTIL is the last day, as in UNTIL=20270131; it is meant in the asker's zone."
        raise AskError("not_a_rule", sentence, param) from None


def _too_long(param: str) -> AskError:
    return AskError("series_too_long", f"A series has at most {MOST_DATES} dates.", param)


_READERS = ("FREQ", "INTERVAL", "BYDAY", "COUNT", "UNTIL")
_WORKDAYS = (0, 1, 2, 3, 4)
_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_UNDERSTOOD = (
    "Understood are FREQ=DAILY, WEEKLY or MONTHLY with INTERVAL, BYDAY like MO,WE, and COUNT or "
    "UNTIL=20270131."
)
