"""Windows: `9-17`, `all day friday`, `overnight`, `until 18:00`, and days without a time."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, time
from itertools import product

from allocation.rules.ask.when.instants import (
    date_of,
    day_words,
    instant_of,
    is_half_ambiguous,
    next_five_minutes,
    next_year,
)
from allocation.rules.ask.when.moment import NOON, ONE_DAY, PARTS, Moment, clock_in_part
from allocation.rules.ask.when.when_parts import When, set_duration
from allocation.rules.ask.words.parsed import Repair
from allocation.rules.ask.words.reading import Reading, Span
from allocation.rules.ask.words.times import Clock, Day, day_bounds, duration_words, wall
from tenants.platform.coded import coded

SATURDAY = 5
OVERNIGHT = (time(20), time(8))
_NO_START = coded("ask_add_start")


def whole_rule(reading: Reading, when: When) -> bool:
    """Reads exact days: `all day friday`, `the whole weekend`."""
    if when.whole is None:
        return False
    plain = when.plain
    if plain is None or not plain.has_day or plain.has_time or plain.part:
        choices = [
            Repair("24 hours", reading.replaced(when.whole, "1d")),
            Repair("all day tomorrow", reading.replaced(when.whole, "all day tomorrow")),
        ]
        reading.add_problem("which_day", coded("ask_day"), when.whole, choices)
        return True
    if plain.span != when.whole:
        reading.add_part("day", "all of it", when.whole)
    first, last = plain.days or (date_of(plain), date_of(plain) + ONE_DAY)
    starts, ends = day_bounds(first, reading.zone)[0], day_bounds(last, reading.zone)[0]
    _say_window(reading, max(starts, next_five_minutes(reading.now)), ends, plain.span)
    return True


def overnight_rule(reading: Reading, when: When) -> bool:
    """Reads `overnight`: 20:00 to 08:00, or a start in the evening if there is a duration."""
    if when.overnight is None:
        return False
    span = when.overnight
    plain = when.plain
    if when.window or when.earliest or (plain and (plain.has_time or plain.days)):
        reading.add_duplicate("time", span, when.seen.get("window") or when.seen.get("plain"))
        return True
    day = plain.day if plain and plain.day else Day(reading.today)
    if plain is not None:
        reading.add_part("day", day_words(day), plain.span)
    if plain and plain.part and plain.part not in ("evening", "night"):
        reading.add_duplicate("part of the day", span, plain.span)
        return True
    if "duration" in reading.values:
        set_days(reading, replace(plain or Moment(span), day=day, part="night", span=span))
        return True
    clocks = (
        Moment(span, day=day, clock=Clock(OVERNIGHT[0])),
        Moment(span, clock=Clock(OVERNIGHT[1])),
    )
    _fixed(reading, clocks, span)
    return True


def window_rule(reading: Reading, when: When) -> bool:
    """Reads `from 14:00 to 18:00`, with its day anywhere in the line."""
    _join_ends(reading, when)
    if when.window is None:
        return False
    starts, ends = when.window
    day = when.plain or when.earliest
    if not _give_day(reading, when, starts, ends):
        return True
    # The window has an end already. Only a series can have another one.
    if when.until is not None:
        _second_end(reading, when.until, when.window_span)
        when.until = None
        return True
    length = reading.values.get("duration")
    if when.is_between and length is not None:
        _between(reading, starts, ends, when.window_span)
        return True
    _fixed(reading, (starts, ends), when.window_span, day.span if day else None)
    return True


def _second_end(reading: Reading, until: Moment, window: Span) -> None:
    """Adds a problem for `9-17 until 31 jan`: an end of a series without a recurrence."""
    if until.has_time or not until.has_day:
        reading.add_duplicate("end", until.span, window)
        return
    repairs = [
        Repair(often, reading.replaced(window, f"{often} {reading.words(window)}"))
        for often in ("every day", "every weekday", "every week")
    ]
    why = coded("ask_recurrence")
    reading.add_problem("no_repeat", why, until.span, repairs)


def _join_ends(reading: Reading, when: When) -> None:
    """Turns `at 14:00 … until 18:00` and `from 14:00 … until 18:00` into windows."""
    begin = when.earliest or when.plain
    if when.window or when.until is None or begin is None or "repeat" in reading.values:
        return
    is_long = "duration" in reading.values
    has_days = begin.has_day and when.until.has_day and not when.until.clock
    if is_long or not (begin.has_time or (when.earliest and has_days)):
        return
    when.window, when.window_span = (begin, when.until), when.until.span
    if when.earliest:
        reading.add_part("starts", "the beginning", when.earliest.span)
        when.earliest = None
    else:
        when.plain = None
    when.until = None


def _give_day(reading: Reading, when: When, starts: Moment, ends: Moment) -> bool:
    """Gives the window the day of its start. False if there is no window."""
    plain = when.plain
    if when.earliest is not None:
        if when.earliest.has_time or when.earliest.part or plain is not None:
            reading.add_duplicate("start", when.earliest.span, when.window_span)
            return False
        plain, when.earliest = when.earliest, None
    if not starts.has_time and starts.day and ends.clock and not ends.has_day:
        return _no_begin(reading, when)
    if plain is not None:
        return _take_day(reading, when, plain)
    return _take_end_day(reading, when, starts, ends)


def _take_day(reading: Reading, when: When, plain: Moment) -> bool:
    """Gives the window the day from elsewhere in the line. False after adding a problem."""
    if when.window is None:
        return False
    starts, ends = when.window
    if (starts.has_day and plain.has_day) or plain.has_time or plain.days:
        # The hours keep the day of a time that they replace.
        is_apart = plain.day and plain.clock and not starts.has_day
        span = plain.clock_span if is_apart else plain.span
        reading.add_duplicate("time" if plain.has_time else "day", span, when.window_span)
        return False
    if _is_open_end(reading, when, plain):
        return False
    if plain.day:
        starts.day, starts.day_span = plain.day, plain.day_span
    if plain.part and not _hours_in_part(reading, plain.part, starts, ends):
        return False
    reading.add_part("day", day_words(plain.day) or f"in the {plain.part}", plain.span)
    return True


def _take_end_day(reading: Reading, when: When, starts: Moment, ends: Moment) -> bool:
    """Resolves `14:00 to 18:00 tomorrow`: both times are tomorrow."""
    if starts.has_day or ends.clock is None or starts.clock is None:
        return True
    starts.day = ends.day
    if ends.clock.time <= starts.clock.time and ends.day is not None:
        return not _open_end(reading, when, ends.day)
    ends.day = None
    return True


def _no_begin(reading: Reading, when: When) -> bool:
    """Handles `tomorrow until 18:00`, which has no start; with a duration the end is a deadline.
    Returns False."""
    if when.window is None or when.window[0].day is None or when.window[1].clock is None:
        return False
    (starts, ends), span = when.window, when.window_span
    day, last = when.window[0].day.on, when.window[1].clock.time
    when.window = None
    if starts.part:
        hours = [PARTS[starts.part][0] + more for more in (0, 2, 4)]
        clocks = [f"{day} {hour:02}:00-{last:%H:%M}" for hour in hours]
        reading.add_problem("no_start", _NO_START, span, reading.replacements(span, *clocks))
    elif "duration" in reading.values:
        ends.day = Day(day)
        _between(reading, starts, ends, span)
    elif day == reading.today:
        when.until = replace(ends, day=Day(day), span=span)
        window_from_now(reading, when)
    else:
        words = (f"{day.isoformat()} {first}-{last:%H:%M}" for first in ("09:00", "00:00"))
        reading.add_problem("no_start", _NO_START, span, reading.replacements(span, *words))
    return False


def _clocks_of_parts(starts: Moment, ends: Moment) -> Iterator[str]:
    """Yields windows that `friday evening to monday morning` can mean."""
    if starts.day is None or ends.day is None:
        return
    first = _clocks_of_part(starts)
    for begin, end in product(first, _clocks_of_part(ends)):
        yield f"from {starts.day.on} {begin} to {ends.day.on} {end}"


def _clocks_of_part(moment: Moment) -> list[str]:
    """The time of day, or two in the part of the day."""
    if moment.part:
        return [f"{PARTS[moment.part][0] + more:02}:00" for more in (0, 2)]
    return [f"{moment.clock.time:%H:%M}"] if moment.clock else ["00:00"]


def _hours_in_part(reading: Reading, part: str, starts: Moment, ends: Moment) -> bool:
    """Resolves `tonight 8-10` to 20:00-22:00. False if there is no such window."""
    starts.part = part
    clock_in_part(reading, starts)
    if starts.is_wrong or starts.clock is None or ends.clock is None:
        return False
    hour = ends.clock.time.hour
    if ends.clock.is_twelve_hour and hour + 12 > starts.clock.time.hour >= hour and hour < NOON:
        ends.clock = Clock(ends.clock.time.replace(hour=hour + 12))
    return True


def _is_open_end(reading: Reading, when: When, plain: Moment) -> bool:
    """Whether `tomorrow` in `from 22:00 to 02:00 tomorrow` can mean the start or the end. Adds a
    problem with both."""
    window = when.window
    if window is None or plain.day is None or "-" in reading.words(when.window_span):
        return False
    starts, ends = window
    if starts.clock is None or ends.clock is None or ends.clock.time > starts.clock.time:
        return False
    gap = reading.text[when.window_span[1] : plain.span[0]]
    said_on = reading.words(plain.span).lower().startswith("on ")
    if gap.strip() or plain.span[0] < when.window_span[1] or said_on or ends.clock.ends_day:
        return False
    return _open_end(reading, when, plain.day, plain.span)


def _open_end(reading: Reading, when: When, day: Day, more: Span | None = None) -> bool:
    if when.window is None or when.window[0].clock is None or when.window[1].clock is None:
        return False
    span = (when.window_span[0], more[1] if more else when.window_span[1])
    clocks = f"{when.window[0].clock.time:%H:%M}-{when.window[1].clock.time:%H:%M}"
    choices = [
        Repair(f"from {first:%a %d %b}", reading.replaced(span, f"{first.isoformat()} {clocks}"))
        for first in (day.on - ONE_DAY, day.on)
    ]
    reading.add_problem("which_day", coded("ask_start_day"), span, choices)
    return True


def _between(reading: Reading, starts: Moment, ends: Moment, span: Span) -> None:
    """Sets the window of `2h between 9 and 17`: an earliest start and a deadline."""
    first = instant_of(reading, starts, span, begins=True)
    if first is None:
        return
    last = instant_of(reading, ends, span, after=first, end_of_day=True)
    if last is None:
        return
    reading.set_value("not_before", first, f"not before {reading.time_text(first)}", span)
    reading.set_value("deadline", last, f"done by {reading.time_text(last)}", span)


def until_rule(reading: Reading, when: When) -> bool:
    """Reads `until 18:00` alone as a window that starts now."""
    is_series = "repeat" in reading.values
    if when.until is None or when.deadline or is_series or "duration" in reading.values:
        return False
    return window_from_now(reading, when)


def window_from_now(reading: Reading, when: When) -> bool:
    """Sets the window from now to `until`. False if there is no end."""
    until = when.until
    if until is None:
        return False
    when.until = None
    if is_half_ambiguous(reading, until):
        return True
    ends = instant_of(reading, until, until.span, end_of_day=True)
    if ends is not None:
        _say_window(reading, next_five_minutes(reading.now), ends, until.span)
    return True


def _fixed(reading: Reading, window: tuple[Moment, Moment], span: Span, day: Span | None = None) -> None:
    """Sets a fixed window from one moment to the next occurrence of the other. `day`: where its day
    is in the text, if it is outside the span."""
    starts, ends = window
    if any(is_half_ambiguous(reading, each) for each in window if each.span != span):
        return
    if starts.part or ends.part:
        spans = starts.span if starts.part else ends.span
        repairs = reading.replacements(span, *_clocks_of_parts(starts, ends))
        reading.add_problem("no_start", _NO_START, spans, repairs)
        return
    if _is_half_a_day(reading, starts, ends, span):
        return
    first = instant_of(reading, starts, span, begins=True)
    if first is None:
        if reading.problems and reading.problems[-1].code == "window_past":
            choices = (*_of_begun(reading, starts, ends, span, day or span), *next_year(reading, starts))
            past = reading.problems[-1]
            reading.problems[-1] = replace(past, repairs=choices or past.repairs)
        return
    last = instant_of(reading, ends, span, after=first, end_of_day=True)
    if last is not None:
        _say_window(reading, first, last, span)


def _is_half_a_day(reading: Reading, starts: Moment, ends: Moment, span: Span) -> bool:
    """Whether `9-9` can be twelve hours or a whole day. Adds a problem with both."""
    clocks = (starts.clock, ends.clock)
    if clocks[0] != clocks[1] or ends.has_day or clocks[0] is None or not clocks[0].is_twelve_hour:
        return False
    first = clocks[0].time
    later = first.replace(hour=(first.hour + 12) % 24)
    choices = reading.replacements(span, *(f"{first:%H:%M}-{last:%H:%M}" for last in (later, first)))
    why = coded("ask_which_half", time=f"{first:%H:%M}", later=f"{later:%H:%M}")
    reading.add_problem("which_half", why, span, choices)
    return True


def _of_begun(reading: Reading, starts: Moment, ends: Moment, span: Span, day: Span) -> Iterator[Repair]:
    """Yields what is left of a window of today that has begun, and the same hours tomorrow."""
    day_on = reading.today if starts.day is None else starts.day.on
    if starts.clock is None or ends.clock is None or ends.has_day or day_on > reading.today:
        return
    first, last = starts.clock.time, ends.clock.time
    over = wall(day_on + ONE_DAY * (last <= first), last, reading.zone)
    words = [f"until {last:%H:%M}"] if over > next_five_minutes(reading.now) else []
    for each in (*words, f"tomorrow {first:%H:%M}-{last:%H:%M}"):
        (begin, middle), (end, rest) = sorted((span, day))
        text = reading.text
        line = f"{text[:begin]} {each} {text[middle:end]} {text[max(middle, rest) :]}"
        yield Repair(each, " ".join(line.split()))


def _say_window(reading: Reading, starts: datetime, ends: datetime, span: Span) -> None:
    if ends <= starts:
        why = coded("ask_window_empty") if ends == starts else coded("ask_window_backward")
        reading.add_problem("ends_first", why, span)
        return
    seconds = int((ends - starts).total_seconds())
    values = reading.values.get("duration")
    if values is not None and values != seconds:
        first, last = reading.time_text(starts), reading.time_text(ends)
        length = reading.words(reading.spans["duration"])
        why = coded(
            "ask_window_length",
            first=first,
            last=last,
            window=duration_words(seconds),
            length=length,
        )
        choices = [Repair(duration_words(seconds), reading.replaced(reading.spans["duration"], ""))]
        between = f"between {_stamp_text(reading, starts)} and {_stamp_text(reading, ends)}"
        choices.append(Repair("sometime between", reading.replaced(span, between)))
        days = values // 86_400 if isinstance(values, int) else 0
        if days and getattr(reading.values.get("repeat"), "freq", "") == "DAILY":
            choices += reading.replacements(reading.spans["duration"], f"{days} times")
        reading.add_problem("said_twice", why, reading.spans["duration"], choices)
        return
    meaning = f"exactly {reading.time_text(starts)} to {reading.time_text(ends)}"
    reading.set_value("starts", starts, meaning, span)
    reading.values["ends"] = ends
    if values is None:
        set_duration(reading, seconds, span)


def _stamp_text(reading: Reading, moment: datetime) -> str:
    return f"{moment.astimezone(reading.zone):%Y-%m-%d %H:%M}"


def days_rule(reading: Reading, when: When) -> bool:
    """Reads a day, several days or a part of a day, in which the booking starts at any time."""
    if when.plain is None:
        return False
    set_days(reading, when.plain)
    return True


def set_days(reading: Reading, moment: Moment) -> None:
    """Sets a start at any time in these days, or in this part of the day."""
    if moment.ends:
        why = coded("ask_which_end")
        choices = reading.replacements(
            moment.span, *(f"{word} {reading.words(moment.span)}" for word in ("by", "until"))
        )
        reading.add_problem("which_end", why, moment.span, choices)
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
        is_today = moment.part and first == reading.today
        why = coded("ask_time_past" if is_today else "ask_day_past")
        choices = reading.replacements(moment.span, f"tomorrow {moment.part}") if is_today else []
        reading.add_problem("window_past", why, moment.span, [*choices, *next_year(reading, moment)])
        return
    reading.values["start_by"] = ends
    if moment.days and first.weekday() == SATURDAY and last - first == 2 * ONE_DAY:
        # A booking of a weekend ends with it, if it is not longer.
        reading.values["is_inside"] = True
    reading.set_value("not_before", max(begins, reading.now), words, moment.span)


def _which_part(reading: Reading, moment: Moment) -> None:
    """Adds a problem for `in the morning` when this morning has already begun."""
    choices = reading.replacements(moment.span, f"this {moment.part}", f"tomorrow {moment.part}")
    why = coded("ask_which_part", part=moment.part)
    reading.add_problem("which_day", why, moment.span, choices)


def _part_bounds(reading: Reading, day: date, part: str) -> tuple[datetime, datetime]:
    first, last = PARTS[part]
    ends = day_bounds(day, reading.zone)[1]
    if last < 24:
        ends = wall(day, time(last), reading.zone)
    return wall(day, time(first), reading.zone), ends
