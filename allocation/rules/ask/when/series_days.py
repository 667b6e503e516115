"""The days of a series: `from 1 feb until 6 feb`, `for 3 weeks`, `in february`."""

import re
from dataclasses import replace
from datetime import date, timedelta

from lark import Token

from allocation.rules.ask.when.instants import day_words
from allocation.rules.ask.when.moment import ONE_DAY, Moment
from allocation.rules.ask.when.when_parts import When, length_read, length_words
from allocation.rules.ask.words.numbers import length_of, number_of
from allocation.rules.ask.words.reading import Reading, Span
from allocation.rules.ask.words.times import Day, NoSuchTime, wall
from allocation.rules.recurrence import Recurrence
from tenants.platform.coded import coded

_DAY_SECONDS = 86_400
_MONTHS = re.compile(r"(\S+) months?")


def series_days(reading: Reading, when: When) -> None:
    """Separates the days of a series from the window of a date, which all other rules read."""
    _deadline_is_end(when)
    _window_of_each_day(reading, when)
    _days_are_both(reading, when)
    _lengths(reading, when)
    _first_day(reading, when)


def _deadline_is_end(when: When) -> None:
    """Reads `by 6 feb` and `before 6 feb` as the end: a date with a window has no deadline."""
    last = when.deadline
    if last is None or when.until is not None or last.has_time or not (last.day or last.ends):
        return
    if when.is_before and last.day:
        last = replace(last, day=Day(last.day.on - ONE_DAY))
    when.until, when.deadline = last, None


def _window_of_each_day(reading: Reading, when: When) -> None:
    """Reads `from 1 feb 9:00 until 6 feb 10:00 every day` as 9:00 to 10:00 on each of these days.
    As one window, the dates would overlap."""
    rule = reading.values.get("repeat")
    if when.window is None or when.until or when.earliest or not isinstance(rule, Recurrence):
        return
    starts, ends = when.window
    if starts.has_time and ends.has_day and not ends.has_time and when.lengths and not when.plain:
        # `from 1 feb 9:00 until 6 feb for 1h`: the length is that of each date.
        when.plain, when.until, when.window = starts, ends, None
        return
    if not (starts.day and starts.clock and ends.day and ends.clock):
        return
    days = (ends.day.on - starts.day.on).days
    if days < 2 or not (rule.freq == "DAILY" or rule.days):
        return
    when.earliest = Moment(when.window_span, day=starts.day)
    when.until = Moment(when.window_span, day=ends.day)
    when.window = replace(starts, day=None), replace(ends, day=None)


def _days_are_both(reading: Reading, when: When) -> None:
    """Reads days in which the series is, `in february`, as its first and its last day."""
    plain = when.plain
    if plain is None or plain.days is None or when.whole:
        return
    first, last = plain.days
    if when.earliest is None and "earliest" not in when.seen:
        day = Day(max(first, reading.today))
        when.earliest, when.lead = Moment(plain.span, day=day), "from"
    if when.until is None and "until" not in reading.values and "times" not in reading.values:
        when.until = Moment(plain.span, day=Day(last - ONE_DAY))
    if plain.part or plain.has_time:
        # `at 9 for 2h next week`: the time is that of each date.
        when.plain = replace(plain, days=None)
    else:
        _drop_plain(when)


def _drop_plain(when: When) -> None:
    when.plain = None
    when.seen.pop("plain", None)


def _lengths(reading: Reading, when: When) -> None:
    """Separates the length of the series, `for 3 weeks`, from that of each date."""
    has_window = bool(when.window or when.overnight or when.whole)
    of_days = [each for each in when.lengths if _is_of_days(each[0])]
    is_of_series = len(of_days) == 1 and (has_window or len(when.lengths) > 1)
    for token, span in when.lengths:
        if is_of_series and (token, span) == of_days[0]:
            _lasts(reading, token, span)
            continue
        length_read(reading, token, span)
        if token.type == "NEXTLENGTH":
            when.asap = span


def _words(token: Token) -> str:
    return length_words(token).replace("nights", "days")


def _is_of_days(token: Token) -> bool:
    words = _words(token)
    if _MONTHS.fullmatch(words):
        return True
    is_short = re.search(r"\d\s?[hm]|hour|hr|min", words)
    seconds = length_of(words)
    return not is_short and seconds is not None and seconds % _DAY_SECONDS == 0


def _lasts(reading: Reading, token: Token, span: Span) -> None:
    words = _words(token)
    months = _MONTHS.fullmatch(words)
    amount = number_of(months[1]) if months else (length_of(words) or 0) // _DAY_SECONDS
    reading.set_value("lasts", (amount, bool(months)), f"for {words}", span)


def last_day(first: date, lasts: tuple[int, bool]) -> date:
    """The last day of a series that has so many days, or months, from its first one."""
    amount, is_months = lasts
    if not is_months:
        return first + timedelta(days=amount - 1)
    month = first.month - 1 + amount
    year, month = first.year + month // 12, month % 12 + 1
    following = date(year + month // 12, month % 12 + 1, 1)
    return min(date(year, month, 1) + timedelta(days=first.day - 1), following) - ONE_DAY


def _first_day(reading: Reading, when: When) -> None:
    """Gives the first day to the window, or to the time, of each date."""
    first, rule = when.earliest, reading.values.get("repeat")
    if first is None or first.has_time or first.part or not first.has_day:
        return
    if first.day is None and first.days is not None:
        first = replace(first, day=Day(first.days[0]), days=None)
    plain = when.plain
    if plain is not None and plain.day and not (plain.has_time or plain.part):
        if not _takes_weekday(reading, rule, plain):
            return
        _drop_plain(when)
    day = first.day
    if day is None:
        return
    if when.lead == "after":
        day = Day(day.on + ONE_DAY)
    _last_after(reading, when, day)
    _give(reading, when, first, day)


def _takes_weekday(reading: Reading, rule: object, plain: Moment) -> bool:
    """Reads the day in `weekly on monday from 1 feb` as that of each week."""
    if not isinstance(rule, Recurrence) or plain.day is None or not plain.day.is_weekday:
        return False
    if rule.freq != "WEEKLY" or rule.days:
        return False
    weekday = plain.day.on.weekday()
    reading.values["repeat"] = replace(rule, days=(weekday,))
    reading.add_part("day", f"every {plain.day.on:%A}", plain.span)
    return True


def _last_after(reading: Reading, when: When, first: Day) -> None:
    """Makes the last day of `from monday until friday` the Friday after that Monday. Adds a problem
    if it is before the first day."""
    until = when.until
    if "days" not in when.seen or until is None or until.day is None or until.day.on >= first.on:
        return
    if until.day.is_weekday:
        when.until = replace(until, day=Day(until.day.on + timedelta(days=7)))
        return
    reading.add_problem("ends_first", coded("rrule_no_dates"), until.span)
    when.until = None


def _give(reading: Reading, when: When, first: Moment, day: Day) -> None:
    begin = when.window[0] if when.window else when.plain
    if when.whole or (when.overnight and begin is None):
        when.plain = Moment(first.span, day=day)
    elif begin is None or begin.has_day or begin.clock is None:
        return
    else:
        begin.day = Day(_not_past(reading, begin, day.on))
        reading.add_part("day", day_words(begin.day), first.span)
    when.earliest = None


def _not_past(reading: Reading, begin: Moment, day: date) -> date:
    """The day, or the next one if it is today and its time is over."""
    if day != reading.today or begin.clock is None:
        return day
    try:
        is_over = wall(day, begin.clock.time, reading.zone) <= reading.now
    except NoSuchTime:
        is_over = True
    return day + ONE_DAY * is_over
