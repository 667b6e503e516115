"""Words of repetition: `every mon,wed 9-17 until 31 jan`. Each rule answers how many it used."""

import re
from dataclasses import replace
from datetime import date

from allocation.errors import AskError
from allocation.rules.ask_reader import Reader
from allocation.rules.ask_times import WEEKDAY_WORDS, Moment, clock_of, moment_in
from allocation.rules.ask_windows import say_window
from allocation.rules.recurrence import Freq, Recurrence, recurrence_check, rule_read
from allocation.rules.recurrence_words import (
    WORKDAY_WORDS,
    WORKDAYS,
    every_words,
    month_days_in,
)

_UNITS: dict[str, Freq] = {
    "day": "DAILY", "days": "DAILY", "week": "WEEKLY", "weeks": "WEEKLY",
    "month": "MONTHLY", "months": "MONTHLY",
}  # fmt: skip
_ALONE: dict[str, Freq] = {"daily": "DAILY", "weekly": "WEEKLY", "monthly": "MONTHLY"}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = re.compile(rf"({'|'.join(_MONTHS)})[a-z]*")
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?\.?", re.ASCII)
_YEAR = re.compile(r"20\d\d|21\d\d", re.ASCII)
_HOURS = re.compile(r"([0-9:apm]{1,7})[-–]([0-9:apm]{1,7})")


def read_every(reader: Reader, at: int) -> int:
    """`every day`, `every 2 weeks on mon`, `every mon,wed`, `every weekday`, `weekly`, `every
    month on the 2nd tue`."""
    freq = _ALONE.get(reader.word(at))
    if freq is not None:
        return _say(reader, at, 1, Recurrence(freq))
    if reader.word(at) not in ("every", "each"):
        return 0
    days, used = _weekdays(reader, at + 1)
    if days:
        return _say(reader, at, 1 + used, Recurrence("WEEKLY", days=days))
    word = reader.word(at + 1)
    interval = 2 if word == "other" else int(word) if re.fullmatch("[1-9][0-9]?", word) else 0
    used = 1 + bool(interval)
    freq = _UNITS.get(reader.word(at + used))
    if freq is None:
        return 0
    used += 1
    lead = int(reader.word(at + used) == "on")
    if freq == "MONTHLY" and lead:
        return _say_month(reader, at, used + lead, interval or 1)
    days, more = _weekdays(reader, at + used + lead) if freq == "WEEKLY" else ((), 0)
    return _say(
        reader, at, used + (lead + more if more else 0), Recurrence(freq, interval or 1, days)
    )


def read_rule(reader: Reader, at: int) -> int:
    """`rrule:FREQ=MONTHLY;BYDAY=-1FR;COUNT=6`, with its end or with one in words."""
    text = reader.word(at)
    if not text.startswith("rrule:"):
        return 0
    span = reader.span(at, 1)
    try:
        rule = rule_read(text, "request")
    except AskError as error:
        reader.trouble(error.code, error.sentence, span)
        return 1
    for name, end in (("until", rule.until), ("times", rule.times)):
        if end is not None:
            reader.said[name], reader.spans[name] = end, span
    return _say(reader, at, 1, replace(rule, until=None, times=None))


def read_until(reader: Reader, at: int) -> int:
    """`until 31 jan`, `until fri`, `until 2027-01-31`: the last day, included."""
    if reader.word(at) not in ("until", "till"):
        return 0
    today = reader.now.astimezone(reader.zone).date()
    day, used = _calendar_day(reader, at + 1, today)
    if day is None:
        moment = moment_in(reader.words(at + 1)[:1], today, bare_hour=False)
        day, used = (moment.day, 1) if moment else (None, 0)
    if day is None:
        return 0
    reader.say("until", day, f"until {day:%a} {day.day} {day:%b %Y}", reader.span(at, 1 + used))
    return 1 + used


def read_times(reader: Reader, at: int) -> int:
    """`10 times`."""
    word = reader.word(at)
    if reader.word(at + 1) != "times" or not re.fullmatch("[1-9][0-9]{0,8}", word):
        return 0
    reader.say("times", int(word), f"{word} dates", reader.span(at, 2))
    return 2


def read_hours(reader: Reader, at: int) -> int:
    """`9-17`, `9:30-11`: a fixed window of the day that was said, else of the next."""
    found = _HOURS.fullmatch(reader.word(at))
    clocks = [clock_of(each, bare_hour=True) for each in found.groups()] if found else []
    if len(clocks) != 2 or None in clocks:
        return 0
    first, last = (Moment(1, clock=each) for each in clocks)
    said = reader.said.get("day")
    if isinstance(said, date):
        first = replace(first, day=said)
    return say_window(reader, at, (first, last), 1)


def recurrence_said(reader: Reader) -> Recurrence | None:
    """The rule that the words make in all; trouble is noted where they make none."""
    rule = reader.said.get("repeat")
    until, times = reader.said.get("until"), reader.said.get("times")
    if not isinstance(rule, Recurrence):
        for name in ("until", "times"):
            if name in reader.said:
                sentence = "Say what repeats, as in “every mon”."
                reader.trouble("no_repeat", sentence, reader.spans[name])
        return None
    span = reader.spans["repeat"]
    if until is not None and times is not None:
        reader.trouble("end_twice", "It ends on a day or after so many dates, not both.", span)
        return None
    rule = replace(
        rule,
        until=until if isinstance(until, date) else None,
        times=times if isinstance(times, int) else None,
    )
    try:
        recurrence_check(rule, "request")
    except AskError as error:
        reader.trouble(error.code, error.sentence, span)
        return None
    if "starts" not in reader.said:
        reader.trouble("no_start", "Say at what time, as in “9-17”.", span)
    return rule


def _say(reader: Reader, at: int, used: int, rule: Recurrence) -> int:
    reader.say("repeat", rule, every_words(rule), reader.span(at, used))
    return used


def _say_month(reader: Reader, at: int, used: int, interval: int) -> int:
    """`2nd tue, last fri` after `every month on`; nothing if there are no such days."""
    rule, more = month_days_in(reader.words(at + used))
    if rule is None:
        return 0
    return _say(reader, at, used + more, replace(rule, interval=interval))


def _weekdays(reader: Reader, at: int) -> tuple[tuple[int, ...], int]:
    """(weekdays, words used)."""
    if reader.word(at) in WORKDAY_WORDS:
        return WORKDAYS, 1
    days: set[int] = set()
    used = 0
    while True:
        joined = int(bool(days) and reader.word(at + used) == "and")
        day = WEEKDAY_WORDS.get(reader.word(at + used + joined).rstrip("."))
        if day is None:
            return tuple(sorted(days)), used
        days.add(day)
        used += 1 + joined


def _calendar_day(reader: Reader, at: int, today: date) -> tuple[date | None, int]:
    """`31 jan`, `jan 31`, either with a year; without one the next that comes."""
    words = reader.words(at)[:3]
    if len(words) < 2:
        return None, 0
    number, name = (words[0], words[1]) if _DAY.fullmatch(words[0]) else (words[1], words[0])
    day, month = _DAY.fullmatch(number), _MONTH.fullmatch(name)
    if not day or not month:
        return None, 0
    year = int(words[2]) if len(words) == 3 and _YEAR.fullmatch(words[2]) else None
    used = 2 + (year is not None)
    for each in [year] if year else range(today.year, today.year + 9):
        try:
            found = date(each, _MONTHS.index(month[1]) + 1, int(day[1]))
        except ValueError:
            continue
        if year or found >= today:
            return found, used
    return None, 0
