"""Recurrence rules: a subset of RRULE (RFC 5545) in the requester's local time.

`FREQ=DAILY|WEEKLY|MONTHLY` with INTERVAL, BYDAY, WKST, and COUNT or UNTIL. MONTHLY also takes
numbered weekdays (`2TU`, `-1FR`), BYMONTHDAY and BYSETPOS. UNTIL is a day or a time, as calendar
programs write it. The local time stays the same when clocks change. A local time that does not
exist (clocks go forward) moves forward by the gap; of a time that exists twice, the first one
counts, unless the first date is at the second one. A day that does not exist in its month (the
31st, a fifth Friday) is skipped and reported.
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Literal, cast
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from tenants.platform.coded import coded

Freq = Literal["DAILY", "WEEKLY", "MONTHLY"]

MAX_DATES = 366
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MAX_RULE_LENGTH = 120
_FREQS = ("DAILY", "WEEKLY", "MONTHLY")
_NUMBER = re.compile(r"[1-9]\d{0,9}", re.ASCII)
_SIGNED = re.compile(r"[+-]?[1-9]\d?", re.ASCII)
_UNTIL = re.compile(r"\d{8}(?:T\d{6}Z?)?", re.ASCII)
MOST_INTERVAL = 99
_YEARS = range(1900, 2200)
_LAST_DAY = date(2199, 12, 31)
# A Monday that is the 29 February is at most 40 years after the one before it: so many steps of a rule
# for every twelfth month. Any other rule has its next date after fewer steps, or none.
_MOST_EMPTY = 64


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A rule. `days` are weekdays, 0 for Monday. It ends with the day `until`, with the last date
    that begins by `until_at` (local without a zone), or after `times` dates. In a month, `nth` are
    numbered weekdays, (2, 1) for the second Tuesday, `month_days` are days, and `positions` selects
    some of all these days. -1 is the last. `week_starts` counts where weeks are left out."""

    freq: Freq
    interval: int = 1
    days: tuple[int, ...] = ()
    times: int | None = None
    until: date | None = None
    nth: tuple[tuple[int, int], ...] = ()
    month_days: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    until_at: datetime | None = None
    week_starts: int = 0

    @property
    def has_end(self) -> bool:
        """Whether it ends."""
        return self.times is not None or self.until is not None or self.until_at is not None

    @property
    def text(self) -> str:
        """The canonical RRULE."""
        weekdays = [DAYS[day] for day in self.days]
        weekdays += [f"{which}{DAYS[day]}" for which, day in self.nth]
        lists = {"BYDAY": weekdays, "BYMONTHDAY": self.month_days, "BYSETPOS": self.positions}
        parts = [f"FREQ={self.freq}"]
        parts += [f"INTERVAL={self.interval}"] if self.interval > 1 else []
        parts += [f"{name}={','.join(map(str, each))}" for name, each in lists.items() if each]
        parts += [f"WKST={DAYS[self.week_starts]}"] if self.week_starts else []
        parts += [f"COUNT={self.times}"] if self.times is not None else []
        parts += [f"UNTIL={self.until:%Y%m%d}"] if self.until is not None else []
        if self.until_at is not None:
            parts.append(f"UNTIL={self.until_at:%Y%m%dT%H%M%S}{'Z' * bool(self.until_at.tzinfo)}")
        return ";".join(parts)


@dataclass(frozen=True, slots=True)
class Dates:
    """Starts in UTC, in order, with their local times, which can be times that no clock shows, and
    the days of the rule that do not exist. `rule` ends with a day or after a number of dates."""

    starts: tuple[datetime, ...]
    skipped: tuple[str, ...]
    rule: Recurrence
    first: datetime
    zone: ZoneInfo
    walls: tuple[datetime, ...]

    def at_local(self, moment: datetime) -> tuple[datetime, ...]:
        """For each date the time that is to it what `moment` is to the first start: the same local
        time, never before its start."""
        local = moment.astimezone(self.zone)
        begin = self.first.astimezone(self.zone)
        later = local.replace(tzinfo=None, fold=0) - begin.replace(tzinfo=None, fold=0)
        exactly = moment - self.first
        if exactly <= timedelta(0) or later <= timedelta(0):
            # From the first 02:30 to the second 02:15: only the length has a meaning elsewhere.
            return tuple(starts + exactly for starts in self.starts)
        found = []
        for starts, wall in zip(self.starts, self.walls, strict=True):
            at = moment if starts == self.first else _at(wall + later, self.zone, local.fold)
            found.append(at if at > starts else starts + exactly)
        return tuple(found)

    def after(self, seconds: int) -> tuple[datetime, ...]:
        """The time so many seconds after each start."""
        return tuple(starts + timedelta(seconds=seconds) for starts in self.starts)


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
    interval = _number(parts.get("INTERVAL", "1"), MOST_INTERVAL, param)
    until = _until(parts["UNTIL"], param) if "UNTIL" in parts else None
    week_starts = _weekday(parts.get("WKST", "MO"), param)
    rule = Recurrence(
        freq=cast(Freq, parts["FREQ"]),
        interval=interval,
        days=days,
        times=_number(parts["COUNT"], 10**9, param) if "COUNT" in parts else None,
        until=until if type(until) is date else None,
        until_at=until if isinstance(until, datetime) else None,
        week_starts=week_starts if interval > 1 and parts["FREQ"] == "WEEKLY" else 0,
        nth=nth,
        month_days=_signed(parts.get("BYMONTHDAY", ""), 31, param),
        positions=_signed(parts.get("BYSETPOS", ""), 31, param),
    )
    _check_month(rule, param)
    return rule


