"""The parts of a request that are about time: days, times, durations and windows."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from itertools import product

from lark import Token, Tree

from allocation.errors import AskError
from allocation.rules.ask.when.instants import day_words
from allocation.rules.ask.when.moment import (
    NOON,
    ONE_MINUTE,
    WEEK,
    Moment,
    add_ambiguous_days,
    days_of,
    moment_of,
)
from allocation.rules.ask.words.document import LONGEST_SAID, MAX_DURATION_SECONDS, duration_of
from allocation.rules.ask.words.numbers import length_of
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD, Repair
from allocation.rules.ask.words.reading import Reading, Span, span_of
from allocation.rules.ask.words.times import UNTIL, UNTIL_INCLUDING, Clock, clock_read, duration_words
from tenants.platform.coded import coded

_HOURS_TO = re.compile(
    rf"\s*(?:--?>?|->)\s*|\s+(?:{UNTIL_INCLUDING}|{UNTIL}|to|and)\s+(?:(?:at(?=\s)|@)\s*)*"
)


@dataclass(slots=True)
class When:
    """The parts about time, each at most once. If the line repeats, days are those of the first and
    the last date, and a length of days can be that of the series; all `lengths` are kept."""

    repeats: bool = False
    lengths: list[tuple[Token, Span]] = field(default_factory=list)
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
    """Adds one part of the grammar that is about time."""
    tokens = list(tree.scan_values(lambda value: isinstance(value, Token)))
    span = span_of(*tokens)
    name = str(tree.data)
    kind = _KINDS.get(name, name)
    if when.repeats and name in ("window", "between") and _are_days(tree):
        kind, name = "days", "days"
    elif when.repeats and name == "window" and _is_part(tree):
        kind, name = "until", "part_until"
    if kind in when.seen and kind not in ("plain", "length"):
        if not _each_day(reading, when, span):
            reading.add_duplicate(kind, span, when.seen[kind])
        return
    when.seen.setdefault(kind, span)
    trees = [child for child in tree.children if isinstance(child, Tree)]
    moments = [moment_of(reading, each) for each in trees]
    if any(moment.is_wrong for moment in moments):
        return
    if when.repeats and kind == "length":
        when.lengths.append((tokens[0], span))
        return
    _ADDERS[name](reading, when, tokens, moments)


_DAYS = frozenset({"DAY", "SPAN", "MONTH", "DAYEND"})


def _are_days(tree: Tree[Token]) -> bool:
    """Whether a part has days only: `from 1 feb until 6 feb`. The last can have a time."""
    moments = [each for each in tree.children if isinstance(each, Tree) and each.data == "moment"]
    kinds = [{token.type for token in each.children if isinstance(token, Token)} for each in moments]
    return len(kinds) == 2 and kinds[0] <= _DAYS and (kinds[1] <= _DAYS or kinds[1] == {"INSTANT"})


def _is_part(tree: Tree[Token]) -> bool:
    """Whether a part begins with a part of the day: `every evening until friday`."""
    moments = [each for each in tree.children if isinstance(each, Tree) and each.data == "moment"]
    return {token.type for token in moments[0].children if isinstance(token, Token)} == {"PART"}


def _each_day(reading: Reading, when: When, span: Span) -> bool:
    """Whether the line is like `mon to fri 9-17`. Adds a problem with the recurrence as repair."""
    window = when.window
    if window is None or any(each.has_time or not each.day for each in window):
        return False
    first, last = (each.day.on for each in window if each.day)
    last += WEEK * (last < first)
    text = Reading.replaced(reading, span, "")
    both = " ".join(reading.words(when.window_span).split())
    hours = _hours_meant(reading, span)
    lines = [text.replace(both, f"{first} {each} every day until {last}") for each in hours]
    repairs = [Repair(f"every day until {last}", each) for each in lines]
    reading.add_problem("said_twice", coded("ask_every_day"), span, repairs)
    return True


def _hours_meant(reading: Reading, span: Span) -> list[str]:
    """The hours of a span as typed; of `9-5` those that it can mean."""
    text = reading.words(span)
    ends = _HOURS_TO.split(re.sub(r"^(?:(?:at|@|from)\s+)+", "", text.lower()), maxsplit=1)
    clocks = [clock_read(each) for each in ends]
    if len(clocks) != 2 or clocks[0] is None or clocks[1] is None:
        return [text]
    if not (clocks[0].is_ambiguous_afternoon or clocks[1].is_ambiguous_afternoon):
        return [text]
    pairs = sorted(product(_either(clocks[0]), _either(clocks[1])), key=lambda pair: _hours_between(*pair))
    shortest = [pair for pair in pairs if pair[0] < pair[1]][:2]
    return [f"{begin:%H:%M}-{end:%H:%M}" for begin, end in shortest] or [text]


_KINDS = {
    "duration": "length",
    "coming": "length",
    "hours": "window",
    "begin": "earliest",
    "between": "window",
    "whole_day": "whole",
    "whole_span": "whole",
}


def _add_length(reading: Reading, _: When, tokens: Sequence[Token], __: Sequence[Moment]) -> None:
    length_read(reading, tokens[0], span_of(*tokens))


def length_words(token: str) -> str:
    """The words of a length without those before it: `2 weeks` of `for the next 2 weeks`."""
    return re.sub(r"^(?:(?:for|over|during|in|within)\s+)?(?:(?:the\s+)?(?:next|coming)\s+)?", "", token)


def length_read(reading: Reading, token: str, span: Span) -> None:
    """Sets the duration of the request."""
    text = re.sub(r"\s*,\s*", " ", length_words(token))
    if _is_half_said(reading, text, span):
        return
    if not _is_one_length(text):
        begin, rest = text.split(maxsplit=1)
        choices = [Repair(each, reading.replaced(span, each)) for each in (begin, rest)]
        reading.add_problem("said_twice", coded("ask_duration_twice"), span, choices)
        return
    seconds = sum(length_of(each) or 0 for each in re.split(r"\s+and\s+(?=\d|one|an?\s\w+$)", text))
    if " and a half" in text:
        seconds = length_of(text) or 0
    set_duration(reading, seconds, span)


def _is_half_said(reading: Reading, token: str, span: Span) -> bool:
    """Whether `2.30h` is a problem, which this adds: 30 minutes, or three tenths of an hour."""
    found = re.fullmatch(r"(\d{1,2})\.([0-5][05])\s*(?:hours?|hrs?|h)", token)
    if found is None or found[2] in ("00", "25", "50", "75"):
        return False
    hours, minutes = int(found[1]), int(found[2])
    of_decimals = minutes * 60 // 100
    choices = [f"{hours}h{each:02}m" for each in (minutes, of_decimals)]
    why = coded("ask_one_or_other", first=choices[0], last=choices[1])
    reading.add_problem(NOT_UNDERSTOOD, why, span, reading.replacements(span, *choices))
    return True


def _is_one_length(text: str) -> bool:
    """Whether the units get smaller: `1d 6h`, not `6h 8h`."""
    units = re.findall(r"\d\s*-?(w|d|h|m)", text)
    return units == sorted(set(units), key="wdhm".index)


def set_duration(reading: Reading, seconds: int, span: Span) -> bool:
    """Sets the duration. False after adding a problem if it is out of bounds."""
    try:
        reading.set_value("duration", duration_of(seconds), f"for {duration_words(seconds)}", span)
    except AskError as error:
        if MAX_DURATION_SECONDS < seconds <= LONGEST_SAID:
            reading.set_value("duration", seconds, f"for {duration_words(seconds)}", span)
        nearest = error.alternatives[0]["duration"]
        words = f"{nearest // 86_400}d" if nearest >= 86_400 else f"{nearest // 60}m"
        reading.add_problem(error.code, error.text, span, reading.replacements(span, words))
        return False
    return True


def _add_coming(reading: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]) -> None:
    _add_length(reading, when, tokens, moments)
    when.asap = span_of(*tokens)


def _add_plain(reading: Reading, when: When, _: Sequence[Token], moments: Sequence[Moment]) -> None:
    (moment,) = moments
    when.plain = moment if when.plain is None else _both(reading, when.plain, moment)


def _both(reading: Reading, one: Moment, other: Moment) -> Moment:
    """Combines a day and a time from different places of the line into one moment."""
    for name, word in (("day", "day"), ("clock", "time"), ("part", "part of the day")):
        if getattr(one, name) and getattr(other, name):
            reading.add_duplicate(word, other.span, one.span)
            return one
    if (one.days or one.fixed) and (other.days or other.fixed or other.day):
        reading.add_duplicate("day", other.span, one.span)
        return one
    kept, day_part = (other, one) if other.clock and not one.clock else (one, other)
    both = replace(
        kept,
        day=one.day or other.day,
        part=one.part or other.part,
        days=one.days or other.days,
        fixed=one.fixed or other.fixed,
        ends=one.ends or other.ends,
    )
    # The combined meaning is shown at the time. The day in another place shows its own meaning.
    reading.add_part("day", day_words(both.day) or "a part of that time", day_part.span)
    return both


def _add_hours(reading: Reading, when: When, tokens: Sequence[Token], _: Sequence[Moment]) -> None:
    """Adds `9-17`, `from 22:00 to 6:00`, `2-4pm`."""
    token = next(each for each in tokens if each.type == "HOURS")
    span = span_of(*tokens)
    text = re.sub(r"^(?:(?:at|@|from)\s+)+", "", token)
    first, last = _HOURS_TO.split(text, maxsplit=1)
    clocks = clock_read(first), clock_read(last)
    if None in clocks:
        reading.add_problem("no_such_time", coded("ask_no_such_clock"), span)
        return
    starts, ends = (Moment(span, clock=clock, clock_span=span) for clock in clocks)
    when.window, when.window_span = (starts, ends), span
    when.is_between = tokens[0].type == "BETWEEN"
    _halves(reading, when, first, last)


def _halves(reading: Reading, when: When, first: str, last: str) -> None:
    """Resolves `2-4pm` to one half of the day. Adds a problem for `9-5` and `2-4`."""
    if when.window is None:
        return
    starts, ends = when.window
    if starts.clock is None or ends.clock is None:
        return
    if re.search(r"[ap]\.?m", last) and starts.clock.is_twelve_hour:
        starts.clock = _latest_before(starts.clock, ends.clock)
        return
    if when.plain and when.plain.part:
        return
    is_long = _hours_between(starts.clock.time, ends.clock.time) > NOON
    if not (starts.clock.is_ambiguous_afternoon or (ends.clock.is_ambiguous_afternoon and is_long)):
        return
    pairs = [(begin, end) for begin in _either(starts.clock) for end in _either(ends.clock)]
    pairs.sort(key=lambda pair: _hours_between(*pair))
    lead = "between " if when.is_between else ""
    words = [f"{lead}{begin:%H:%M}-{end:%H:%M}" for begin, end in pairs[:2]]
    when.window = None
    reading.add_problem(
        "which_half",
        coded("ask_morning"),
        when.window_span,
        reading.replacements(when.window_span, *words),
    )


def _either(clock: Clock) -> list[time]:
    """The time as written, and the one twelve hours later if it is ambiguous."""
    later = [clock.time.replace(hour=clock.time.hour + 12)] if clock.is_ambiguous_afternoon else []
    return [clock.time, *later]


def _hours_between(begin: time, end: time) -> float:
    """The hours from `begin` to the next `end`."""
    minutes = (end.hour - begin.hour) * 60 + end.minute - begin.minute
    return (minutes % 1_440 or 1_440) / 60


def _latest_before(clock: Clock, end: Clock) -> Clock:
    """The later of the two times that `2` can mean, before `end`."""
    both = [time(clock.time.hour % 12 + add, clock.time.minute) for add in (0, 12)]
    before = [each for each in both if each < end.time] or both
    return Clock(before[-1])


def _add_window(reading: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]) -> None:
    when.window, when.window_span = (moments[0], moments[1]), span_of(*tokens)
    when.is_between = tokens[0].type == "BETWEEN"


def _add_days(reading: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]) -> None:
    """Adds the first and the last day of a series."""
    for kind in ("earliest", "until"):
        if kind in when.seen:
            reading.add_duplicate("day", span_of(*tokens), when.seen[kind])
            return
        when.seen[kind] = span_of(*tokens)
    begin, end = (tree_span(reading, each) for each in moments)
    when.earliest, when.lead = replace(moments[0], span=begin), str(tokens[0])
    when.until = replace(moments[1], span=(begin[1], end[1]))


def tree_span(reading: Reading, moment: Moment) -> Span:
    """The span of a moment, with the word before it."""
    lead = re.search(r"\S+\s+$", reading.text[: moment.span[0]])
    return (lead.start() if lead else moment.span[0]), moment.span[1]


def _add_between(reading: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]) -> None:
    if moments:
        _add_window(reading, when, tokens, moments)
    else:
        _add_hours(reading, when, tokens, moments)


def _add_earliest(_: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]) -> None:
    when.earliest = replace(moments[0], span=span_of(*tokens))
    when.lead = "start" if tokens[0].type == "START" else str(tokens[0])


def _add_until(_: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]) -> None:
    when.until = replace(moments[0], span=span_of(*tokens))


def _add_part_until(reading: Reading, when: When, _: Sequence[Token], moments: Sequence[Moment]) -> None:
    part, last = moments
    when.seen.setdefault("plain", part.span)
    when.plain = part if when.plain is None else _both(reading, when.plain, part)
    when.until = replace(last, span=(part.span[1], last.span[1]))


def _add_deadline(_: Reading, when: When, tokens: Sequence[Token], moments: Sequence[Moment]) -> None:
    when.deadline = replace(moments[0], span=span_of(*tokens))
    when.is_before = tokens[0].endswith("before")


def _add_asap(_: Reading, when: When, tokens: Sequence[Token], __: Sequence[Moment]) -> None:
    when.asap = span_of(*tokens)


def _add_anytime(reading: Reading, _: When, tokens: Sequence[Token], __: Sequence[Moment]) -> None:
    reading.add_part("anytime", "at any time that fits", span_of(*tokens))


def _add_in_time(reading: Reading, when: When, tokens: Sequence[Token], _: Sequence[Moment]) -> None:
    text = re.sub(r"^in\s+|\s+from\s+now$", "", tokens[0])
    starts = reading.now + timedelta(seconds=length_of(text) or 0)
    whole = starts.replace(second=0, microsecond=0)
    when.in_time = (whole if whole == starts else whole + ONE_MINUTE, span_of(*tokens))


def _add_whole(reading: Reading, when: When, tokens: Sequence[Token], _: Sequence[Moment]) -> None:
    when.whole = span_of(*tokens)
    if tokens[0].type == "WHOLESPAN":
        found = days_of(tokens[0], reading.today)
        if found is None or isinstance(found, list):
            add_ambiguous_days(reading, when.whole, found)
            when.whole = None
        else:
            moment = Moment(when.whole, days=found)
            when.plain = _both(reading, when.plain, moment) if when.plain else moment


def _add_overnight(_: Reading, when: When, tokens: Sequence[Token], __: Sequence[Moment]) -> None:
    when.overnight = span_of(*tokens)


_ADDERS: dict[str, Callable[[Reading, When, Sequence[Token], Sequence[Moment]], None]] = {
    "duration": _add_length,
    "coming": _add_coming,
    "plain": _add_plain,
    "hours": _add_hours,
    "window": _add_window,
    "between": _add_between,
    "days": _add_days,
    "earliest": _add_earliest,
    "begin": _add_earliest,
    "until": _add_until,
    "deadline": _add_deadline,
    "asap": _add_asap,
    "anytime": _add_anytime,
    "in_time": _add_in_time,
    "whole_day": _add_whole,
    "whole_span": _add_whole,
    "overnight": _add_overnight,
    "part_until": _add_part_until,
}


WHEN_PARTS = frozenset(_ADDERS)
