"""Recurrences in a request: `every mon,wed 9-17 until 31 jan`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import cast

from lark import Token

from allocation.errors import AskError
from allocation.rules.ask.when.moment import ONE_DAY, Moment
from allocation.rules.ask.when.recurrence_words import (
    WORKDAY_WORDS,
    WORKDAYS,
    every_words,
    month_days_in,
)
from allocation.rules.ask.when.series_days import last_day
from allocation.rules.ask.when.when_parts import When
from allocation.rules.ask.words.numbers import number_of
from allocation.rules.ask.words.parsed import Repair
from allocation.rules.ask.words.reading import Reading, Span, span_of
from allocation.rules.ask.words.times import WEEKDAY_WORDS
from allocation.rules.recurrence import (
    MOST_INTERVAL,
    Freq,
    Recurrence,
    dates_of,
    recurrence_check,
    rule_read,
    with_last_day,
)
from tenants.platform.coded import coded

_UNITS: dict[str, Freq] = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY"}
_ALONE: dict[str, Freq] = {"daily": "DAILY", "weekly": "WEEKLY", "monthly": "MONTHLY"}
_EVERY = re.compile(r"(?:every|each)\s+(?:(\S+)\s+)?(day|week|month)s?(?:\s+(?:on\s+)?(.*))?")
_OF_MONTH = re.compile(r"(?:(?:on|every|each) )?(?:the )?(.+?) (?:of )?(?:every|each|the) month")
_OFTEN = re.compile(r"(?:every|each) (other|second|third|\d+|two|three) ((?!weeks?|days?|months?).+)")
_DAY_RANGE = re.compile(r"(?:(?:every|each) )?(\w+?) ?(?:-|to|through|thru|until) ?(\w+)")
_END = re.compile(r"(?:until|till|through|ending|up to)\b")
_SAME = (
    (re.compile("^(?:every fortnight|fortnightly|bi-?weekly)"), "every 2 weeks"),
    (re.compile("^monthly on"), "every month on"),
    (re.compile("^(?:every|each) (first|1st|last) (?!.* month)"), r"every month on the \1 "),
    # `every 31st` is a day of the month, `every 2nd tue` one of two weeks.
    (re.compile(r"^(?:every|each) (?:the )?(\d{1,2}(?:st|nd|rd|th))$"), r"every month on the \1"),
    (re.compile(r"^(?:every|each) (\d+)(?:st|nd|rd|th) (?!.+ month)"), r"every \1 "),
    # `every evening`: the part of the day is read with its hours.
    (re.compile("^(?:everyday|every|each)$"), "daily"),
    (re.compile("weekends?$"), "sat sun"),
)
_INTERVALS = {"other": 2, "second": 2, "third": 3}


def read_repeat(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `every day`, `every 2 weeks on mon`, `mondays and fridays`, `every month on the 2nd
    tue`."""
    span = span_of(*tokens)
    rule = _rule(" ".join(tokens[0].split()))
    if rule is None:
        why = coded("ask_month_days_kind")
        reading.add_problem("not_understood", why, span)
        return
    if not 1 <= rule.interval <= MOST_INTERVAL:
        # Dates that never advance would be searched for ever.
        reading.add_problem("not_a_rule", coded("ask_interval", most=MOST_INTERVAL), span)
        return
    reading.set_value("repeat", rule, every_words(rule), span)


def _rule(text: str) -> Recurrence | None:
    for pattern, plain in _SAME:
        text = pattern.sub(plain, text)
    if text in _ALONE:
        return Recurrence(_ALONE[text])
    nth, often = _OF_MONTH.fullmatch(text), _OFTEN.fullmatch(text)
    if nth:
        return month_days_in(nth[1].split())[0]
    if often:
        interval = _INTERVALS.get(often[1], 0) or number_of(often[1])
        return Recurrence("WEEKLY", interval, _weekdays(often[2]))
    found = _EVERY.fullmatch(text)
    if found is None or found[2] is None:
        return Recurrence("WEEKLY", days=_weekdays(text))
    interval = _INTERVALS.get(found[1] or "", 0) or (number_of(found[1]) if found[1] else 1)
    freq, more = _UNITS[found[2]], found[3] or ""
    if freq != "MONTHLY" or not more:
        return Recurrence(freq, interval, _weekdays(more))
    words = re.sub("[,&]", " ", more).split()
    rule, used = month_days_in(words)
    return replace(rule, interval=interval) if rule and used == len(words) else None


