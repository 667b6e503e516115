"""Peak hours as people write them: `Mon-Fri 8-20, Sat 10-14`. Pure."""

import re
from collections.abc import Iterator
from itertools import groupby
from zoneinfo import ZoneInfo

from billing.rates import NO_PEAKS, PeakHours, peak_hours
from tenants.platform.errors import Refused, invalid
from tenants.platform.words import refusal_text

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PART = re.compile(
    r"(?P<first>[A-Za-z]{3})(?:\s*-\s*(?P<last>[A-Za-z]{3}))?"
    r"\s+(?P<begins>[0-9]{1,2})(?::00)?\s*-\s*(?P<ends>[0-9]{1,2})(?::00)?"
)


def peak_hours_read(text: str, zone: str, param: str = "peak_hours") -> PeakHours:
    """The peak hours of a text, by the clocks of a time zone; none for an empty text.

    Raises:
        Refused: `bad_peak_hours` at `param`, or `bad_zone`.
    """
    if not text.strip():
        return NO_PEAKS
    zone_check(zone)
    entries = [entry for part in re.split("[,;]", text) for entry in _entries(part, param)]
    return peak_hours(zone, entries)


def zone_check(zone: str) -> None:
    """Checks the name of a time zone.

    Raises:
        Refused: `bad_zone`.
    """
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        # An unknown zone, a path, or the name of a folder of zones.
        raise _bad_zone() from None


def peak_hours_text(hours: PeakHours) -> str:
    """`Mon-Fri 8-20, Sat 10-14`; empty without peak hours."""
    by_times = sorted((first, ends, day) for day, first, ends in hours.weekly)
    parts = []
    for (first, ends), group in groupby(by_times, key=lambda each: each[:2]):
        for begins, last in _runs([day for _, _, day in group]):
            days = DAYS[begins] if begins == last else f"{DAYS[begins]}-{DAYS[last]}"
            parts.append((begins, first, f"{days} {first}-{ends}"))
    return ", ".join(text for _, _, text in sorted(parts))


def peak_words(hours: PeakHours) -> str:
    """`Mon-Fri 8-20 Europe/Berlin`; empty without peak hours."""
    return f"{peak_hours_text(hours)} {hours.zone}" if hours.weekly else ""


def entry_check(day: int, first: int, ends: int) -> bool:
    """Whether an entry is a part of a day of the week."""
    return 0 <= day < len(DAYS) and 0 <= first < ends <= 24


def _entries(part: str, param: str) -> Iterator[tuple[int, int, int]]:
    found = _PART.fullmatch(part.strip())
    names = [name.lower() for name in DAYS]
    first = found["first"].lower() if found else ""
    last = (found["last"] or first).lower() if found else ""
    if not found or first not in names or last not in names:
        raise _bad_hours(param)
    begins, ends = int(found["begins"]), int(found["ends"])
    count = (names.index(last) - names.index(first)) % len(DAYS) + 1
    for number in range(count):
        day = (names.index(first) + number) % len(DAYS)
        if not entry_check(day, begins, ends):
            raise _bad_hours(param)
        yield day, begins, ends


def _runs(days: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of days that follow each other."""
    begins = last = days[0]
    for day in days[1:]:
        if day != last + 1:
            yield begins, last
            begins = day
        last = day
    yield begins, last


def _bad_hours(param: str) -> Refused:
    return invalid("bad_peak_hours", refusal_text("bad_peak_hours"), param)


def _bad_zone() -> Refused:
    return invalid("bad_zone", refusal_text("bad_zone"), "peak_zone")
