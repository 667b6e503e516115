"""Days and times of day in words, in the requester's time zone: `fri`, `27 nov`, `2pm`."""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from allocation.rules.ask.words.numbers import WORD_NUMBER, number_of
from tenants.platform.coded import CodedError

UNTIL = (
    r"(?:and\s+)?(?:until|till|'?til|thru|through|(?:end|finish)(?:s|ing|es)?"
    r"(?:\s+(?:at|on))?)"
)
"""Words before an end."""
UNTIL_INCLUDING = r"(?:and\s+)?(?:up\s+)?(?:until|till|'?til|thru|through|to)\s+(?:and\s+)?including"
WEEKDAY_WORDS = {
    word: number
    for number, day in enumerate(
        ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    )
    for word in (day, day[:3])
} | {"tues": 1, "wednes": 2, "weds": 2, "thurs": 3, "thur": 3}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAY = (
    r"(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:s|nes(?:day)?)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|"
    r"sat(?:urday)?|sun(?:day)?)"
)
WORKDAY = r"(?:weekday|workday|working\s+day|business\s+day)"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_NTH = r"(?:st|nd|rd|th)"
_YEAR = r"(?:,?\s+2[01]\d\d)?"
DATE = (
    r"\d{4}-\d{2}-\d{2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}\.\s?\d{1,2}\.(?:\s?2[01]\d\d)?|"
    r"(?!(?:24/7|1/[2348]|2/3|3/[48])(?![/\d]))\d{1,2}/\d{1,2}(?:/2[01]\d\d)?"
)
MONTH_DATE = (
    rf"(?:the\s+)?\d{{1,2}}{_NTH}?\.?\s+(?:of\s+)?{_MONTH}\.?{_YEAR}|"
    rf"{_MONTH}\.?\s+(?:the\s+)?\d{{1,2}}{_NTH}?{_YEAR}(?!\s*(?:hours?|hrs?|days?|weeks?|min(?:ute)?s?)\b)"
)
ORDINAL_DAY = rf"(?:the\s+)?\d{{1,2}}{_NTH}"
_HALVES = r"(?:am|pm|a\.m\.?|p\.m\.?)"
CLOCK = (
    rf"\d{{1,2}}(?:[:.]\d{{2}})?\s*{_HALVES}|\d{{1,2}}:\d{{2}}|\d{{1,2}}\s*o'?\s?clock|"
    r"(?:12\s+)?noon|midday|(?:12\s+)?midnight"
)
INSTANT = r"\d{4}-\d{2}-\d{2}t\d{2}:\d{2}(?::\d{2})?(?:z|[+-]\d{2}:\d{2})?"
_CLOCK = re.compile(rf"(\d{{1,2}})(?:[:.](\d{{2}}))?\s*({_HALVES}|o'?\s?clock)?")
_MILITARY = re.compile(r"([01]\d|2[0-3])([0-5]\d)")
_DAY_MONTH = re.compile(rf"(\d{{1,2}}){_NTH}?\.?\s+(?:of\s+)?([a-z]{{3}})[a-z]*\.?(?:,?\s+(\d{{4}}))?")
_MONTH_DAY = re.compile(rf"([a-z]{{3}})[a-z]*\.?\s+(?:the\s+)?(\d{{1,2}}){_NTH}?(?:,?\s+(\d{{4}}))?")
_DOTTED = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.(?:\s?(\d{4}))?")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})(?:/(\d{4}))?")
_ORDINAL = re.compile(rf"(\d{{1,2}}){_NTH}")
_INSTANT = re.compile(INSTANT)
MONTH_NAMED = rf"(?:{_MONTH}\.?(?:,?\s+2[01]\d\d)?)"
_OF_TIME = r"(?:(?:the|this|next|the\s+next)\s+)?(?:week|month|year)"
END_OF = rf"(?:the\s+)?(?:end|last\s+day)\s+of\s+(?:{_OF_TIME}|{MONTH_NAMED})"
_END_OF = re.compile(END_OF)
_IN_MONTH = re.compile(
    r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?(?:,?\s+(\d{4}))?$|"
    r"\b(?:(?:the\s+)?(this|next|coming)\s+|the\s+)?month$"
)
_MONTH_END = re.compile(r"(until|till|by|before|bis)\b(?:.*\b(mid|mitte|early|anfang)\b)?")
_FIRST_DATE, _LAST_DATE = date(2000, 1, 1), date(2199, 12, 31)
_WEEK = timedelta(days=7)
_LONG_OVER = timedelta(days=60)