def recurrence_check(rule: Recurrence, param: str) -> Recurrence:
    """Returns the rule. Raises AskError if it has no end, or is too long."""
    if not rule.has_end:
        raise AskError("no_end", coded("rrule_no_end"), param)
    if rule.times is not None and rule.times > MAX_DATES:
        raise _too_long(param, rule)
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
    rule, here = with_last_day(rule, first, zone), first.astimezone(zone)
    local = here.replace(tzinfo=None, fold=0)
    walls = tuple(islice(_walls(rule, local), rule.times or MAX_DATES + 1))
    if len(walls) > MAX_DATES:
        raise _too_long(param, rule)
    if not walls:
        raise AskError("no_dates", coded("rrule_no_dates"), param)
    starts = tuple(_at(wall, zone, here.fold) for wall in walls)
    skipped = tuple(_skipped(rule, local.date(), rule.until or walls[-1].date()))
    return Dates(starts, skipped, rule, first, zone, walls)


def with_last_day(rule: Recurrence, first: datetime, zone: ZoneInfo) -> Recurrence:
    """The rule with the day of its last date in place of a last time. Dates begin at the local time
    of `first`."""
    if rule.until_at is None:
        return rule
    here = first.astimezone(zone)
    # A time without a zone is local.
    end = rule.until_at if rule.until_at.tzinfo else _at(rule.until_at, zone, fold=1)
    day = end.astimezone(zone).date()
    starts = _at(datetime.combine(day, here.time().replace(fold=0)), zone, here.fold)
    return replace(rule, until=day - timedelta(days=starts > end), until_at=None)


def dates_overlap(starts: Sequence[datetime], ends: Sequence[datetime]) -> bool:
    """Whether a date begins before the previous one ends."""
    return any(end > following for end, following in zip(ends, starts[1:], strict=False))


def days_in_order(days: Iterable[int]) -> tuple[int, ...]:
    """Sorts days of a month: from its start, then those counted from its end."""
    return tuple(sorted(set(days), key=lambda day: day % 100))


