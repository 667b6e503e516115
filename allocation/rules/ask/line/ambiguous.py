"""Problems with numbers and times that can mean several things, or nothing that is to come."""

import re
from contextlib import suppress
from datetime import date, timedelta

from lark import Token

from allocation.rules.ask.words.numbers import length_of, number_of
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD, Repair
from allocation.rules.ask.words.reading import Reading, Span, span_of
from allocation.rules.ask.words.times import day_read, days_of_month
from tenants.platform.coded import Coded, coded

_ONE_DAY = timedelta(days=1)
# Larger bare numbers can be minutes.
_MINUTES_FROM = 10


def refuse(reading: Reading, span: Span, why: Coded, repairs: list[Repair]) -> None:
    """Adds a problem for words without a meaning."""
    reading.add_problem(NOT_UNDERSTOOD, why, span, repairs)


def refuse_fraction(reading: Reading, token: Token) -> None:
    """`1.5 h100`: not a whole number of GPUs."""
    span = span_of(token)
    token = Token(token.type, token.replace(",", "."), start_pos=token.start_pos, end_pos=token.end_pos)
    whole = int(token.partition(".")[0])
    choices = [str(number) for number in (whole, whole + 1) if number]
    dates = _dates_of(reading, token) if "count" in reading.values else []
    why = coded("ask_fraction", token=token, choices=" or ".join(choices))
    if "count" in reading.values:
        first, last = [*dates, f"{token} h", "another length"][:2]
        why = coded("ask_one_or_other", first=first, last=last)
    others = [*dates, f"{token}h"]
    hours, _, minutes = token.partition(".")
    if int(hours) < 24 and len(minutes) == 2 and int(minutes) < 60:
        others.append(f"{hours}:{minutes}")
    refuse(reading, span, why, reading.replacements(span, *choices, *others))


def _dates_of(reading: Reading, token: str) -> list[str]:
    """`3.12` as a day and a month, which German dates have without their last dot, too."""
    found = day_read(f"{token}.", reading.today)
    return [found.on.isoformat()] if found else []


def refuse_bare_number(reading: Reading, token: Token) -> None:
    """A number without a unit."""
    span = span_of(token)
    repairs = _minutes_after(reading, token)
    span = reading.with_noise(span)
    if "count" not in reading.values:
        repairs.append(Repair(f"{token} GPUs", reading.replaced(span, f"x{token}")))
    if "duration" not in reading.values:
        if token.isdecimal() and int(token) >= _MINUTES_FROM:
            repairs.append(Repair(f"{token} minutes", reading.replaced(span, f"{token}m")))
        repairs.append(Repair(f"{token} hours", reading.replaced(span, f"{token}h")))
    if token.isdecimal() and int(token) < 24:
        repairs.append(Repair(f"at {token}:00", reading.replaced(span, f"at {int(token):02}:00")))
    refuse(reading, span_of(token), coded("ask_bare_number", token=token), repairs)


def _minutes_after(reading: Reading, token: Token) -> list[Repair]:
    """`2h 30`: the line with `2h30m`."""
    start, end = reading.spans.get("duration", (0, 0))
    begin, last = span_of(token)
    seconds = reading.values.get("duration")
    is_next = 0 < end <= begin <= end + 1 and isinstance(seconds, int) and seconds % 3_600 == 0
    if not is_next or not token.isdecimal() or int(token) >= 60:
        return []
    both = f"{reading.words((start, end))} {int(token)}m"
    return [Repair(both, reading.replaced((start, last), both))]


def refuse_gpu_hours(reading: Reading, token: Token) -> None:
    """`5 gpu hours`: one GPU for five hours, five for one, or by what else is said."""
    span, hours = span_of(token), number_of(re.split(r"\s*gpu", token)[0])
    count, seconds = (reading.values.get(name) for name in ("count", "duration"))
    choices = [f"{hours}h", f"{hours} gpus 1h"]
    if isinstance(count, int) and seconds is None:
        choices = [f"{hours * 60 // count}m" if hours % count else f"{hours // count}h"]
    elif isinstance(seconds, int) and count is None:
        choices = [] if hours * 3600 % seconds else [f"{hours * 3600 // seconds} gpus"]
    elif count is not None:
        choices = [""]
    why = coded("ask_gpu_hours", hours=hours)
    refuse(reading, span, why, reading.replacements(span, *choices))


def refuse_hour_h(reading: Reading, token: Token) -> None:
    """`from 19h`, which is a duration everywhere else."""
    hour, _, minute = token.partition("h")
    clock = f"{int(hour):02}:{minute or '00'}"
    why = coded("ask_hour_h", token=token, clock=clock)
    refuse(reading, span_of(token), why, reading.replacements(span_of(token), clock))


