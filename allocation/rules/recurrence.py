"""Dates that repeat: a part of RRULE (RFC 5545), in the asker's wall clock time.

`FREQ=DAILY|WEEKLY|MONTHLY` with INTERVAL, BYDAY, and COUNT or UNTIL; with MONTHLY BYDAY may count
(`2TU`, `-1FR`), and there are BYMONTHDAY and BYSETPOS. The days are dateutil's. The wall clock
time stays the same over a change of clocks. A time that its day does not have (clocks go forward)
is moved on by what they skip; of a time that its day has twice, the first is meant. A day that
its month does not have (the 31st, a fifth Friday) is left out and said.
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, pairwise
from typing import Literal, cast
from zoneinfo import ZoneInfo

from dateutil.rrule import DAILY, MONTHLY, WEEKLY, rrule, weekday

from allocation.errors import AskError

Freq = Literal["DAILY", "WEEKLY", "MONTHLY"]

MAX_DATES = 366
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MAX_RULE_LENGTH = 120
_FREQS: dict[str, int] = {"DAILY": DAILY, "WEEKLY": WEEKLY, "MONTHLY": MONTHLY}
_NUMBER = re.compile(r"[1-9]\d{0,9}", re.ASCII)
_SIGNED = re.compile(r"[+-]?[1-9]\d?", re.ASCII)
_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)
_MOST_INTERVAL = 99
_LAST_DAY = date(2199, 12, 31)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A rule. `days` are weekdays, 0 for Monday; it ends with `until` (a day, included) or after
    `times` dates. Of a month: `nth` are (which, weekday), (2, 1) for its second Tuesday,
    `month_days` its days; -1 is the last. Of all these `positions` takes some: the last one."""

    freq: Freq
    interval: int = 1
    days: tuple[int, ...] = ()
    times: int | None = None
    until: date | None = None
    nth: tuple[tuple[int, int], ...] = ()
    month_days: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The canonical RRULE."""
        weekdays = [DAYS[day] for day in self.days]
        weekdays += [f"{which}{DAYS[day]}" for which, day in self.nth]
        lists = {"BYDAY": weekdays, "BYMONTHDAY": self.month_days, "BYSETPOS": self.positions}
        parts = [f"FREQ={self.freq}"]
        parts += [f"INTERVAL={self.interval}"] if self.interval > 1 else []
        parts += [f"{name}={','.join(map(str, each))}" for name, each in lists.items() if each]
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
    return recurrence_check(rule_read(text, param), param)


def rule_read(text: str, param: str) -> Recurrence:
    """The same of a rule whose end is said elsewhere."""
    parts: dict[str, str] = {}
    body = text.upper().removeprefix("RRULE:")
    for part in body.split(";"):
        name, _, value = part.partition("=")
        if name not in _READERS or name in parts or not value or len(body) > MAX_RULE_LENGTH:
            raise AskError("not_a_rule", _UNDERSTOOD, param)
        parts[name] = value
    if parts.get("FREQ") not in _FREQS:
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    if "COUNT" in parts and "UNTIL" in parts:
        raise AskError("end_twice", "A series ends by COUNT or by UNTIL, not by both.", param)
    days, nth = _days(parts.get("BYDAY", ""), param)
    rule = Recurrence(
        freq=cast(Freq, parts["FREQ"]),
        interval=_number(parts.get("INTERVAL", "1"), _MOST_INTERVAL, param),
        days=days,
        times=_number(parts["COUNT"], 10**9, param) if "COUNT" in parts else None,
        until=_day(parts["UNTIL"], param) if "UNTIL" in parts else None,
        nth=nth,
        month_days=_signed(parts.get("BYMONTHDAY", ""), 31, param),
        positions=_signed(parts.get("BYSETPOS", ""), 31, param),
    )
    _check_month(rule, param)
    return rule


def recurrence_check(rule: Recurrence, param: str) -> Recurrence:
    """The rule itself. AskError: it has no end, too many dates, or too many words."""
    if rule.times is None and rule.until is None:
        raise AskError("no_end", "Say until when it repeats, or how many times.", param)
    if rule.times is not None and rule.times > MAX_DATES:
        raise _too_long(param)
    if len(rule.text) > MAX_RULE_LENGTH:
        raise AskError("not_a_rule", "That is too long for one rule; make it two series.", param)
    return rule


def _check_month(rule: Recurrence, param: str) -> None:
    of_month = rule.nth or rule.month_days or rule.positions
    if of_month and rule.freq != "MONTHLY":
        sentence = "2TU, BYMONTHDAY and BYSETPOS are days of a month: they need FREQ=MONTHLY."
        raise AskError("not_a_rule", sentence, param)
    if rule.positions and not (rule.days or rule.nth or rule.month_days):
        raise AskError("not_a_rule", "BYSETPOS takes some of BYDAY or BYMONTHDAY.", param)


def dates_of(rule: Recurrence, first: datetime, zone: ZoneInfo, param: str = "repeat") -> Dates:
    """All dates, from the wall clock time of `first` (aware) on.

    AskError: more than `MAX_DATES`, or none.
    """
    local = first.astimezone(zone).replace(tzinfo=None, fold=0)
    found = tuple(islice(_walls(rule, local), rule.times or MAX_DATES + 1))
    if len(found) > MAX_DATES:
        raise _too_long(param)
    if not found:
        raise AskError("no_dates", "The series ends before its first date.", param)
    last = found[-1].date()
    skipped = tuple(day for day in _skipped(rule, local.date(), last) if day < last.isoformat())
    return Dates(tuple(_at(wall, zone) for wall in found), skipped)


def dates_overlap(starts: tuple[datetime, ...], seconds: int) -> bool:
    """Whether a date begins before the one before it is over."""
    length = timedelta(seconds=seconds)
    return any(one + length > other for one, other in pairwise(starts))


def days_in_order(days: Iterable[int]) -> tuple[int, ...]:
    """Days of a month from its first on, then those that count from its end."""
    return tuple(sorted(set(days), key=lambda day: day % 100))


def nth_in_order(nth: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same of (which, weekday)."""
    return tuple(sorted(set(nth), key=lambda each: (each[0] % 100, each[1])))


