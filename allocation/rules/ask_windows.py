"""When it is asked for: duration and window. Each rule answers how many words it used."""

from dataclasses import replace
from datetime import date, datetime
from typing import cast

from allocation.errors import AskError
from allocation.rules.ask_document import duration_of
from allocation.rules.ask_reader import Reader
from allocation.rules.ask_shapes import is_shape
from allocation.rules.ask_times import (
    Moment,
    NoSuchTime,
    day_bounds,
    day_text,
    duration_in,
    instant_of,
    moment_in,
)


def read_duration(reader: Reader, at: int) -> int:
    """`6h`, `for 1h30m`."""
    lead = int(reader.word(at) == "for")
    used, seconds = duration_in(reader.words(at + lead))
    if not used:
        return 0
    span = reader.span(at, lead + used)
    try:
        reader.say("duration", duration_of(seconds), f"for {day_text(seconds)}", span)
    except AskError as error:
        reader.trouble(error.code, error.sentence, span)
    return lead + used


def read_now(reader: Reader, at: int) -> int:
    """`now`, `asap`: the window of every booking that says nothing else."""
    used = {"now": 1, "asap": 1}.get(reader.word(at), 0)
    if used:
        reader.say("not_before", reader.now, "as soon as possible", reader.span(at, used))
    return used


def read_from(reader: Reader, at: int) -> int:
    """`from X` is not before X; `from X to Y` is a fixed window."""
    if reader.word(at) not in ("from", "after"):
        return 0
    moment = _moment_at(reader, at + 1)
    if moment is None:
        return 0
    used = 1 + moment.words
    last = None
    if reader.word(at) == "from" and reader.word(at + used) in ("to", "until", "till", "-"):
        last = _moment_at(reader, at + used + 1)
    if last is not None:
        if moment.day is None and moment.fixed is None:
            moment = replace(moment, day=last.day, weekday=last.weekday)
        return say_window(reader, at, (moment, last), used + 1 + last.words)
    span = reader.span(at, used)
    found = _instant(reader, moment, span, end_of_day=False, begins=True)
    if found is not None:
        reader.say("not_before", found, f"not before {reader.time_text(found)}", span)
    return used


def say_window(reader: Reader, at: int, window: tuple[Moment, Moment], used: int) -> int:
    """A fixed window from one moment to the next of the other."""
    span = reader.span(at, used)
    starts = _instant(reader, window[0], span, end_of_day=False, begins=True)
    if starts is None:
        return used
    ends = _instant(reader, window[1], span, end_of_day=True, after=starts)
    if ends is None:
        return used
    if ends <= starts:
        reader.trouble("ends_first", "That window ends before it starts.", span)
        return used
    meaning = f"exactly {reader.time_text(starts)} to {reader.time_text(ends)}"
    reader.say("starts", starts, meaning, span)
    try:
        seconds = duration_of(int((ends - starts).total_seconds()))
        reader.say("duration", seconds, f"for {day_text(seconds)}", span)
    except AskError as error:
        reader.trouble(error.code, error.sentence, span)
    return used


def read_deadline(reader: Reader, at: int) -> int:
    """`before fri` ends with Thursday, `by fri` with Friday."""
    if reader.word(at) not in ("before", "by"):
        return 0
    moment = _moment_at(reader, at + 1)
    if moment is None:
        return 0
    used = 1 + moment.words
    span = reader.span(at, used)
    found = _instant(reader, moment, span, end_of_day=reader.word(at) == "by")
    if found is not None:
        reader.say("deadline", found, f"done by {reader.time_text(found)}", span)
    return used


def read_at(reader: Reader, at: int) -> int:
    """`at 14:00` or `tomorrow 14:00` is a fixed start; a day alone is when it starts, any time."""
    lead = int(reader.word(at) in ("at", "on"))
    moment = _moment_at(reader, at + lead, bare_hour=reader.word(at) == "at")
    if moment is None:
        return 0
    used = lead + moment.words
    span = reader.span(at, used)
    if moment.clock is None and moment.fixed is None:
        _say_day(reader, moment, span)
        return used
    found = _instant(reader, moment, span, end_of_day=False, begins=True)
    if found is not None:
        reader.say("starts", found, f"starts exactly {reader.time_text(found)}", span)
    return used


def _say_day(reader: Reader, moment: Moment, span: tuple[int, int]) -> None:
    if moment.day is None:
        return
    begins, ends = day_bounds(moment.day, reader.zone)
    if ends <= reader.now:
        reader.trouble("window_past", "That day is over.", span)
        return
    if "not_before" not in reader.said:
        reader.said["day"], reader.said["start_by"] = moment.day, ends
    reader.say("not_before", max(begins, reader.now), f"starts on {moment.day:%a %d %b}", span)


def _moment_at(reader: Reader, at: int, *, bare_hour: bool = True) -> Moment | None:
    """The moment there; after a day, a number that counts GPUs or hours is not an hour."""
    words = reader.words(at)[:2]
    if len(words) == 2 and words[1].isdigit():
        counted = is_shape(reader, at + 2) or duration_in(reader.words(at + 1))[0]
        words = words[:1] if counted else words
    today = reader.now.astimezone(reader.zone).date()
    moment = moment_in(words, today, bare_hour=bare_hour)
    said = reader.said.get("day")
    if moment is None or said is None or moment.day is not None or moment.fixed is not None:
        return moment
    return replace(moment, day=cast(date, said))


def _instant(
    reader: Reader,
    moment: Moment,
    span: tuple[int, int],
    *,
    end_of_day: bool,
    begins: bool = False,
    after: datetime | None = None,
) -> datetime | None:
    """UTC time of the moment, in the future; None with the trouble noted.

    With `begins`, a day that has begun is what is left of it.
    """
    try:
        found = instant_of(moment, reader.zone, after=after or reader.now, end_of_day=end_of_day)
    except NoSuchTime as error:
        reader.trouble("no_such_time", str(error), span)
        return None
    if begins and moment.clock is None and moment.day is not None:
        left = day_bounds(moment.day, reader.zone)[1] > reader.now
        found = max(found, reader.now) if left else found
    if found < reader.now or (found == reader.now and not begins):
        reader.trouble("window_past", "That time is over.", span)
        return None
    return found
