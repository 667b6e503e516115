"""The time window of a timeline, with its columns and labels."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from allocation.queries.bookings.timelines.rows import Window

HALF_HOUR = timedelta(minutes=30)
LABEL_EDGE = 3.0
"""Distance from the left in percent within which a label is placed right of its line."""
NEAR = (7.5, 11.0)
"""Minimum distance in percent between the current-time flag and a label, inside and at the edge."""
DAY_ROOM = 17.0
"""Width in percent for a day's full name."""


@dataclass(frozen=True, slots=True)
class Zoom:
    """A zoom level. `tick` is the hours between labels, `lead` the time shown before now."""

    key: str
    label: str
    length: timedelta
    columns: int
    tick: int
    lead: timedelta


ZOOMS = {
    zoom.key: zoom
    for zoom in (
        Zoom("6h", "6 h", timedelta(hours=6), 12, 1, timedelta(hours=1)),
        Zoom("24h", "Day", timedelta(hours=24), 24, 3, timedelta(hours=3)),
        Zoom("3d", "3 days", timedelta(days=3), 24, 12, timedelta(hours=6)),
        Zoom("2w", "2 weeks", timedelta(days=14), 28, 24, timedelta(hours=12)),
    )
}
DEFAULT_ZOOM = "24h"


@dataclass(frozen=True, slots=True)
class Span:
    """A window at a zoom, drawn in a zone."""

    zoom: Zoom
    window: Window
    zone: tzinfo

    def percent(self, moment: datetime) -> float:
        """Returns the position of the instant from 0 to 100, clipped at the edges."""
        share = (moment - self.window.starts) / self.window.length * 100
        return min(100.0, max(0.0, share))

    def moment(self, percent: float) -> datetime:
        """Returns the instant at a position in percent, rounded to the minute."""
        at = self.window.starts + self.window.length * (percent / 100)
        return (at + timedelta(seconds=30)).replace(second=0, microsecond=0)

    def columns(self) -> list[tuple[datetime, datetime]]:
        """Returns equal windows for the row of free counts."""
        step = self.window.length / self.zoom.columns
        starts = self.window.starts
        return [(starts + step * i, starts + step * (i + 1)) for i in range(self.zoom.columns)]

    def ticks(self) -> list[tuple[float, str]]:
        """Returns position and label of each line.

        Steps of half an hour handle unusual zones and DST.
        """
        found, at = [], self.window.starts
        while at < self.window.ends:
            local = at.astimezone(self.zone)
            if local.minute == 0 and local.hour % self.zoom.tick == 0:
                found.append((self.percent(at), f"{local:%H:%M}"))
            at += HALF_HOUR
        return found

    def clocks(self, now: datetime) -> list[tuple[float, str]]:
        """Returns the ticks with a time label: none in day view, and none under the current-time
        flag."""
        if self.shows_days_only:
            return []
        window = self.window
        flag = self.percent(now) if window.starts <= now < window.ends else None
        return [
            each for each in self.ticks() if flag is None or abs(each[0] - flag) > NEAR[each[0] < LABEL_EDGE]
        ]

    @property
    def shows_days_only(self) -> bool:
        """Returns whether each tick is a day."""
        return self.zoom.tick == 24

    def days(self) -> list[tuple[float, str, str]]:
        """Returns position, weekday and date of each day in the window."""
        found = []
        local = self.window.starts.astimezone(self.zone)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        at = midnight.astimezone(UTC)
        while at < self.window.ends:
            date = f"{midnight.day}" if self.shows_days_only else f"{midnight.day} {midnight:%b}"
            found.append((self.percent(at), f"{midnight:%a}", date))
            midnight += timedelta(days=1)
            at = midnight.astimezone(UTC)
        # A day cut off at either end may be too narrow for its name.
        room = 100 / 14 if self.shows_days_only else DAY_ROOM
        named = found[1:] if len(found) > 1 and found[1][0] < room - 0.5 else found
        return [each for each in named if each[0] <= 100 - room + 0.1]

    @property
    def words(self) -> str:
        """Returns the days shown: `22 Nov – 6 Dec`."""
        first = self.window.starts.astimezone(self.zone)
        last = (self.window.ends - timedelta(seconds=1)).astimezone(self.zone)
        days = list(dict.fromkeys(f"{each.day} {each:%b}" for each in (first, last)))
        return " – ".join(days)


def span_read(*, key: str, since: str, zone: tzinfo, now: datetime) -> Span:
    """Returns the span of an address; invalid values give today at the day's zoom.

    `since` is an ISO time, in the reader's zone unless it has an offset.
    """
    zoom = ZOOMS.get(key, ZOOMS[DEFAULT_ZOOM])
    starts = since_read(since, zone) or _floor(now - zoom.lead, zone)
    return Span(zoom, Window(starts, starts + zoom.length), zone)


def since_text(moment: datetime, zone: tzinfo) -> str:
    """Returns the instant in the format of the address."""
    return f"{moment.astimezone(zone):%Y-%m-%dT%H:%M}"


def since_read(since: str, zone: tzinfo) -> datetime | None:
    """Returns the instant of an address; None if it has none that is valid."""
    try:
        found = datetime.fromisoformat(since)
        if found.tzinfo is None:
            found = found.replace(tzinfo=zone)
        found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found if 2000 <= found.year < 2200 else None


def _floor(moment: datetime, zone: tzinfo) -> datetime:
    local = moment.astimezone(zone)
    return (moment - timedelta(minutes=local.minute, seconds=local.second)).replace(microsecond=0)