def refuse_comma(reading: Reading, token: Token) -> None:
    """`1,5h`: a decimal comma, or a number of GPUs and a duration."""
    whole, _, rest = token.partition(",")
    choices = [f"{whole}.{rest}", *([] if "count" in reading.values else [f"x{whole} {rest}"])]
    why = coded("ask_one_or_other", first=choices[0], last=f"{whole}, {rest}")
    refuse(reading, span_of(token), why, reading.replacements(span_of(token), *choices))


def refuse_week_of_month(reading: Reading, token: Token) -> None:
    """`in the first week of february`: seven days, or the week from Monday to Sunday."""
    days = days_of_month(token, reading.today)
    if days is None:
        return
    seven = timedelta(days=7)
    is_last = "last" in token
    first, inside = (days[1] - seven, days[1] - _ONE_DAY) if is_last else (days[0], days[0])
    monday = inside - timedelta(days=inside.weekday())
    choices = [f"from {each} until {each + seven - _ONE_DAY}" for each in dict.fromkeys((first, monday))]
    reading.add_problem(
        "no_end", coded("ask_last_day"), span_of(token), reading.replacements(span_of(token), *choices)
    )


def refuse_clock_words(reading: Reading, token: Token) -> None:
    """`half past two`."""
    hour = number_of(re.sub(r"^.*(?:past|to)\s+", "", token)) % 12
    minutes = hour * 60 + (30 if "half" in token else 15 if "past" in token else -15)
    clocks = [f"{each // 60 % 24:02}:{each % 60:02}" for each in (minutes + 720, minutes)]
    refuse(
        reading,
        span_of(token),
        coded("ask_one_or_other", first=clocks[0], last=clocks[1]),
        reading.replacements(span_of(token), *clocks),
    )


def refuse_money(reading: Reading, token: Token) -> None:
    """`max 20 euro`: each option has its price, and the line limits none."""
    span = span_of(token)
    without = Repair(f"without “{reading.words(span)}”", reading.replaced(span, ""))
    cheapest = [] if "cheapest" in reading.values else reading.replacements(span, "cheapest")
    refuse(reading, span, coded("ask_money"), [*cheapest, without])


def refuse_week_number(reading: Reading, token: Token) -> None:
    """`week 50`: at some time of it."""
    span, number = span_of(token), int(re.findall(r"\d+", token)[0])
    repairs = []
    with suppress(ValueError):
        monday = date.fromisocalendar(reading.today.year, number, 1)
        if monday + _ONE_DAY * 6 < reading.today:
            monday = date.fromisocalendar(reading.today.year + 1, number, 1)
        repairs = reading.replacements(span, f"from {monday} by {monday + _ONE_DAY * 6}")
    refuse(reading, span, coded("ask_first_day"), repairs)


def refuse_range(reading: Reading, token: Token) -> None:
    """`2-4 h100`, `4-8h`: a booking needs one number."""
    first, last = re.split(r"\s*(?:-+|or|to|and|/|\|)\s*", token.removeprefix("between").strip(), maxsplit=1)
    unit = re.sub(r"^[\d.\s]+", "", last) if first.isdecimal() else ""
    choices = (f"{first}{' ' * (len(unit) > 1)}{unit}", last)
    refuse(
        reading,
        span_of(token),
        coded("ask_one_or_other", first=first, last=last),
        reading.replacements(span_of(token), *choices),
    )


def refuse_past(reading: Reading, token: Token) -> None:
    """`yesterday`, `last monday`: the next such time."""
    span, words = span_of(token), token.lower().split()
    meant = {"night": ("tonight",), "week": ("this week", "next week")}
    following = meant.get(words[-1], words[1:]) if len(words) > 1 else ("today", "tomorrow")
    why = coded("ask_time_past")
    reading.add_problem("window_past", why, span, reading.replacements(span, *following))


def refuse_clock_or_length(reading: Reading, token: Token) -> None:
    """`02:30 hours`, `6:00:00`: a length, or a time of day."""
    hour, minute, *_ = re.findall(r"\d+", token)
    clock = f"{hour}:{minute}"
    choices = (f"{int(hour)}h{minute}m", f"at {clock}")
    why = coded("ask_one_or_other", first=choices[0], last=choices[1])
    refuse(reading, span_of(token), why, reading.replacements(span_of(token), *choices))


def refuse_within(reading: Reading, token: Token) -> None:
    """`within 24 hours`: the latest end, the length, or the start."""
    span = span_of(token)
    length = re.sub(r"^.*?(?=\d|\bhalf|\ban?\b|\b(?:one|two|three|four|five|six)\b)", "", token)
    latest = reading.now.astimezone(reading.zone) + timedelta(seconds=length_of(length) or 0)
    by = Repair(f"by {latest:%a %d %b %H:%M}", reading.replaced(span, f"by {latest:%Y-%m-%d %H:%M}"))
    repairs = [by, *reading.replacements(span, f"in {length}")]
    if "duration" not in reading.values:
        repairs = reading.replacements(span, f"for {length}", f"in {length}", "asap")
    why = coded("ask_within")
    refuse(reading, span, why, repairs)