def nth_in_order(nth: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sorts numbered weekdays in the same way."""
    return tuple(sorted(set(nth), key=lambda each: (each[0] % 100, each[1])))


def _walls(rule: Recurrence, first: datetime) -> Iterator[datetime]:
    """The dates in local time without a zone, so that a clock change does not move them."""
    begin, last = first.date(), min(rule.until or _LAST_DAY, _LAST_DAY)
    empty = 0
    for period, days in _periods(rule, begin):
        if period > last or empty > _MOST_EMPTY:
            # A rule that never matches ends, too.
            return
        empty = 0 if days else empty + 1
        yield from (datetime.combine(day, first.time()) for day in days if begin <= day <= last)


def _periods(rule: Recurrence, first: date) -> Iterator[tuple[date, list[date]]]:
    """The first day of each day, week or month of the rule, with its dates in order."""
    if rule.freq == "MONTHLY":
        for month in range(_month(first), _month(_LAST_DAY) + 1, rule.interval):
            begin = date(month // 12, month % 12 + 1, 1)
            yield begin, _of_month(rule, begin, first.day)
        return
    length = 7 if rule.freq == "WEEKLY" else 1
    begin = first - timedelta(days=(first.weekday() - rule.week_starts) % length)
    for ahead in range(0, (_LAST_DAY - begin).days, length * rule.interval):
        period = begin + timedelta(days=ahead)
        if rule.freq == "WEEKLY":
            offsets = sorted((day - rule.week_starts) % 7 for day in rule.days or (first.weekday(),))
            yield period, [period + timedelta(days=each) for each in offsets]
        else:
            yield period, [period] if not rule.days or period.weekday() in rule.days else []


def _of_month(rule: Recurrence, begin: date, usual: int) -> list[date]:
    """The dates of a month, in order. A rule without days has the `usual` one."""
    length = monthrange(begin.year, begin.month)[1]
    is_by_weekday = bool(rule.days or rule.nth)
    numbers = rule.month_days or (() if is_by_weekday else (usual,))
    found = []
    for number in range(1, length + 1):
        weekday = (begin.weekday() + number - 1) % 7
        which = (number - 1) // 7 + 1, -((length - number) // 7 + 1)
        is_nth = any((each, weekday) in rule.nth for each in which)
        is_weekday = not is_by_weekday or weekday in rule.days or is_nth
        if is_weekday and (not numbers or number in numbers or number - length - 1 in numbers):
            found.append(begin.replace(day=number))
    if not rule.positions:
        return found
    count = len(found)
    chosen = {at - 1 if at > 0 else count + at for at in rule.positions if abs(at) <= count}
    return [found[at] for at in sorted(chosen)]


def _skipped(rule: Recurrence, first: date, last: date) -> Iterator[str]:
    """The days of the rule that do not exist up to `last`: `2027-02-31`, `2027-02 5FR`. A month in
    which a position selects nothing is named with it: `2027-02 BYSETPOS=5`."""
    if rule.freq != "MONTHLY" or (rule.month_days and (rule.days or rule.nth)):
        # Weekdays and days of the month together select, and select nothing in most months.
        return
    for month in range(_month(first), _month(last) + 1, rule.interval):
        begin = date(month // 12, month % 12 + 1, 1)
        missing = _missing_positions if rule.positions else _missing_days
        yield from (f"{begin:%Y-%m}{name}" for name in missing(rule, first, begin, last))


def _missing_days(rule: Recurrence, first: date, begin: date, last: date) -> Iterator[str]:
    """The days of a month that it does not have and that would be after the first and not after
    the last date: `-31`, ` BYMONTHDAY=-31`, ` 5FR`."""
    length = monthrange(begin.year, begin.month)[1]
    is_over = _month(begin) == _month(last) and last.day < length
    is_first = _month(begin) == _month(first)

    def is_inside(number: int) -> bool:
        return not (is_over if number > 0 else is_first)

    numbers = () if rule.days or rule.nth else rule.month_days or (first.day,)
    outside = (day for day in numbers if abs(day) > length and is_inside(day))
    yield from (f"-{day:02}" if day > 0 else f" BYMONTHDAY={day}" for day in outside)
    for which, day in rule.nth:
        ahead = (day - begin.weekday()) % 7
        if abs(which) > len(range(ahead, length, 7)) and is_inside(which):
            yield f" {which}{DAYS[day]}"


def _missing_positions(rule: Recurrence, first: date, begin: date, last: date) -> Iterator[str]:
    """The positions that select nothing in a month: ` BYSETPOS=5`."""
    length = monthrange(begin.year, begin.month)[1]
    count = len(_of_month(replace(rule, positions=()), begin, first.day))
    is_over = _month(begin) == _month(last) and last.day < length
    for which in rule.positions:
        if abs(which) > count and not is_over:
            yield f" BYSETPOS={which}"


def _month(day: date) -> int:
    return day.year * 12 + day.month - 1


def _at(wall: datetime, zone: ZoneInfo, fold: int = 0) -> datetime:
    """The UTC time of a local time. With `fold` the second one of a time that exists twice. A time
    in a gap moves forward by it: with a fold it would move back, so the later one counts."""
    found = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    return max(found, wall.replace(tzinfo=zone, fold=1).astimezone(UTC)) if fold else found


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
        day = _weekday(name[-2:], param)
        which = _signed(name[:-2], 5, param)
        if which:
            nth.add((which[0], day))
        else:
            plain.add(day)
    return tuple(sorted(plain)), nth_in_order(nth)


def _weekday(name: str, param: str) -> int:
    if name not in DAYS:
        raise AskError("not_a_rule", _UNDERSTOOD, param)
    return DAYS.index(name)


def _until(text: str, param: str) -> date | datetime:
    """A day, a local time, or a time in UTC."""
    try:
        found = datetime.fromisoformat(text) if _UNTIL.fullmatch(text) else None
    except ValueError:
        found = None
    if found is None:
        raise AskError("not_a_rule", coded("rrule_until"), param)
    # No rule reaches these years, in which the time zones of the earth leave the calendar.
    return found if "T" in text and found.year in _YEARS else found.date()


def _too_long(param: str, rule: Recurrence) -> AskError:
    longest = replace(rule, times=MAX_DATES, until=None, until_at=None)
    why = coded("rrule_dates", max_dates=MAX_DATES)
    return AskError("series_too_long", why, param, {"times": MAX_DATES, "rrule": longest.text})


_READERS = ("FREQ", "INTERVAL", "BYDAY", "BYMONTHDAY", "BYSETPOS", "COUNT", "UNTIL", "WKST")
_UNDERSTOOD = coded("rrule_form")
