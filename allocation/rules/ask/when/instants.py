"""The UTC time of a moment in words, and problems for ambiguous moments."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from allocation.rules.ask.when.moment import ONE_DAY, ONE_MINUTE, PARTS, Moment
from allocation.rules.ask.words.parsed import Repair
from allocation.rules.ask.words.reading import Reading, Span
from allocation.rules.ask.words.times import Day, NoSuchTime, day_bounds, wall
from tenants.platform.coded import coded

_FIVE_MINUTES = 300


def is_half_ambiguous(reading: Reading, moment: Moment) -> bool:
    """Whether `at 3` can also mean the afternoon. Adds a problem with both times."""
    clock = moment.clock
    if clock is None or not clock.is_ambiguous_afternoon:
        return False
    later = clock.time.replace(hour=clock.time.hour + 12)
    lead = "at " if reading.words(moment.clock_span).lower().startswith(("at ", "@")) else ""
    choices = reading.replacements(moment.clock_span, f"{lead}{later:%H:%M}", f"{lead}{clock.time:%H:%M}")
    if not lead and "duration" not in reading.values and not clock.time.minute:
        choices += reading.replacements(moment.clock_span, f"{clock.time.hour}h")
    why = coded("ask_which_half", time=f"{clock.time:%H:%M}", later=f"{later:%H:%M}")
    reading.add_problem("which_half", why, moment.clock_span, choices)
    return True


def is_midnight_ambiguous(reading: Reading, moment: Moment) -> bool:
    """Whether `friday midnight` can be the start or the end of that day. Adds a problem with
    both."""
    clock, day = moment.clock, moment.day
    if clock is None or day is None or not clock.is_midnight:
        return False
    choices = []
    for each in (day.on, day.on + ONE_DAY):
        both = (
            min(moment.span[0], moment.clock_span[0]),
            max(moment.span[1], moment.clock_span[1]),
        )
        lead = re.match(r"(?:by|before|until|till)\s+", reading.words(both).lower())
        words = f"{lead[0] if lead else ''}{each.isoformat()} 00:00"
        choices.append(Repair(f"{each:%a} {each.day} {each:%b} 00:00", reading.replaced(both, words)))
    reading.add_problem(
        "which_day",
        coded("ask_midnight"),
        moment.clock_span,
        choices,
    )
    return True


def instant_of(
    reading: Reading,
    moment: Moment,
    span: Span,
    *,
    end_of_day: bool = False,
    begins: bool = False,
    after: datetime | None = None,
) -> datetime | None:
    """The UTC time of a moment in the future, or None after adding a problem.

    With `begins`, a day that has already begun means the rest of that day.
    """
    if moment.part and not begins:
        hours = PARTS[moment.part]
        day = moment.day.on.isoformat() if moment.day else "today"
        words = reading.words(span)
        lead = words.split()[0] if words.split() else "by"
        choices = reading.replacements(span, *(f"{lead} {day} {hour:02}:00" for hour in hours))
        why = coded("ask_time_in_part", part=moment.part)
        reading.add_problem("which_half", why, span, choices)
        return None
    try:
        found = _time_of(reading, moment, after or reading.now, end_of_day=end_of_day)
    except NoSuchTime as error:
        reading.add_problem("no_such_time", error.text, span, _later(reading, span, error.text.facts))
        return None
    if begins and not moment.has_time:
        last = moment.days[1] - ONE_DAY if moment.days else date_of(moment, reading)
        left = day_bounds(last, reading.zone)[1] > reading.now
        found = max(found, reading.now) if left else found
    if found < reading.now or (found == reading.now and not begins):
        choices = []
        if moment.clock and moment.day:
            lead, clock = "" if begins else "by ", moment.clock.time
            is_ahead = clock > reading.now.astimezone(reading.zone).time()
            day = "today" if is_ahead else "tomorrow"
            choices = reading.replacements(span, f"{lead}{day} {clock:%H:%M}")
        choices += next_year(reading, moment)
        reading.add_problem("window_past", coded("ask_time_past"), span, choices)
        return None
    return found


def _later(reading: Reading, span: Span, skipped: Mapping[str, Any]) -> list[Repair]:
    """The line with the time to which the clocks go, in place of the one that they skip."""
    hour, minute = skipped["clock"].split(":")
    minutes = f"[:.h]{minute}" if int(minute) else f"(?:[:.h]{minute})?"
    # Numbers of a date are no times.
    clock = re.compile(rf"\d{{4}}-\d\d-\d\d|(?<![\d:.])(0?{int(hour)}{minutes}(?::00)?)(?![\d:.])")
    words = reading.words(span)
    found = [each for each in clock.finditer(words) if each[1]]
    if len(found) != 1:
        return []
    first, last = found[0].span(1)
    return reading.replacements(span, f"{words[:first]}{skipped['later']}{words[last:]}")


def next_year(reading: Reading, moment: Moment) -> list[Repair]:
    """The line with the next such date, for a date without a year that is over."""
    if moment.day is None or moment.day.next is None:
        return []
    return reading.replacements(moment.day_span, moment.day.next.isoformat())


def _time_of(reading: Reading, moment: Moment, after: datetime, *, end_of_day: bool) -> datetime:
    """The UTC time. Without a date, the first such time after `after`."""
    zone = reading.zone
    if moment.fixed is not None:
        fixed = moment.fixed
        return fixed.astimezone(UTC) if fixed.tzinfo else wall(fixed.date(), fixed.time(), zone)
    if moment.days is not None:
        first, last = moment.days
        return day_bounds(last if end_of_day else first, zone)[0]
    if moment.ends == "week":
        day = moment.day.on if moment.day else after.astimezone(zone).date()
        return day_bounds(day + timedelta(days=6 - day.weekday()), zone)[1]
    day = moment.day.on if moment.day else after.astimezone(zone).date()
    end_of_day = end_of_day or bool(moment.ends)
    found = _on(reading, moment, day, end_of_day=end_of_day)
    is_weekday = moment.day is not None and moment.day.is_weekday
    repeats = is_weekday or moment.day is None
    has_begun = moment.clock is None and day_bounds(day, zone)[1] > after
    if found > after or has_begun or not repeats:
        return found
    again = day + timedelta(days=7 if is_weekday else 1)
    return _on(reading, moment, again, end_of_day=end_of_day)


def _on(reading: Reading, moment: Moment, day: date, *, end_of_day: bool) -> datetime:
    if moment.clock is not None:
        if moment.clock.ends_day:
            return day_bounds(day, reading.zone)[1]
        return wall(day, moment.clock.time, reading.zone)
    begins, ends = day_bounds(day, reading.zone)
    if moment.part:
        return wall(day, time(PARTS[moment.part][0]), reading.zone)
    return ends if end_of_day else begins


def date_of(moment: Moment, reading: Reading | None = None) -> date:
    """The date of a moment. Defaults to today."""
    if moment.day is not None:
        return moment.day.on
    if moment.fixed is not None:
        return moment.fixed.date()
    return reading.today if reading else date.min


def day_words(day: Day | None) -> str:
    """The day in words, such as "on Fri 27 Nov". Empty without a day."""
    return f"on {day.on:%a %d %b}" if day else ""


def next_five_minutes(now: datetime) -> datetime:
    """The next full five minutes, at least one minute ahead, so that there is time to submit."""
    seconds = int((now + ONE_MINUTE).timestamp())
    return datetime.fromtimestamp(-(-seconds // _FIVE_MINUTES) * _FIVE_MINUTES, tz=now.tzinfo)
