"""Starts: as soon as possible, at an exact time, or not before one."""

from datetime import datetime

from allocation.rules.ask.when.instants import (
    day_words,
    instant_of,
    is_half_ambiguous,
    is_midnight_ambiguous,
)
from allocation.rules.ask.when.moment import Moment
from allocation.rules.ask.when.when_parts import When
from allocation.rules.ask.when.windows import window_from_now
from allocation.rules.ask.words.reading import Reading, Span


def immediate_rule(reading: Reading, when: When) -> bool:
    """Read `now` and `in 2 hours`."""
    if when.in_time is not None:
        starts, span = when.in_time
        if when.plain or when.window or when.earliest or when.asap or when.whole or when.overnight:
            reading.add_duplicate("time", span, when.seen.get("plain"))
            return True
        return _say_start(reading, starts, span)
    if when.asap is None:
        return False
    later = (when.whole or when.overnight) or (
        when.window or when.earliest or (when.plain and (when.plain.has_time or when.plain.part))
    )
    is_today = when.plain is None or (when.plain.day and when.plain.day.on == reading.today)
    if later or not is_today:
        first = when.seen.get("plain") or when.seen.get("window") or when.seen.get("earliest")
        reading.add_duplicate("time", when.asap, first)
        return True
    if when.plain:
        reading.add_part("day", "today", when.plain.span)
    if when.until is not None and "duration" not in reading.values:
        reading.add_part("not_before", "as soon as possible", when.asap)
        return window_from_now(reading, when)
    reading.set_value("not_before", reading.now, "as soon as possible", when.asap)
    return True


def start_rule(reading: Reading, when: When) -> bool:
    """Read `at 14:00`, `starting tomorrow 9:00`: an exact start."""
    lead = when.earliest if when.lead == "start" else None
    begin = lead or when.plain
    if begin is None or (when.earliest is not None and lead is None):
        return False
    if lead is not None and when.plain is not None and not _lend_day(reading, lead, when.plain):
        return True
    if not begin.has_time:
        when.plain = None if lead is not None else when.plain
        return False
    _start_at(reading, begin)
    return True


def _start_at(reading: Reading, begin: Moment) -> None:
    if begin.days is not None:
        reading.add_problem("which_day", "Which of these days?", begin.span)
        return
    if is_half_ambiguous(reading, begin) or is_midnight_ambiguous(reading, begin):
        return
    found = instant_of(reading, begin, begin.span, begins=True)
    if found is not None:
        _say_start(reading, found, begin.span)


def _lend_day(reading: Reading, to: Moment, other: Moment) -> bool:
    """The day beside it is the day of a time that has none."""
    if other.has_time or other.part or other.days or to.has_day:
        reading.add_duplicate("day" if other.has_day else "time", other.span, to.span)
        return False
    to.day = other.day
    reading.add_part("day", day_words(other.day), other.span)
    return True


def _say_start(reading: Reading, starts: datetime, span: Span) -> bool:
    reading.set_value("starts", starts, f"starts exactly {reading.time_text(starts)}", span)
    return True


def earliest_rule(reading: Reading, when: When) -> bool:
    """Read a start not before a time: `from mon 9`; `after friday` is from Saturday on."""
    found = when.earliest
    if found is None:
        return False
    if when.plain is not None and not _lend_day(reading, found, when.plain):
        return True
    if found.clock is not None and is_half_ambiguous(reading, found):
        return True
    is_after = when.lead == "after" and not found.has_time
    at = instant_of(reading, found, found.span, begins=True, end_of_day=is_after)
    if at is not None:
        reading.set_value("not_before", at, f"not before {reading.time_text(at)}", found.span)
    return True
