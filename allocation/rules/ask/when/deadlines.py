"""Deadlines: when the booking is done by."""

from dataclasses import replace

from allocation.rules.ask.when.instants import instant_of, is_half_ambiguous, is_midnight_ambiguous
from allocation.rules.ask.when.moment import ONE_DAY
from allocation.rules.ask.when.when_parts import When
from allocation.rules.ask.words.parsed import Repair
from allocation.rules.ask.words.reading import Reading


def until_as_deadline(reading: Reading, when: When) -> None:
    """Read `2h tomorrow until 18:00` as done by then."""
    until = when.until
    if until is None or "repeat" in reading.values:
        return
    if "duration" not in reading.values:
        sentence = "Say from when, as in “from 9:00”, or for how long, as in “2h”."
        reading.add_problem("no_start", sentence, until.span)
        return
    when.deadline, when.is_before = until, False
    set_deadline(reading, when)


def set_deadline(reading: Reading, when: When) -> None:
    """Say the deadline: `before fri` ends with Thursday, `by fri` with Friday."""
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
        reading.add_problem("which_day", "Done by when exactly?", found.span, choices)
        return
    if found.day is None and found.fixed is None and when.plain and when.plain.day:
        found.day = replace(when.plain.day, is_weekday=False)
    if is_half_ambiguous(reading, found) or is_midnight_ambiguous(reading, found):
        return
    at = instant_of(reading, found, found.span, end_of_day=not when.is_before)
    if at is not None:
        reading.set_value("deadline", at, f"done by {reading.time_text(at)}", found.span)
