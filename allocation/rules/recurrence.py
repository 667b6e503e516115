"""Recurrence rules: a subset of RRULE (RFC 5545) in the requester's local time.

`FREQ=DAILY|WEEKLY|MONTHLY` with INTERVAL, BYDAY, and COUNT or UNTIL. MONTHLY also takes numbered
weekdays (`2TU`, `-1FR`), BYMONTHDAY and BYSETPOS. dateutil computes the days. The local time stays
the same when clocks change. A local time that does not exist (clocks go forward) moves forward by
the gap; of a time that exists twice, the first one counts. A day that does not exist in its month
(the 31st, a fifth Friday) is skipped and reported.
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
from tenants.platform.coded import coded

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
    """A rule. `days` are weekdays, 0 for Monday. It ends with the day `until` or after `times`
    dates. In a month, `nth` are numbered weekdays, (2, 1) for the second Tuesday, `month_days` are
    days, and `positions` selects some of all these days. -1 is the last."""

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
    """Starts in UTC, in order, and the days of the rule that do not exist."""

    starts: tuple[datetime, ...]
    skipped: tuple[str, ...]


def recurrence_read(text: str, param: str = "repeat.rrule") -> Recurrence:
    """Reads an RRULE. Raises AskError if it is not supported or has no end."""
    return recurrence_check(rule_read(text, param), param)


def rule_read(text: str, param: str) -> Recurrence:
    """Reads an RRULE whose end can be elsewhere. Raises AskError."""
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
        raise AskError("end_twice", coded("rrule_end_twice"), param)
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
    """Returns the rule. Raises AskError if it has no end, or is too long."""
    if rule.times is None and rule.until is None:
        raise AskError("no_end", coded("rrule_no_end"), param)
    if rule.times is not None and rule.times > MAX_DATES:
        raise _too_long(param)
    if len(rule.text) > MAX_RULE_LENGTH:
        raise AskError("not_a_rule", coded("rrule_long"), param)
    return rule


def _check_month(rule: Recurrence, param: str) -> None:
    of_month = rule.nth or rule.month_days or rule.positions
    if of_month and rule.freq != "MONTHLY":
        why = coded("rrule_monthly")
        raise AskError("not_a_rule", why, param)
    if rule.positions and not (rule.days or rule.nth or rule.month_days):
        raise AskError("not_a_rule", coded("rrule_setpos"), param)


def dates_of(rule: Recurrence, first: datetime, zone: ZoneInfo, param: str = "repeat") -> Dates:
    """All dates from `first` (aware), at its local time. Raises AskError if there are none or more
    than `MAX_DATES`."""
    local = first.astimezone(zone).replace(tzinfo=None, fold=0)
    found = tuple(islice(_walls(rule, local), rule.times or MAX_DATES + 1))
    if len(found) > MAX_DATES:
        raise _too_long(param)
    if not found:
        raise AskError("no_dates", coded("rrule_no_dates"), param)
    last = found[-1].date()
    skipped = tuple(day for day in _skipped(rule, local.date(), last) if day < last.isoformat())
    return Dates(tuple(_at(wall, zone) for wall in found), skipped)


def dates_overlap(starts: tuple[datetime, ...], seconds: int) -> bool:
    """Whether a date begins before the previous one ends."""
    length = timedelta(seconds=seconds)
    return any(one + length > other for one, other in pairwise(starts))


def days_in_order(days: Iterable[int]) -> tuple[int, ...]:
    """Sorts days of a month: from its start, then those counted from its end."""
    return tuple(sorted(set(days), key=lambda day: day % 100))


def nth_in_order(nth: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sorts numbered weekdays in the same way."""
    return tuple(sorted(set(nth), key=lambda each: (each[0] % 100, each[1])))


def _walls(rule: Recurrence, first: datetime) -> rrule:
    """The dates in local time without a zone, so that a clock change does not move them."""
    weekdays = [weekday(day) for day in rule.days]
    weekdays += [weekday(day, which) for which, day in rule.nth]
    # Always with a last day, so that a rule that never matches terminates.
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
    """The days of the rule that do not exist: `2027-02-31`, `2027-02 5FR`. A rule that selects
    among days skips none."""
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
    # Without a fold, a time in a gap has the offset from before the gap and moves forward by it.
    return wall.replace(tzinfo=zone).astimezone(UTC)


def _number(text: str, most: int, param: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > most:
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    return int(text)


def _signed(text: str, most: int, param: str) -> tuple[int, ...]:
    """Unique numbers from 1 to `most`, or from the end, sorted."""
    names = text.split(",") if text else []
    if any(not _SIGNED.fullmatch(name) or abs(int(name)) > most for name in names):
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    return days_in_order(int(name) for name in names)


def _days(text: str, param: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """(Weekdays, numbered weekdays): `MO`, `2TU`, `-1FR`."""
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
        why = coded("rrule_until")
        raise AskError("not_a_rule", why, param) from None


def _too_long(param: str) -> AskError:
    return AskError("series_too_long", coded("rrule_dates", max_dates=MAX_DATES), param)


_READERS = ("FREQ", "INTERVAL", "BYDAY", "BYMONTHDAY", "BYSETPOS", "COUNT", "UNTIL")
_UNDERSTOOD = coded("rrule_form")