def _walls(rule: Recurrence, first: datetime) -> rrule:
    """Its dates on the wall clock, without a zone, so that a change of clocks moves none."""
    weekdays = [weekday(day) for day in rule.days]
    weekdays += [weekday(day, which) for which, day in rule.nth]
    # Always with a last day, so that a rule that never matches comes to an end.
    return rrule(
        _FREQS[rule.freq],
        dtstart=first,
        interval=rule.interval,
        byweekday=weekdays or None,
        bymonthday=rule.month_days or None,
        bysetpos=rule.positions or None,
        until=datetime.combine(min(rule.until or _LAST_DAY, _LAST_DAY), time.max),
    )


def _skipped(rule: Recurrence, first: date, last: date) -> Iterator[str]:
    """Days that were meant and that their month does not have: `2027-02-31`, `2027-02 5FR`. A rule
    that picks among days means none in particular."""
    picks = rule.positions or rule.days or (rule.nth and rule.month_days)
    if rule.freq != "MONTHLY" or picks:
        return
    wanted = rule.month_days or (() if rule.nth else (first.day,))
    for month in range(_month(first), _month(last) + 1, rule.interval):
        begin = date(month // 12, month % 12 + 1, 1)
        length = monthrange(begin.year, begin.month)[1]
        yield from (f"{begin:%Y-%m}-{day:02}" for day in wanted if abs(day) > length)
        for which, day in rule.nth:
            ahead = (day - begin.weekday()) % 7
            if abs(which) > len(range(ahead, length, 7)):
                yield f"{begin:%Y-%m} {which}{DAYS[day]}"


def _month(day: date) -> int:
    return day.year * 12 + day.month - 1


def _at(wall: datetime, zone: ZoneInfo) -> datetime:
    # Without a fold, a time in a gap has the offset from before it: it comes out later by the gap.
    return wall.replace(tzinfo=zone).astimezone(UTC)


def _number(text: str, most: int, param: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > most:
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    return int(text)


def _signed(text: str, most: int, param: str) -> tuple[int, ...]:
    """Numbers from 1 to `most`, or from the end; in order, each once."""
    names = text.split(",") if text else []
    if any(not _SIGNED.fullmatch(name) or abs(int(name)) > most for name in names):
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    return days_in_order(int(name) for name in names)


def _days(text: str, param: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Weekdays, and those that count within a month: `MO`, `2TU`, `-1FR`."""
    plain: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for name in text.split(",") if text else []:
        if name[-2:] not in DAYS:
            raise AskError("not_a_rule", _UNDERSTOOD, param)
        day = DAYS.index(name[-2:])
        which = _signed(name[:-2], 5, param)
        if which:
            nth.add((which[0], day))
        else:
            plain.add(day)
    return tuple(sorted(plain)), nth_in_order(nth)


def _day(text: str, param: str) -> date:
    found = _DATE.fullmatch(text)
    try:
        return date(*map(int, found.groups())) if found else date(0, 0, 0)
    except ValueError:
        sentence = "UNTIL is the last day, as in UNTIL=20270131; it is meant in the asker's zone."
        raise AskError("not_a_rule", sentence, param) from None


def _too_long(param: str) -> AskError:
    return AskError("series_too_long", f"A series has at most {MAX_DATES} dates.", param)


_READERS = ("FREQ", "INTERVAL", "BYDAY", "BYMONTHDAY", "BYSETPOS", "COUNT", "UNTIL")
_UNDERSTOOD = (
    "Understood are FREQ=DAILY, WEEKLY or MONTHLY with INTERVAL, BYDAY like MO,WE, and COUNT or "
    "UNTIL=20270131; with MONTHLY also BYDAY like 2TU,-1FR, BYMONTHDAY and BYSETPOS."
)