class NoSuchTime(CodedError, ValueError):
    """A local time that does not exist on its day. The message names it."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day.

    `is_ambiguous_afternoon`: 1 to 6 o'clock without am, pm or a leading zero, which often means the
    afternoon. `is_twelve_hour`: 1 to 12 o'clock in that form. `ends_day`: 24:00.
    """

    time: time
    is_ambiguous_afternoon: bool = False
    is_twelve_hour: bool = False
    is_midnight: bool = False
    ends_day: bool = False


@dataclass(frozen=True, slots=True)
class Day:
    """A day. An ambiguous one has several `choices`. A weekday without a date recurs every week. A date
    without a year that is over has its `next` one."""

    on: date
    is_weekday: bool = False
    choices: tuple[date, ...] = ()
    next: date | None = None


_NAMED_CLOCKS = {
    "noon": Clock(time(12)),
    "midday": Clock(time(12)),
    "midnight": Clock(time(0), is_midnight=True),
}


def wall(day: date, clock: time, zone: tzinfo) -> datetime:
    """The UTC time of a local time. Raises NoSuchTime if the local time does not exist."""
    local = datetime.combine(day, clock, tzinfo=zone)
    found = local.astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        later = f"{found.astimezone(zone):%H:%M}"
        missing = f"{clock:%H:%M}"
        raise NoSuchTime("ask_clock_skipped", clock=missing, later=later, day=day.isoformat(), zone=str(zone))
    return found


def length_at(starts: datetime, usual: datetime | None, seconds: int, ends_in: str | None) -> int:
    """The seconds of a window from another start. Where its end was named in a time zone, it ends at the
    same local time as the one from `usual`, also where clocks change, if both begin at the same one."""
    if usual is None or ends_in is None:
        return seconds
    zone = ZoneInfo(ends_in)
    walls = (usual, usual + timedelta(seconds=seconds), starts)
    begin, last, other = (each.astimezone(zone).replace(tzinfo=None, fold=0) for each in walls)
    if begin.time() != other.time():
        return seconds
    ends = (other + (last - begin)).replace(tzinfo=zone).astimezone(UTC)
    found = int((ends - starts).total_seconds())
    return found if found > 0 else seconds


