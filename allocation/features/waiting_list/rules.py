"""Rules of the waiting list: how many offers stay unanswered, and when none is made."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MOST_EXPIRED = 2
"""Offers in a row without an answer, after which an entry gets no more."""
NIGHT_FROM, NIGHT_UNTIL = 22, 7
"""Hours, in the zone of the request, in which no offer is made."""


def is_night(now: datetime, zone: str) -> bool:
    """Whether it is night in this zone."""
    hour = now.astimezone(ZoneInfo(zone)).hour
    return hour >= NIGHT_FROM or hour < NIGHT_UNTIL


def night_ends(now: datetime, zone: str) -> datetime:
    """Returns the next end of a night in this zone."""
    local = now.astimezone(ZoneInfo(zone))
    morning = local.replace(hour=NIGHT_UNTIL, minute=0, second=0, microsecond=0)
    return morning if morning > local else morning + timedelta(days=1)


Window = tuple[datetime, datetime]
"""[from, until)."""


def windows_without(windows: Sequence[Window], taken: Window, length: timedelta) -> list[Window]:
    """Returns the windows without a time, as far as they still hold the length."""
    since, until = taken
    left = [
        part
        for start, end in windows
        for part in ((start, min(end, since)), (max(start, until), end))
        if start < until and since < end
    ]
    others = [each for each in windows if not (each[0] < until and since < each[1])]
    return sorted(each for each in (*left, *others) if each[1] - each[0] >= length)
