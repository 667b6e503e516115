"""A moment: adjacent days, times of day and parts of a day in a request."""

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from lark import Token, Tree

from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD, Repair
from allocation.rules.ask.words.reading import Reading, Span, span_of
from allocation.rules.ask.words.times import (
    WEEKDAY,
    Clock,
    Day,
    clock_read,
    day_read,
    days_near,
    days_of_month,
    instant_read,
)
from tenants.platform.coded import coded

PARTS = {"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 24)}
"""The first hour of each part of a day, and the hour after it."""
ONE_MINUTE = timedelta(minutes=1)
ONE_DAY = timedelta(days=1)
WEEK = timedelta(days=7)
NOON = 12
_PART_OF_ZERO = re.compile(r"([0-9]+)\s*/\s*0+")
_MORE_DAYS = re.compile(rf"(?:(?:[\s,&]+|,?\s+and\s+){WEEKDAY}\b)+")


@dataclass(slots=True)
class Moment:
    """A time in words: one or several days, a part of the day, a time of day, or an instant. `ends`
    names a day or week whose end is meant."""

    span: Span
    day: Day | None = None
    clock: Clock | None = None
    clock_span: Span = (0, 0)
    part: str = ""
    days: tuple[date, date] | None = None
    fixed: datetime | None = None
    ends: str = ""
    day_span: Span = (0, 0)
    is_wrong: bool = False

    @property
    def has_time(self) -> bool:
        """Whether it has a time of day."""
        return self.clock is not None or self.fixed is not None

    @property
    def has_day(self) -> bool:
        """Whether it has a day or days."""
        return self.day is not None or self.days is not None or self.fixed is not None


def moment_of(reading: Reading, tree: Tree[Token]) -> Moment:
    """The moment that adjacent days, times and parts of a day describe."""
    tokens = [token for token in tree.children if isinstance(token, Token)]
    moment = Moment(span_of(*tokens))
    if _weekdays(reading, tokens):
        moment.is_wrong = True
        return moment
    for token in tokens:
        if not _stamp(reading, moment, token):
            moment.is_wrong = True
            return moment
    if not is_consistent(reading, moment):
        moment.is_wrong = True
    elif moment.clock and moment.part:
        clock_in_part(reading, moment)
    return moment


def _weekdays(reading: Reading, tokens: list[Token]) -> bool:
    """Whether several weekdays are named: `mon, wed, fri`. Adds a problem with the series that they can
    mean."""
    days = [(each, day_read(each, reading.today)) for each in tokens if each.type == "DAY"]
    weekdays = [each for each, day in days if day and day.is_weekday]
    if len(weekdays) < 2 or len(weekdays) < len(days) or len({each[:3] for each in weekdays}) < len(days):
        return False
    first, last = span_of(*weekdays)
    more = _MORE_DAYS.match(reading.text.lower(), last)
    last = more.end() if more else last
    named = re.findall(WEEKDAY, " ".join([*weekdays, more[0].lower() if more else ""]))
    words, span = f"every {','.join(named)}", (first, last)
    weeks = (reading.today + 4 * WEEK).isoformat()
    choices = reading.replacements(span, words, f"{words} {len(named)} times", f"{words} until {weeks}")
    reading.add_problem("no_repeat", coded("ask_weekdays"), span, choices)
    return True


def is_consistent(reading: Reading, moment: Moment) -> bool:
    """Whether the words are consistent. Adds a problem if not. A weekday with a week is the day in
    that week."""
    if moment.days is not None and moment.day is not None:
        first, last = moment.days
        day = moment.day.on
        if moment.day.is_weekday:
            day = first + timedelta(days=(day.weekday() - first.weekday()) % 7)
        if not first <= day < last:
            reading.add_problem("said_twice", coded("ask_other_week"), moment.span)
            return False
        moment.day, moment.days = Day(day), None
    has_days = moment.days is not None or moment.fixed is not None
    is_vague = bool(moment.part) or bool(moment.ends)
    if (has_days and (is_vague or (moment.fixed and moment.day))) or (
        moment.ends and (moment.part or moment.clock)
    ):
        why = coded("ask_times_contradict")
        reading.add_problem("said_twice", why, moment.span)
        return False
    return True


def _stamp(reading: Reading, moment: Moment, token: Token) -> bool:
    """Adds one token to the moment. False after adding a problem."""
    span = span_of(token)
    return _STAMPS.get(token.type, _stamp_part)(reading, moment, token, span)


def _stamp_instant(reading: Reading, moment: Moment, token: Token, span: Span) -> bool:
    moment.fixed = instant_read(token)
    if moment.fixed is None:
        reading.add_problem(NOT_UNDERSTOOD, coded("ask_no_such_time"), span)
    return moment.fixed is not None


def _stamp_days(reading: Reading, moment: Moment, token: Token, span: Span) -> bool:
    found = days_of(token, reading.today)
    if found is None or isinstance(found, list):
        add_ambiguous_days(reading, span, found)
        return False
    moment.days = found
    return True


def _stamp_month(reading: Reading, moment: Moment, token: Token, _: Span) -> bool:
    moment.days = days_of_month(token, reading.today)
    return moment.days is not None


def _stamp_end(_: Reading, moment: Moment, token: Token, __: Span) -> bool:
    moment.ends = "week" if re.search("week|eow", token) else "day"
    return True


def _stamp_part(reading: Reading, moment: Moment, token: Token, span: Span) -> bool:
    if moment.part:
        reading.add_duplicate("part of the day", span, None)
        return False
    if token.type == "TONIGHT":
        if moment.day is not None and moment.day.on != reading.today:
            reading.add_duplicate("day", span, moment.span)
            return False
        moment.day = Day(reading.today)
        moment.part = "evening" if token.startswith("toni") else token.split()[-1]
        return True
    moment.part = token.split()[-1]
    return True


def _stamp_day(reading: Reading, moment: Moment, token: Token, span: Span) -> bool:
    day = day_read(token, reading.today)
    if day is None and (found := _PART_OF_ZERO.fullmatch(token.strip())):
        halves = reading.replacements(span, f"{found[1]}/2") if found[1] == "1" else []
        reading.add_problem(NOT_UNDERSTOOD, coded("ask_part_of_zero"), span, halves)
        return False
    if day is None:
        near = [each.isoformat() for each in days_near(token, reading.today)]
        reading.add_problem(NOT_UNDERSTOOD, coded("ask_no_such_day"), span, reading.replacements(span, *near))
        return False
    if day.choices:
        choices = [
            Repair(f"{each:%a} {each.day} {each:%b}", reading.replaced(span, each.isoformat()))
            for each in day.choices
        ]
        reading.add_problem("which_day", coded("ask_several_days", token=token), span, choices)
        return False
    if moment.day is None:
        moment.day, moment.day_span = day, span
        return True
    weekday, dated = (moment.day, day) if moment.day.is_weekday else (day, moment.day)
    if weekday.is_weekday and not dated.is_weekday and weekday.on.weekday() == dated.on.weekday():
        moment.day = dated
        return True
    reading.add_duplicate("day", span, moment.day_span)
    return False


def _stamp_clock(reading: Reading, moment: Moment, token: Token, span: Span) -> bool:
    clock = clock_read(token)
    if clock is None:
        reading.add_problem(NOT_UNDERSTOOD, coded("ask_no_such_clock"), span)
        return False
    if moment.clock is not None:
        reading.add_duplicate("time", span, moment.clock_span)
        return False
    moment.clock, moment.clock_span = clock, span
    return True


_STAMPS = {
    "DAY": _stamp_day,
    "CLOCK": _stamp_clock,
    "INSTANT": _stamp_instant,
    "SPAN": _stamp_days,
    "MONTH": _stamp_month,
    "DAYEND": _stamp_end,
}


def clock_in_part(reading: Reading, moment: Moment) -> None:
    """Resolves `8 in the evening` to 20:00. Adds a problem for `14:00 in the morning`."""
    first, last = PARTS[moment.part]
    first = {"morning": 0, "evening": 16, "night": 17}.get(moment.part, first)
    if moment.clock is None:
        return
    hours = [moment.clock.time.hour]
    hours += [moment.clock.time.hour % 12 + 12] if moment.clock.is_twelve_hour else []
    found = next((hour for hour in hours if first <= hour < last), None)
    if found is None:
        reading.add_problem("no_such_time", coded("ask_not_in_part", part=moment.part), moment.clock_span)
        moment.is_wrong = True
        return
    moment.clock, moment.part = Clock(moment.clock.time.replace(hour=found)), ""


def days_of(text: str, today: date) -> tuple[date, date] | list[tuple[date, date]] | None:
    """The days [first, last) of a weekend or week. A list if the text is ambiguous."""
    monday = today - timedelta(days=today.weekday())
    is_next = "next" in text
    if "weekend" in text:
        this = (monday + timedelta(days=5), monday + timedelta(days=7))
        following = (this[0] + WEEK, this[1] + WEEK)
        if not is_next:
            return this
        return following if today >= this[0] else [this, following]
    if "after next" in text:
        return monday + WEEK * 2, monday + WEEK * 3
    if "week" in text:
        first = monday + WEEK * (is_next or "coming" in text)
        return first, first + WEEK
    return None


def add_ambiguous_days(reading: Reading, span: Span, choices: list[tuple[date, date]] | None) -> None:
    if not choices:
        month = days_of_month(reading.words(span).lower(), reading.today)
        words = [f"from {month[0]} by {month[1] - ONE_DAY}"] if month else []
        reading.add_problem("which_day", coded("ask_first_day"), span, reading.replacements(span, *words))
        return
    repairs = [
        Repair(
            f"{first:%a} {first.day} {first:%b}",
            reading.replaced(span, f"on {first.isoformat()}"),
        )
        for first, _ in choices
    ]
    reading.add_problem("which_day", coded("ask_weekend"), span, repairs)