def day_bounds(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The start of the day and of the next day, in UTC."""
    begins = datetime.combine(day, time(0), tzinfo=zone).astimezone(UTC)
    ends = datetime.combine(day + timedelta(days=1), time(0), tzinfo=zone).astimezone(UTC)
    return begins, ends


def duration_words(seconds: int) -> str:
    """A duration for people: `1 d 2 h 30 min`."""
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts) or "0 s"


def clock_read(text: str) -> Clock | None:
    """The time of day in the text, or None."""
    text = re.sub(r"^(?:at|@)\s*", "", text.strip())
    named = _NAMED_CLOCKS.get(text.removeprefix("12").strip())
    military = _MILITARY.fullmatch(text)
    if named or military is None:
        return named or _on_the_clock(text)
    return Clock(time(int(military[1]), int(military[2])))


def _on_the_clock(text: str) -> Clock | None:
    found = _CLOCK.fullmatch(text)
    if not found:
        return None
    hour, minute, half = int(found[1]), int(found[2] or 0), (found[3] or "")[:1]
    if half in ("a", "p"):
        return _in_half(hour, minute, is_pm=half == "p")
    if (hour, minute) == (24, 0):
        return Clock(time(0), ends_day=True)
    if hour > 23 or minute > 59:
        return None
    is_plain = not found[1].startswith("0")
    return Clock(time(hour, minute), is_plain and 1 <= hour <= 6, is_plain and 1 <= hour <= 12)


def _in_half(hour: int, minute: int, *, is_pm: bool) -> Clock | None:
    if not 1 <= hour <= 12 or minute > 59:
        return None
    return Clock(time(hour % 12 + 12 * is_pm, minute))


def instant_read(text: str) -> datetime | None:
    """An ISO 8601 time, or None. It is aware if it has an offset."""
    text = re.sub(r"^(?:at|on|@)\s*", "", text.strip())
    if not _INSTANT.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return found if _FIRST_DATE <= found.date() <= _LAST_DATE else None


def day_read(text: str, today: date) -> Day | None:
    """The day in the text, or None if it does not exist."""
    text = " ".join(re.sub(r"^(?:on|at)\s+", "", text.strip()).split())
    end = _END_OF.fullmatch(text)
    if end:
        return Day(_last_of(end, today))
    ahead = 2 if text.endswith("after tomorrow") else _ahead(text)
    if ahead is not None:
        return Day(today + timedelta(days=ahead))
    named = _weekday(text, today)
    found = named or _date(text, today)
    if found is None or not _FIRST_DATE <= found.on <= _LAST_DATE:
        return None
    return found


def days_near(text: str, today: date) -> list[date]:
    """The days before and after one that does not exist: 30 Nov and 1 Dec of `31 november`."""
    for found in re.finditer(r"(?<!\d)(?:29|3[01])(?!\d)", text):
        for number in range(int(found[0]) - 1, 27, -1):
            near = day_read(f"{text[: found.start()]}{number}{text[found.end() :]}", today)
            # The 29th of February can be years away.
            if near and near.on.year <= today.year + 1:
                return [near.on, near.on + timedelta(days=1)]
    return []


def days_of_month(text: str, today: date) -> tuple[date, date] | None:
    """The days [first, last) of the month that the text names, or None."""
    found = _IN_MONTH.search(text)
    if found is None:
        return None
    if found[1]:
        month = MONTHS.index(found[1][:3]) + 1
        year = int(found[2]) if found[2] else today.year + (month < today.month)
    else:
        ahead = today.month - 1 + (found[3] in ("next", "coming"))
        year, month = today.year + ahead // 12, ahead % 12 + 1
    first = date(year, month, 1)
    return first, first + timedelta(days=monthrange(year, month)[1])


def month_words(text: str, today: date) -> Iterator[str]:
    """Yields the days of the month that a text names, or the end that `until late january` can mean."""
    month, end = days_of_month(text, today), _MONTH_END.match(text)
    if month is None:
        return
    first, last = month[0], month[1] - timedelta(days=1)
    if end is None:
        yield f"from {first} by {last}"
    elif end[2] is None:
        yield f"{end[1]} {last}"
    elif end[2] in ("mid", "mitte"):
        yield f"{end[1]} {first + timedelta(days=14)}"


def _last_of(found: re.Match[str], today: date) -> date:
    """The last day of the month, week or year that the match names."""
    month = days_of_month(found[0], today)
    if month:
        return month[1] - timedelta(days=1)
    if "year" in found[0]:
        return date(today.year + ("next" in found[0]), 12, 31)
    week = today - timedelta(days=today.weekday()) + _WEEK * ("next" in found[0])
    return week + timedelta(days=6)


def _ahead(text: str) -> int | None:
    """The number of days from today, or None."""
    if text in ("tomorrow", "tmrw", "tmr", "tmw", "tomo", "2morrow"):
        return 1
    if text == "today":
        return 0
    text = re.sub(r" from (?:now|today)$", "", text.removeprefix("in "))
    found = re.fullmatch(rf"(\d{{1,3}}|{WORD_NUMBER}|an?) (day|week)s?", text)
    return number_of(found[1]) * (7 if found[2] == "week" else 1) if found else None


def _weekday(text: str, today: date) -> Day | None:
    """A weekday. `next fri` is ambiguous if a Friday comes before next week."""
    week_later = re.fullmatch(r"an? week from ([a-z]+)|([a-z]+) week", text)
    if week_later and (number := WEEKDAY_WORDS.get(week_later[1] or week_later[2])) is not None:
        return Day(today + timedelta(days=(number - today.weekday()) % 7) + _WEEK)
    found = re.fullmatch(r"(?:the )?(?:(next|this|coming|this coming) )?([a-z]+)(?: (next|this) week)?", text)
    weekday = WEEKDAY_WORDS.get(found[2]) if found else None
    if found is None or weekday is None:
        return None
    coming = today + timedelta(days=(weekday - today.weekday()) % 7)
    in_week = today - timedelta(days=today.weekday()) + timedelta(days=weekday)
    if found[3]:
        return Day(in_week + _WEEK * (found[3] == "next"))
    if found[1] != "next":
        return Day(coming, is_weekday=True)
    after_today = coming if coming > today else coming + _WEEK
    following = in_week + _WEEK
    choices = () if after_today == following else (after_today, following)
    return Day(after_today, choices=choices)


def _date(text: str, today: date) -> Day | None:
    text = text.removeprefix("the ")
    try:
        if re.fullmatch(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}", text):
            return Day(date(*map(int, re.split("[-/]", text))))
        return _date_in_words(text, today)
    except ValueError:
        return None


def _date_in_words(text: str, today: date) -> Day | None:
    slashed, ordinal = _SLASHED.fullmatch(text), _ORDINAL.fullmatch(text)
    if slashed:
        return _slashed(int(slashed[1]), int(slashed[2]), slashed[3], today)
    if ordinal:
        return _of_month(int(ordinal[1]), today)
    dotted, first = _DOTTED.fullmatch(text), _DAY_MONTH.fullmatch(text)
    if dotted:
        return _coming(int(dotted[1]), int(dotted[2]), dotted[3], today)
    found = first or _MONTH_DAY.fullmatch(text)
    if found is None:
        return None
    number, name = (found[1], found[2]) if first else (found[2], found[1])
    return _coming(int(number), MONTHS.index(name) + 1, found[3], today)


def _slashed(first: int, second: int, year: str | None, today: date) -> Day | None:
    """27/11 or 11/27. Ambiguous if both numbers can be the month."""
    found = []
    for day, month in ((first, second), (second, first)):
        if month <= 12:
            coming = _coming(day, month, year, today)
            found += [coming.on] if coming else []
    dates = tuple(dict.fromkeys(found))
    return Day(dates[0], choices=dates if len(dates) > 1 else ()) if dates else None


def _coming(day: int, month: int, year: str | None, today: date) -> Day | None:
    """The date in `year`, or else the next such date. One that is not long over is meant itself: nobody
    who says `27 nov` on the 28th means the next year."""
    dates = list(_dates(day, month, [int(year)] if year else range(today.year - 1, today.year + 9)))
    if year:
        return Day(dates[0]) if dates else None
    following = next((each for each in dates if each >= today), None)
    before = [each for each in dates if today - _LONG_OVER <= each < today]
    if before and following:
        return Day(before[-1], next=following)
    return Day(following) if following else None


def _dates(day: int, month: int, years: Iterable[int]) -> Iterator[date]:
    """Yields the date in each year that has it."""
    for year in years:
        with suppress(ValueError):
            yield date(year, month, day)


def _of_month(number: int, today: date) -> Day | None:
    """The next day with that number."""
    if not 1 <= number <= 31:
        return None
    day = today
    while day.day != number:
        day += timedelta(days=1)
    return Day(day)
