"""Days and parts of a day without a time: the booking starts then, at any time."""

from datetime import date, datetime, time

from allocation.rules.ask.when.instants import date_of
from allocation.rules.ask.when.moment import ONE_DAY, PARTS, Moment
from allocation.rules.ask.when.when_parts import When
from allocation.rules.ask.words.reading import Reading
from allocation.rules.ask.words.times import day_bounds, wall


def days_rule(reading: Reading, when: When) -> bool:
    """Read a day, several days or a part of a day: it starts then, at any time."""
    if when.plain is None:
        return False
    set_days(reading, when.plain)
    return True


def set_days(reading: Reading, moment: Moment) -> None:
    """Say that it starts at any time of these days, or of that part of the day."""
    if moment.ends:
        sentence = "Say “by” or “until” before it."
        choices = reading.replacements(
            moment.span, *(f"{word} {reading.words(moment.span)}" for word in ("by", "until"))
        )
        reading.add_problem("which_end", sentence, moment.span, choices)
        return
    first, last = moment.days or (date_of(moment, reading), date_of(moment, reading) + ONE_DAY)
    begins, ends = day_bounds(first, reading.zone)[0], day_bounds(last, reading.zone)[0]
    words = f"starts on {first:%a %d %b}"
    if moment.days is not None:
        words = f"starts between {first:%a %d %b} and {last - ONE_DAY:%a %d %b}"
    if moment.part and moment.days is None:
        if moment.day is None and _part_bounds(reading, first, moment.part)[0] <= reading.now:
            _which_part(reading, moment)
            return
        begins, ends = _part_bounds(reading, first, moment.part)
        words = f"starts in the {moment.part} of {first:%a %d %b}"
    if ends <= reading.now:
        reading.add_problem("window_past", "That day is over.", moment.span)
        return
    reading.values["start_by"] = ends
    reading.set_value("not_before", max(begins, reading.now), words, moment.span)


def _which_part(reading: Reading, moment: Moment) -> None:
    """`in the morning`, when this morning has begun."""
    choices = reading.replacements(moment.span, f"this {moment.part}", f"tomorrow {moment.part}")
    reading.add_problem("which_day", f"This {moment.part}, or tomorrow's?", moment.span, choices)


def _part_bounds(reading: Reading, day: date, part: str) -> tuple[datetime, datetime]:
    first, last = PARTS[part]
    ends = day_bounds(day, reading.zone)[1]
    if last < 24:
        ends = wall(day, time(last), reading.zone)
    return wall(day, time(first), reading.zone), ends
