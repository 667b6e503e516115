"""The window of a request: the parts about time, combined wherever they are in the line."""

from dataclasses import replace
from datetime import datetime

from allocation.rules.ask.when.instants import (
    day_words,
    instant_of,
    is_half_ambiguous,
    is_midnight_ambiguous,
)
from allocation.rules.ask.when.moment import ONE_DAY, Moment, clock_in_part, is_consistent
from allocation.rules.ask.when.when_parts import When
from allocation.rules.ask.when.windows import (
    days_rule,
    overnight_rule,
    until_rule,
    whole_rule,
    window_from_now,
    window_rule,
)
from allocation.rules.ask.words.parsed import Repair
from allocation.rules.ask.words.reading import Reading, Span
from tenants.platform.coded import coded


def when_resolve(reading: Reading, when: When) -> None:
    """Sets the window from all parts about time, or adds a problem."""
    if not _is_sound(reading, when):
        return
    for rule in _WINDOWS:
        if rule(reading, when):
            break
    if when.deadline is not None:
        set_deadline(reading, when)
    elif when.until is not None and "starts" not in reading.values:
        until_as_deadline(reading, when)


def _is_sound(reading: Reading, when: When) -> bool:
    """Whether the days and times outside of other parts are consistent."""
    plain = when.plain
    if plain is None or not is_consistent(reading, plain):
        return plain is None and "plain" not in when.seen
    if plain.clock and plain.part:
        clock_in_part(reading, plain)
    return not plain.is_wrong


def immediate_rule(reading: Reading, when: When) -> bool:
    """Reads `now` and `in 2 hours`."""
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
    """Reads an exact start: `at 14:00`, `starting tomorrow 9:00`."""
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
        reading.add_problem("which_day", coded("ask_these_days"), begin.span)
        return
    if is_half_ambiguous(reading, begin) or is_midnight_ambiguous(reading, begin):
        return
    found = instant_of(reading, begin, begin.span, begins=True)
    if found is not None:
        _say_start(reading, found, begin.span)


def _lend_day(reading: Reading, to: Moment, other: Moment) -> bool:
    """Gives the day of `other` to a time without a day. False after adding a problem."""
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
    """Reads an earliest start: `from mon 9`. `after friday` starts with Saturday."""
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


def until_as_deadline(reading: Reading, when: When) -> None:
    """Reads the end in `2h tomorrow until 18:00` as a deadline."""
    until = when.until
    if until is None or "repeat" in reading.values:
        return
    if "duration" not in reading.values:
        why = coded("ask_start_or_duration")
        reading.add_problem("no_start", why, until.span)
        return
    when.deadline, when.is_before = until, False
    set_deadline(reading, when)


def set_deadline(reading: Reading, when: When) -> None:
    """Sets the deadline: `before fri` ends with Thursday, `by fri` with Friday."""
    found = when.deadline
    if found is None:
        return
    if found.days is not None and not when.is_before:
        first, last = found.days
        choices = [
            Repair(
                f"by {day:%a} {day.day} {day:%b}",
                reading.replaced(found.span, f"by {day.isoformat()}"),
            )
            for day in (first - ONE_DAY, last - ONE_DAY)
        ]
        reading.add_problem("which_day", coded("ask_deadline_day"), found.span, choices)
        return
    if found.day is None and found.fixed is None and when.plain and when.plain.day:
        found.day = replace(when.plain.day, is_weekday=False)
    if is_half_ambiguous(reading, found) or is_midnight_ambiguous(reading, found):
        return
    at = instant_of(reading, found, found.span, end_of_day=not when.is_before)
    if at is not None:
        reading.set_value("deadline", at, f"done by {reading.time_text(at)}", found.span)


_WINDOWS = (
    immediate_rule,
    whole_rule,
    overnight_rule,
    window_rule,
    start_rule,
    earliest_rule,
    days_rule,
    until_rule,
)