def _weekdays(text: str) -> tuple[int, ...]:
    ranged = _DAY_RANGE.fullmatch(text)
    if ranged:
        first, last = (WEEKDAY_WORDS[each] for each in ranged.groups())
        return tuple(sorted((first + day) % 7 for day in range((last - first) % 7 + 1)))
    words = [word.rstrip(".") for word in re.split(r"[\s,&/+]+", text)]
    if any(word in WORKDAY_WORDS for word in words) or re.search("(work|business|working) ?day", text):
        return WORKDAYS
    singular = (WEEKDAY_WORDS.get(word, WEEKDAY_WORDS.get(word.removesuffix("s"))) for word in words)
    return tuple(sorted({day for day in singular if day is not None}))


def read_rule(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `rrule:FREQ=MONTHLY;BYDAY=-1FR;COUNT=6`. The end can also be in words."""
    span = span_of(*tokens)
    try:
        rule = rule_read(tokens[0], "request")
    except AskError as error:
        reading.add_problem(error.code, error.text, span)
        return
    for name, end in (("until", rule.until or rule.until_at), ("times", rule.times)):
        if end is not None:
            reading.values[name], reading.spans[name] = end, span
    rule = replace(rule, until=None, until_at=None, times=None)
    reading.set_value("repeat", rule, every_words(rule), span)


def read_times(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `10 times`, `10x`, `x10`."""
    number = number_of(re.sub(r"^[x*]\s*|\s*(?:times|dates|occurrences|[x*])$", "", tokens[0]))
    reading.set_value("times", number, f"{number} dates", span_of(*tokens))


SERIES_RULES = {"repeat": read_repeat, "rrule": read_rule, "times": read_times}


def series_end(reading: Reading, when: When) -> None:
    """Reads `until 31 jan` in a recurring request as its last day."""
    until = when.until
    if "repeat" not in reading.values or until is None:
        return
    when.until = None
    last = _last(reading, until)
    if last is None:
        why = coded("ask_last_day")
        days = (until.days[0] - ONE_DAY, until.days[1] - ONE_DAY) if until.days else ()
        choices = reading.replacements(until.span, *(f"until {day}" for day in days))
        reading.add_problem("no_end", why, until.span, choices)
        return
    reading.set_value("until", last, f"until {last:%a} {last.day} {last:%b %Y}", until.span)


def _last(reading: Reading, until: Moment) -> date | None:
    """The last day, or the time by which the last date begins."""
    if until.part or until.days:
        return None
    if until.fixed is not None:
        return until.fixed
    day = until.day.on if until.day else reading.today
    if until.ends == "week":
        return day + timedelta(days=6 - day.weekday())
    if until.clock is not None and until.day is not None:
        return datetime.combine(day, until.clock.time) + timedelta(days=until.clock.ends_day)
    return day if until.day or until.ends else None


def _begin_on_a_date(reading: Reading, rule: Recurrence) -> None:
    """Begins a series of every other week in the week of its first date: `biweekly fri` on a Sunday is
    next Friday, and not the one after it. Rules of calendars keep their own weeks."""
    starts = reading.values.get("starts")
    is_rule = reading.words(reading.spans["repeat"]).lower().startswith("rrule")
    if rule.interval == 1 or not rule.days or is_rule or not isinstance(starts, datetime):
        return
    local = starts.astimezone(reading.zone)
    days = min((day - local.weekday()) % 7 for day in rule.days)
    if local.weekday() + days > 6:
        for name in ("starts", "ends"):
            at = reading.values.get(name)
            if isinstance(at, datetime):
                moved = at.astimezone(reading.zone).replace(tzinfo=None) + timedelta(days=days)
                reading.values[name] = moved.replace(tzinfo=reading.zone).astimezone(UTC)


def _with_end(reading: Reading, rule: Recurrence, until: object) -> Recurrence:
    """The rule with its last day, or with the last time if there is no start yet."""
    starts, lasts = reading.values.get("starts"), reading.values.get("lasts")
    if isinstance(until, datetime):
        rule = replace(rule, until_at=until)
        return with_last_day(rule, starts, reading.zone) if isinstance(starts, datetime) else rule
    if isinstance(until, date):
        return replace(rule, until=until)
    if lasts is None or not isinstance(starts, datetime):
        return rule
    first = dates_of(replace(rule, times=1), starts, reading.zone).starts[0]
    day = last_day(first.astimezone(reading.zone).date(), cast(tuple[int, bool], lasts))
    return replace(rule, until=day)


def _end_not_understood(reading: Reading) -> bool:
    """Whether words that are not understood can be the end: `until christmas`. Offers numbers of
    dates in their place."""
    for at, problem in enumerate(reading.problems):
        span = (problem.start, problem.end)
        is_end = problem.code in ("no_end", "ends_first")
        if is_end or _END.match(reading.words(span).lower()):
            more = reading.replacements(span, "5 times", "10 times") if problem.code != "no_end" else ()
            reading.problems[at] = replace(problem, repairs=(*problem.repairs, *more))
            return True
    return False


def _is_of_no_dates(reading: Reading) -> bool:
    """Whether it has `0 times`, or lasts `for 0 days`: adds the problem, with numbers of dates."""
    lasts = cast(tuple[int, bool] | None, reading.values.get("lasts"))
    name = "times" if reading.values.get("times") == 0 else "lasts"
    if name == "lasts" and (lasts is None or lasts[0]):
        return False
    span = reading.spans[name]
    repairs = reading.replacements(span, "5 times", "10 times")
    reading.add_problem("no_dates", coded("rrule_no_dates"), span, repairs)
    return True


def _choices(reading: Reading, span: Span, error: AskError) -> list[Repair]:
    """The corrections of a recurrence without an end, or with too many dates."""
    if error.code == "no_end":
        clock = "" if "starts" in reading.values else " 9:00-17:00"
        more = [f"{reading.words(span)}{clock} {end}" for end in ("5 times", "10 times")]
        return reading.replacements(span, *more)
    if error.code != "series_too_long":
        return []
    said, most = reading.spans["times"], error.alternatives[0]
    is_rule = reading.words(said).lower().startswith("rrule")
    return reading.replacements(said, f"rrule:{most['rrule']}" if is_rule else f"{most['times']} times")


def series_of(reading: Reading) -> Recurrence | None:
    """The recurrence of the request. Adds a problem if it is incomplete or invalid."""
    rule = reading.values.get("repeat")
    until, times = reading.values.get("until"), reading.values.get("times")
    if not isinstance(rule, Recurrence):
        if "times" in reading.values:
            span = reading.spans["times"]
            why = coded("ask_recurrence")
            one = reading.replaced(span, "")
            array = Repair(f"{times} runs", f"array of {times}: {one}")
            reading.add_problem("no_repeat", why, span, [array])
        return None
    span = reading.spans["repeat"]
    if sum(each is not None for each in (until, times, reading.values.get("lasts"))) > 1:
        why = coded("ask_end_twice")
        reading.add_problem("end_twice", why, span)
        return None
    if _is_of_no_dates(reading):
        return None
    rule = replace(rule, times=times if isinstance(times, int) else None)
    _begin_on_a_date(reading, rule)
    rule = _with_end(reading, rule, until)
    try:
        recurrence_check(rule, "request")
    except AskError as error:
        if error.code == "no_end" and _end_not_understood(reading):
            return None
        choices = _choices(reading, span, error)
        reading.add_problem(error.code, error.text, span, choices)
        return None
    if "starts" not in reading.values and not reading.problems:
        reading.add_problem("no_start", coded("ask_clock"), span)
    return rule
