"""The stretch of time a timeline shows: read from the address, with its columns and labels."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from allocation.queries.timeline_rows import Window

HALF_HOUR = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Zoom:
    """One of the four zooms. `tick` is hours between labels, `lead` what is shown before now."""

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
        """Where the instant lies from left to right, 0 to 100, cut at the edges."""
        share = (moment - self.window.starts) / self.window.length * 100
        return min(100.0, max(0.0, share))

    def columns(self) -> list[tuple[datetime, datetime]]:
        """Equal stretches for the density row."""
        step = self.window.length / self.zoom.columns
        starts = self.window.starts
        return [(starts + step * i, starts + step * (i + 1)) for i in range(self.zoom.columns)]

    def ticks(self) -> list[tuple[float, str]]:
        """Place and clock of each label; walks half hours, so that odd zones and DST fit."""
        found, at = [], self.window.starts
        while at < self.window.ends:
            local = at.astimezone(self.zone)
            if local.minute == 0 and local.hour % self.zoom.tick == 0:
                found.append((self.percent(at), f"{local:%H:%M}"))
            at += HALF_HOUR
        return found

    def days(self) -> list[tuple[float, str]]:
        """Place and name of each day that begins in the window, and of the one it begins in."""
        found = []
        local = self.window.starts.astimezone(self.zone)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        at = midnight.astimezone(UTC)
        while at < self.window.ends:
            name = f"{midnight:%a} {midnight.day} {midnight:%b}"
            found.append((self.percent(at), name))
            midnight += timedelta(days=1)
            at = midnight.astimezone(UTC)
        # A day of which little is left, at either end, has no room for its name.
        room = 100 / 14 if self.zoom.key == "2w" else 12
        named = found if self._has_room(found, room) else found[1:]
        return [each for each in named if each[0] <= 100 - room + 0.1]

    @staticmethod
    def _has_room(found: list[tuple[float, str]], room: float) -> bool:
        return len(found) < 2 or found[1][0] >= room - 0.5


def span_read(*, key: str, since: str, zone: tzinfo, now: datetime) -> Span:
    """The span that an address asks for; what makes no sense becomes today at the day's zoom.

    `since` is an ISO time, without an offset in the reader's zone.
    """
    zoom = ZOOMS.get(key, ZOOMS[DEFAULT_ZOOM])
    starts = _starts(since, zone) or _floor(now - zoom.lead, zone)
    return Span(zoom, Window(starts, starts + zoom.length), zone)


def since_text(moment: datetime, zone: tzinfo) -> str:
    """The instant as the address carries it."""
    return f"{moment.astimezone(zone):%Y-%m-%dT%H:%M}"


def _starts(since: str, zone: tzinfo) -> datetime | None:
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
