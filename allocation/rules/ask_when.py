"""When it is asked for: day, time, length and window, wherever in the line each is said."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta

from lark import Token, Tree

from allocation.errors import AskError
from allocation.rules.ask_document import duration_of
from allocation.rules.ask_moment import (
    ONE_DAY,
    PARTS,
    WEEK,
    Moment,
    days_of,
    in_part,
    is_one,
    moment_of,
    open_days,
)
from allocation.rules.ask_numbers import length_of
from allocation.rules.ask_parsed import Repair
from allocation.rules.ask_reading import Reading, Span, span_of
from allocation.rules.ask_times import (
    Clock,
    Day,
    NoSuchTime,
    clock_read,
    day_bounds,
    day_text,
    wall,
)

_NOON = 12
_MINUTE = timedelta(minutes=1)
_FIVE_MINUTES = 300
OVERNIGHT = (time(20), time(8))


@dataclass(slots=True)
class When:
    """The parts that were said about time; each at most once."""

    plain: Moment | None = None
    window: tuple[Moment, Moment] | None = None
    window_span: Span = (0, 0)
    is_between: bool = False
    earliest: Moment | None = None
    lead: str = ""
    until: Moment | None = None
    deadline: Moment | None = None
    is_before: bool = False
    asap: Span | None = None
    in_time: tuple[datetime, Span] | None = None
    whole: Span | None = None
    overnight: Span | None = None
    seen: dict[str, Span] = field(default_factory=dict)


def when_add(reading: Reading, when: When, tree: Tree[Token]) -> None:
    """Keep one part of the grammar that is about time."""
    tokens = list(tree.scan_values(lambda value: isinstance(value, Token)))
    span = span_of(*tokens)
    name = str(tree.data)
    kind = _KINDS.get(name, name)
    if kind in when.seen and kind not in ("plain", "length"):
        if not _each_day(reading, when, span):
            reading.twice(kind, span, when.seen[kind])
        return
    when.seen.setdefault(kind, span)
    trees = [child for child in tree.children if isinstance(child, Tree)]
    moments = [moment_of(reading, each) for each in trees]
    if any(moment.is_wrong for moment in moments):
        return
    _ADDERS[name](reading, when, tokens, moments)


def _each_day(reading: Reading, when: When, span: Span) -> bool:
    """`mon to fri 9-17` is meant for each of these days; noted with the line that says so."""
    window = when.window
    if window is None or any(each.has_time or not each.day for each in window):
        return False
    first, last = (each.day.on for each in window if each.day)
    last += WEEK * (last < first)
    words = f"{first} {reading.words(span)} every day until {last}"
    text = Reading.replaced(reading, span, "")
    both = reading.words(when.window_span)
    repair = Repair("every day", " ".join(text.replace(both, words).split()))
    reading.trouble("said_twice", "Say what repeats, as in “every day”.", span, [repair])
    return True


_KINDS = {
    "duration": "length", "coming": "length", "hours": "window", "begin": "earliest",
    "between": "window", "whole_day": "whole", "whole_span": "whole",
}  # fmt: skip


def _add_length(reading: Reading, _: When, tokens: Sequence[Token], __: Sequence[Moment]) -> None:
    text = re.sub(r"^(?:for\s+)?(?:(?:the\s+)?(?:next|coming)\s+)?", "", tokens[0])
    span = span_of(*tokens)
    if not _is_one_length(text):
        begin, rest = text.split(maxsplit=1)
        choices = [Repair(each, reading.replaced(span, each)) for each in (begin, rest)]
        reading.trouble("said_twice", "This is the second duration.", span, choices)
        return
    seconds = sum(length_of(each) or 0 for each in re.split(r"\s+and\s+(?=\d|one|an?\s\w+$)", text))
    if " and a half" in text:
        seconds = length_of(text) or 0
    _say_length(reading, seconds, span)


def _is_one_length(text: str) -> bool:
    """Whether each unit is smaller than the one before: `1d 6h`, not `6h 8h`."""
    units = re.findall(r"\d\s*-?(w|d|h|m)", text)
    return units == sorted(set(units), key="wdhm".index)


def _say_length(reading: Reading, seconds: int, span: Span) -> bool:
    try:
        reading.say("duration", duration_of(seconds), f"for {day_text(seconds)}", span)
    except AskError as error:
        reading.trouble(error.code, error.sentence, span)
        return False
    return True


def _add_coming(
    reading: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]
) -> None:
    _add_length(reading, when, tokens, moments)
    when.asap = span_of(*tokens)


def _add_plain(reading: Reading, when: When, _: Sequence[Token], moments: Sequence[Moment]) -> None:
    (moment,) = moments
    when.plain = moment if when.plain is None else _both(reading, when.plain, moment)


def _both(reading: Reading, one: Moment, other: Moment) -> Moment:
    """A day said here and a time said there are one moment."""
    for name, word in (("day", "day"), ("clock", "time"), ("part", "part of the day")):
        if getattr(one, name) and getattr(other, name):
            reading.twice(word, other.span, one.span)
            return one
    if (one.days or one.fixed) and (other.days or other.fixed or other.day):
        reading.twice("day", other.span, one.span)
        return one
    kept, beside = (other, one) if other.clock and not one.clock else (one, other)
    both = replace(
        kept,
        day=one.day or other.day,
        part=one.part or other.part,
        days=one.days or other.days,
        fixed=one.fixed or other.fixed,
        ends=one.ends or other.ends,
    )
    # What is meant is shown where the time is said; the day that was said apart from it, there.
    reading.mean("day", _day_words(both.day) or "a part of that time", beside.span)
    return both


def _add_hours(reading: Reading, when: When, tokens: Sequence[Token], _: Sequence[Moment]) -> None:
    """`9-17`, `from 22:00 to 6:00`, `2-4pm`."""
    token = next(each for each in tokens if each.type == "HOURS")
    span = span_of(*tokens)
    text = re.sub(r"^(?:(?:at|@|from)\s+)+", "", token)
    first, last = re.split(
        r"\s*(?:--?>?|->)\s*|\s+(?:to|until|till|'?til|thru|through)\s+", text, maxsplit=1
    )
    clocks = clock_read(first), clock_read(last)
    if None in clocks:
        reading.trouble("no_such_time", "There is no such time of day.", span)
        return
    starts, ends = (Moment(span, clock=clock, clock_span=span) for clock in clocks)
    when.window, when.window_span = (starts, ends), span
    when.is_between = tokens[0].type == "BETWEEN"
    _halves(reading, when, first, last)


def _halves(reading: Reading, when: When, first: str, last: str) -> None:
    """`2-4pm` is in one half of the day; `9-5` and `2-4` could be meant in either."""
    if when.window is None:
        return
    starts, ends = when.window
    if starts.clock is None or ends.clock is None:
        return
    if re.search(r"[ap]\.?m", last) and starts.clock.is_twelve:
        starts.clock = _latest_before(starts.clock, ends.clock)
        return
    if when.plain and when.plain.part:
        return
    is_long = _hours_between(starts.clock.time, ends.clock.time) > _NOON
    if not (starts.clock.is_early or (ends.clock.is_early and is_long)):
        return
    pairs = [(begin, end) for begin in _either(starts.clock) for end in _either(ends.clock)]
    pairs.sort(key=lambda pair: _hours_between(*pair))
    words = [f"{begin:%H:%M}-{end:%H:%M}" for begin, end in pairs[:2]]
    when.window = None
    reading.trouble(
        "which_half",
        "Is that in the morning or in the afternoon?",
        when.window_span,
        reading.instead(when.window_span, *words),
    )


def _either(clock: Clock) -> list[time]:
    """The hour as it is said, and twelve hours later where that could be meant."""
    later = [clock.time.replace(hour=clock.time.hour + 12)] if clock.is_early else []
    return [clock.time, *later]


def _hours_between(begin: time, end: time) -> float:
    """From one to the next of the other."""
    minutes = (end.hour - begin.hour) * 60 + end.minute - begin.minute
    return (minutes % 1_440 or 1_440) / 60


def _latest_before(clock: Clock, end: Clock) -> Clock:
    """Of the two hours that `2` may be, the one nearer before the end."""
    both = [time(clock.time.hour % 12 + add, clock.time.minute) for add in (0, 12)]
    before = [each for each in both if each < end.time] or both
    return Clock(before[-1])


def _add_window(
    reading: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]
) -> None:
    when.window, when.window_span = (moments[0], moments[1]), span_of(*tokens)
    when.is_between = tokens[0].type == "BETWEEN"


def _add_between(
    reading: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]
) -> None:
    if moments:
        _add_window(reading, when, tokens, moments)
    else:
        _add_hours(reading, when, tokens, moments)


def _add_earliest(
    _: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]
) -> None:
    when.earliest = replace(moments[0], span=span_of(*tokens))
    when.lead = "start" if tokens[0].type == "START" else str(tokens[0])


def _add_until(_: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]) -> None:
    when.until = replace(moments[0], span=span_of(*tokens))


def _add_deadline(
    _: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]
) -> None:
    when.deadline = replace(moments[0], span=span_of(*tokens))
    when.is_before = tokens[0].endswith("before")


def _add_asap(_: Reading, when: When, tokens: Sequence[Token], __: Sequence[Moment]) -> None:
    when.asap = span_of(*tokens)


def _add_anytime(reading: Reading, _: When, tokens: Sequence[Token], __: Sequence[Moment]) -> None:
    reading.mean("anytime", "at any time that fits", span_of(*tokens))


def _add_in_time(
    reading: Reading, when: When, tokens: Sequence[Token], _: Sequence[Moment]
) -> None:
    text = re.sub(r"^in\s+|\s+from\s+now$", "", tokens[0])
    starts = reading.now + timedelta(seconds=length_of(text) or 0)
    whole = starts.replace(second=0, microsecond=0)
    when.in_time = (whole if whole == starts else whole + _MINUTE, span_of(*tokens))


def _add_whole(reading: Reading, when: When, tokens: Sequence[Token], _: Sequence[Moment]) -> None:
    when.whole = span_of(*tokens)
    if tokens[0].type == "WHOLESPAN":
        found = days_of(tokens[0], reading.today)
        if found is None or isinstance(found, list):
            open_days(reading, when.whole, found)
            when.whole = None
        else:
            moment = Moment(when.whole, days=found)
            when.plain = _both(reading, when.plain, moment) if when.plain else moment


def _add_overnight(_: Reading, when: When, tokens: Sequence[Token], __: Sequence[Moment]) -> None:
    when.overnight = span_of(*tokens)


_ADDERS: dict[str, Callable[[Reading, When, Sequence[Token], Sequence[Moment]], None]] = {
    "duration": _add_length, "coming": _add_coming, "plain": _add_plain, "hours": _add_hours,
    "window": _add_window, "between": _add_between, "earliest": _add_earliest,
    "begin": _add_earliest, "until": _add_until, "deadline": _add_deadline, "asap": _add_asap,
    "anytime": _add_anytime, "in_time": _add_in_time, "whole_day": _add_whole,
    "whole_span": _add_whole, "overnight": _add_overnight,
}  # fmt: skip
WHEN_PARTS = frozenset(_ADDERS)


# --- all of them together ------------------------------------------------------------------------


def _is_sound(reading: Reading, when: When) -> bool:
    """Whether the days and times that stand alone can be meant together."""
    plain = when.plain
    if plain is None or not is_one(reading, plain):
        return plain is None and "plain" not in when.seen
    if plain.clock and plain.part:
        in_part(reading, plain)
    return not plain.is_wrong


def when_resolve(reading: Reading, when: When) -> None:
    """Make the window of all that was said about time; trouble is noted where there is none."""
    if not _is_sound(reading, when):
        return
    for rule in _WINDOWS:
        if rule(reading, when):
            break
    if when.deadline is not None:
        _deadline(reading, when)
    elif when.until is not None and "starts" not in reading.said:
        _until_flexible(reading, when)


def _soon(reading: Reading, when: When) -> bool:
    """`now` and `in 2 hours`."""
    if when.in_time is not None:
        starts, span = when.in_time
        if when.plain or when.window or when.earliest or when.asap or when.whole or when.overnight:
            reading.twice("time", span, when.seen.get("plain"))
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
        reading.twice("time", when.asap, first)
        return True
    if when.plain:
        reading.mean("day", "today", when.plain.span)
    if when.until is not None and "duration" not in reading.said:
        reading.mean("not_before", "as soon as possible", when.asap)
        return _until_now(reading, when)
    reading.say("not_before", reading.now, "as soon as possible", when.asap)
    return True


def _whole(reading: Reading, when: When) -> bool:
    """`all day friday`, `the whole weekend`: exactly these days."""
    if when.whole is None:
        return False
    plain = when.plain
    if plain is None or not plain.has_day or plain.has_time or plain.part:
        choices = [
            Repair("24 hours", reading.replaced(when.whole, "1d")),
            Repair("all day tomorrow", reading.replaced(when.whole, "all day tomorrow")),
        ]
        reading.trouble("which_day", "All of which day?", when.whole, choices)
        return True
    if plain.span != when.whole:
        reading.mean("day", "all of it", when.whole)
    first, last = plain.days or (_date_of(plain), _date_of(plain) + ONE_DAY)
    starts, ends = day_bounds(first, reading.zone)[0], day_bounds(last, reading.zone)[0]
    _say_window(reading, max(starts, _next_five(reading.now)), ends, plain.span)
    return True


def _overnight(reading: Reading, when: When) -> bool:
    """`overnight` is from 20:00 to 08:00, or with a length a start in the evening."""
    if when.overnight is None:
        return False
    span = when.overnight
    plain = when.plain
    if when.window or when.earliest or (plain and (plain.has_time or plain.days)):
        reading.twice("time", span, when.seen.get("window") or when.seen.get("plain"))
        return True
    day = plain.day if plain and plain.day else Day(reading.today)
    if plain is not None:
        reading.mean("day", _day_words(day), plain.span)
    if plain and plain.part and plain.part not in ("evening", "night"):
        reading.twice("part of the day", span, plain.span)
        return True
    if "duration" in reading.said:
        _saydays_of(reading, replace(plain or Moment(span), day=day, part="night", span=span))
        return True
    clocks = (
        Moment(span, day=day, clock=Clock(OVERNIGHT[0])),
        Moment(span, clock=Clock(OVERNIGHT[1])),
    )
    _fixed(reading, clocks, span)
    return True


def _window(reading: Reading, when: When) -> bool:
    """`from 14:00 to 18:00`, with its day wherever that is said."""
    _join_ends(reading, when)
    if when.window is None:
        return False
    starts, ends = when.window
    if not _give_day(reading, when, starts, ends):
        return True
    # What `to` leads to is in that window; a series may end later.
    if when.until is not None:
        _second_end(reading, when.until, when.window_span)
        when.until = None
        return True
    length = reading.said.get("duration")
    if when.is_between and length is not None:
        _between(reading, starts, ends, when.window_span)
        return True
    _fixed(reading, (starts, ends), when.window_span)
    return True


def _second_end(reading: Reading, until: Moment, window: Span) -> None:
    """`9-17 until 31 jan` says when a series ends and not what repeats."""
    if until.has_time or not until.has_day:
        reading.twice("end", until.span, window)
        return
    repairs = [
        Repair(often, reading.replaced(window, f"{often} {reading.words(window)}"))
        for often in ("every day", "every weekday", "every week")
    ]
    sentence = "Say what repeats, as in “every mon”."
    reading.trouble("no_repeat", sentence, until.span, repairs)


def _join_ends(reading: Reading, when: When) -> None:
    """`at 14:00 … until 18:00` and `from 14:00 … until 18:00` are windows, too."""
    begin = when.earliest or when.plain
    if when.window or when.until is None or begin is None or "repeat" in reading.said:
        return
    is_long = "duration" in reading.said
    has_days = begin.has_day and when.until.has_day and not when.until.clock
    if is_long or not (begin.has_time or (when.earliest and has_days)):
        return
    when.window, when.window_span = (begin, when.until), when.until.span
    if when.earliest:
        reading.mean("starts", "the beginning", when.earliest.span)
        when.earliest = None
    else:
        when.plain = None
    when.until = None


def _give_day(reading: Reading, when: When, starts: Moment, ends: Moment) -> bool:
    """The day that was said beside the window is the one on which it starts. False: no window."""
    plain = when.plain
    if when.earliest is not None:
        if when.earliest.has_time or when.earliest.part or plain is not None:
            reading.twice("start", when.earliest.span, when.window_span)
            return False
        plain, when.earliest = when.earliest, None
    if not starts.has_time and starts.day and ends.clock and not ends.has_day:
        return _no_begin(reading, when)
    if plain is not None:
        return _take_day(reading, when, plain)
    return _take_end_day(reading, when, starts, ends)


def _take_day(reading: Reading, when: When, plain: Moment) -> bool:
    """The window is on the day that was said apart from it."""
    if when.window is None:
        return False
    starts, ends = when.window
    if starts.has_day or plain.has_time or plain.days:
        reading.twice("time" if plain.has_time else "day", plain.span, when.window_span)
        return False
    if _is_open_end(reading, when, plain):
        return False
    starts.day = plain.day
    if plain.part and not _hours_in_part(reading, plain.part, starts, ends):
        return False
    reading.mean("day", _day_words(plain.day), plain.span)
    return True


def _take_end_day(reading: Reading, when: When, starts: Moment, ends: Moment) -> bool:
    """`14:00 to 18:00 tomorrow` is tomorrow as a whole."""
    if starts.has_day or ends.clock is None or starts.clock is None:
        return True
    starts.day = ends.day
    if ends.clock.time <= starts.clock.time and ends.day is not None:
        return not _open_end(reading, when, ends.day)
    ends.day = None
    return True


def _no_begin(reading: Reading, when: When) -> bool:
    """`tomorrow until 18:00`: from when? With a length it is done by then. Always False."""
    if when.window is None or when.window[0].day is None or when.window[1].clock is None:
        return False
    (starts, ends), span = when.window, when.window_span
    day, last = when.window[0].day.on, when.window[1].clock.time
    when.window = None
    if starts.part:
        hours = [PARTS[starts.part][0] + more for more in (0, 2, 4)]
        clocks = [f"{day} {hour:02}:00-{last:%H:%M}" for hour in hours]
        reading.trouble("no_start", "From when?", span, reading.instead(span, *clocks))
    elif "duration" in reading.said:
        ends.day = Day(day)
        _between(reading, starts, ends, span)
    elif day == reading.today:
        when.until = replace(ends, day=Day(day), span=span)
        _until_now(reading, when)
    else:
        words = (f"{day.isoformat()} {first}-{last:%H:%M}" for first in ("09:00", "00:00"))
        reading.trouble("no_start", "From when?", span, reading.instead(span, *words))
    return False


def _hours_in_part(reading: Reading, part: str, starts: Moment, ends: Moment) -> bool:
    """`tonight 8-10` is 20:00 to 22:00."""
    starts.part = part
    in_part(reading, starts)
    if starts.is_wrong or starts.clock is None or ends.clock is None:
        return False
    hour = ends.clock.time.hour
    if ends.clock.is_twelve and hour + 12 > starts.clock.time.hour >= hour and hour < _NOON:
        ends.clock = Clock(ends.clock.time.replace(hour=hour + 12))
    return True


def _is_open_end(reading: Reading, when: When, plain: Moment) -> bool:
    """`from 22:00 to 02:00 tomorrow`: is tomorrow when it starts, or when it ends?"""
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
    reading.trouble("which_day", "On which day does it start?", span, choices)
    return True


def _between(reading: Reading, starts: Moment, ends: Moment, span: Span) -> None:
    """`2h between 9 and 17`: not before and done by."""
    first = _instant(reading, starts, span, begins=True)
    if first is None:
        return
    last = _instant(reading, ends, span, after=first, end_of_day=True)
    if last is None:
        return
    reading.say("not_before", first, f"not before {reading.time_text(first)}", span)
    reading.say("deadline", last, f"done by {reading.time_text(last)}", span)


def _start(reading: Reading, when: When) -> bool:
    """`at 14:00`, `starting tomorrow 9:00`: an exact start."""
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
        reading.trouble("which_day", "Which of these days?", begin.span)
        return
    if _half_open(reading, begin) or _midnight_open(reading, begin):
        return
    found = _instant(reading, begin, begin.span, begins=True)
    if found is not None:
        _say_start(reading, found, begin.span)


def _lend_day(reading: Reading, to: Moment, other: Moment) -> bool:
    """The day beside it is the day of a time that has none."""
    if other.has_time or other.part or other.days or to.has_day:
        reading.twice("day" if other.has_day else "time", other.span, to.span)
        return False
    to.day = other.day
    reading.mean("day", _day_words(other.day), other.span)
    return True


def _say_start(reading: Reading, starts: datetime, span: Span) -> bool:
    reading.say("starts", starts, f"starts exactly {reading.time_text(starts)}", span)
    return True


def _earliest(reading: Reading, when: When) -> bool:
    """`from mon 9` is not before; `after friday` is from Saturday on."""
    found = when.earliest
    if found is None:
        return False
    if when.plain is not None and not _lend_day(reading, found, when.plain):
        return True
    if found.clock is not None and _half_open(reading, found):
        return True
    is_after = when.lead == "after" and not found.has_time
    at = _instant(reading, found, found.span, begins=True, end_of_day=is_after)
    if at is not None:
        reading.say("not_before", at, f"not before {reading.time_text(at)}", found.span)
    return True


def _days_only(reading: Reading, when: When) -> bool:
    """A day, several days or a part of a day: it starts then, at any time."""
    if when.plain is None:
        return False
    _saydays_of(reading, when.plain)
    return True


def _until_alone(reading: Reading, when: When) -> bool:
    """`until 18:00` alone is from now to then."""
    is_series = "repeat" in reading.said
    if when.until is None or when.deadline or is_series or "duration" in reading.said:
        return False
    return _until_now(reading, when)


_WINDOWS = (_soon, _whole, _overnight, _window, _start, _earliest, _days_only, _until_alone)


def _until_now(reading: Reading, when: When) -> bool:
    until = when.until
    if until is None:
        return False
    when.until = None
    if _half_open(reading, until):
        return True
    ends = _instant(reading, until, until.span, end_of_day=True)
    if ends is not None:
        _say_window(reading, _next_five(reading.now), ends, until.span)
    return True


def _until_flexible(reading: Reading, when: When) -> None:
    """`2h tomorrow until 18:00`: done by then."""
    until = when.until
    if until is None or "repeat" in reading.said:
        return
    if "duration" not in reading.said:
        sentence = "Say from when, as in “from 9:00”, or for how long, as in “2h”."
        reading.trouble("no_start", sentence, until.span)
        return
    when.deadline, when.is_before = until, False
    _deadline(reading, when)


def _deadline(reading: Reading, when: When) -> None:
    """`before fri` ends with Thursday, `by fri` with Friday."""
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
        reading.trouble("which_day", "Done by when exactly?", found.span, choices)
        return
    if found.day is None and found.fixed is None and when.plain and when.plain.day:
        found.day = replace(when.plain.day, is_weekday=False)
    if _half_open(reading, found) or _midnight_open(reading, found):
        return
    at = _instant(reading, found, found.span, end_of_day=not when.is_before)
    if at is not None:
        reading.say("deadline", at, f"done by {reading.time_text(at)}", found.span)


def _fixed(reading: Reading, window: tuple[Moment, Moment], span: Span) -> None:
    """Exactly from one moment to the next of the other."""
    starts, ends = window
    if any(_half_open(reading, each) for each in window if each.span != span):
        return
    if starts.part or ends.part:
        sentence = "Say at what time, as in “9:00-17:00”."
        reading.trouble("no_start", sentence, starts.span if starts.part else ends.span)
        return
    first = _instant(reading, starts, span, begins=True)
    if first is None:
        return
    last = _instant(reading, ends, span, after=first, end_of_day=True)
    if last is not None:
        _say_window(reading, first, last, span)


def _say_window(reading: Reading, starts: datetime, ends: datetime, span: Span) -> None:
    if ends <= starts:
        reading.trouble("ends_first", "That window ends before it starts.", span)
        return
    seconds = int((ends - starts).total_seconds())
    said = reading.said.get("duration")
    if said is not None and said != seconds:
        first, last = reading.time_text(starts), reading.time_text(ends)
        length = reading.words(reading.spans["duration"])
        sentence = f"{first} to {last} is {day_text(seconds)}, and this says {length}."
        choices = [Repair(day_text(seconds), reading.replaced(reading.spans["duration"], ""))]
        between = f"between {_stamp_text(reading, starts)} and {_stamp_text(reading, ends)}"
        choices.append(Repair("sometime between", reading.replaced(span, between)))
        days = said // 86_400 if isinstance(said, int) else 0
        if days and getattr(reading.said.get("repeat"), "freq", "") == "DAILY":
            choices += reading.instead(reading.spans["duration"], f"{days} times")
        reading.trouble("said_twice", sentence, reading.spans["duration"], choices)
        return
    meaning = f"exactly {reading.time_text(starts)} to {reading.time_text(ends)}"
    reading.say("starts", starts, meaning, span)
    if said is None:
        _say_length(reading, seconds, span)


def _stamp_text(reading: Reading, moment: datetime) -> str:
    return f"{moment.astimezone(reading.zone):%Y-%m-%d %H:%M}"


def _saydays_of(reading: Reading, moment: Moment) -> None:
    """It starts at any time of these days, or of that part of the day."""
    if moment.ends:
        sentence = "Say “by” or “until” before it."
        choices = reading.instead(
            moment.span, *(f"{word} {reading.words(moment.span)}" for word in ("by", "until"))
        )
        reading.trouble("which_end", sentence, moment.span, choices)
        return
    first, last = moment.days or (_date_of(moment, reading), _date_of(moment, reading) + ONE_DAY)
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
        reading.trouble("window_past", "That day is over.", moment.span)
        return
    reading.said["start_by"] = ends
    reading.say("not_before", max(begins, reading.now), words, moment.span)


def _which_part(reading: Reading, moment: Moment) -> None:
    """`in the morning`, when this morning has begun."""
    choices = reading.instead(moment.span, f"this {moment.part}", f"tomorrow {moment.part}")
    reading.trouble("which_day", f"This {moment.part}, or tomorrow's?", moment.span, choices)


def _part_bounds(reading: Reading, day: date, part: str) -> tuple[datetime, datetime]:
    first, last = PARTS[part]
    ends = day_bounds(day, reading.zone)[1]
    if last < 24:
        ends = wall(day, time(last), reading.zone)
    return wall(day, time(first), reading.zone), ends


def _half_open(reading: Reading, moment: Moment) -> bool:
    """Whether `at 3` could be meant in the afternoon; noted with both."""
    clock = moment.clock
    if clock is None or not clock.is_early:
        return False
    later = clock.time.replace(hour=clock.time.hour + 12)
    lead = "at " if reading.words(moment.clock_span).lower().startswith(("at ", "@")) else ""
    choices = reading.instead(
        moment.clock_span, f"{lead}{later:%H:%M}", f"{lead}{clock.time:%H:%M}"
    )
    if not lead and "duration" not in reading.said and not clock.time.minute:
        choices += reading.instead(moment.clock_span, f"{clock.time.hour}h")
    sentence = f"{clock.time:%H:%M} or {later:%H:%M}?"
    reading.trouble("which_half", sentence, moment.clock_span, choices)
    return True


def _midnight_open(reading: Reading, moment: Moment) -> bool:
    """Whether `friday midnight` could be its beginning or its end; noted with both."""
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
        choices.append(
            Repair(f"{each:%a} {each.day} {each:%b} 00:00", reading.replaced(both, words))
        )
    reading.trouble(
        "which_day", "The midnight before that day or after it?", moment.clock_span, choices
    )
    return True


def _instant(
    reading: Reading,
    moment: Moment,
    span: Span,
    *,
    end_of_day: bool = False,
    begins: bool = False,
    after: datetime | None = None,
) -> datetime | None:
    """UTC time of the moment, in the future; None with the trouble noted.

    With `begins`, a day that has begun is what is left of it.
    """
    if moment.part and not begins:
        hours = PARTS[moment.part]
        day = moment.day.on.isoformat() if moment.day else "today"
        words = reading.words(span)
        lead = words.split()[0] if words.split() else "by"
        choices = reading.instead(span, *(f"{lead} {day} {hour:02}:00" for hour in hours))
        reading.trouble("which_half", f"At what time of the {moment.part}?", span, choices)
        return None
    try:
        found = _time_of(reading, moment, after or reading.now, end_of_day=end_of_day)
    except NoSuchTime as error:
        reading.trouble("no_such_time", str(error), span)
        return None
    if begins and not moment.has_time:
        last = moment.days[1] - ONE_DAY if moment.days else _date_of(moment, reading)
        left = day_bounds(last, reading.zone)[1] > reading.now
        found = max(found, reading.now) if left else found
    if found < reading.now or (found == reading.now and not begins):
        choices = []
        if moment.clock and moment.day and moment.day.on == reading.today:
            lead = "" if begins else "by "
            choices = reading.instead(span, f"{lead}tomorrow {moment.clock.time:%H:%M}")
        reading.trouble("window_past", "That time is over.", span, choices)
        return None
    return found


def _time_of(reading: Reading, moment: Moment, after: datetime, *, end_of_day: bool) -> datetime:
    """The first such time after `after`, where the words leave a choice of days."""
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


def _date_of(moment: Moment, reading: Reading | None = None) -> date:
    if moment.day is not None:
        return moment.day.on
    if moment.fixed is not None:
        return moment.fixed.date()
    return reading.today if reading else date.min


def _day_words(day: Day | None) -> str:
    return f"on {day.on:%a %d %b}" if day else ""


def _next_five(now: datetime) -> datetime:
    """The next full five minutes that leave one to press the button."""
    seconds = int((now + _MINUTE).timestamp())
    return datetime.fromtimestamp(-(-seconds // _FIVE_MINUTES) * _FIVE_MINUTES, tz=now.tzinfo)
