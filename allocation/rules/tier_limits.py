"""Limits of a tier: an operator's bounds, and a tenant's limits inside them. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

Owner = Literal["operator", "tenant_admin"]
# The next start that is allowed is looked for so many hours ahead.
_HOURS_AHEAD = 8 * 24


@dataclass(frozen=True, slots=True)
class StartHours:
    """Hours of the week in which a booking may start, by the clocks of a time zone.

    `weekly` has (weekday, first hour, hour of the end); Monday is 0.
    """

    zone: str
    weekly: tuple[tuple[int, int, int], ...]

    def has(self, starts: datetime) -> bool:
        """Whether a booking may start then."""
        local = starts.astimezone(ZoneInfo(self.zone))
        return any(day == local.weekday() and first <= local.hour < ends for day, first, ends in self.weekly)

    def following(self, moment: datetime) -> datetime | None:
        """Returns the first full hour from a moment on at which a booking may start."""
        hour = moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        hours = (hour + timedelta(hours=number) for number in range(_HOURS_AHEAD))
        return next((each for each in hours if self.has(each)), None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a tier in seconds, bookings and GPUs. None: no limit of one's own."""

    shortest: int | None = None
    longest: int | None = None
    least_lead: int | None = None
    most_lead: int | None = None
    most_open: int | None = None
    most_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """The stricter limit of two owners."""

    value: int | None
    owner: Owner


@dataclass(frozen=True, slots=True)
class TierLimits:
    """An operator's bounds of a tier, and what a tenant has set inside them."""

    bounds: Bounds
    own: Bounds = Bounds()
    classes: frozenset[str] = frozenset()
    hours: StartHours | None = None

    @property
    def shortest(self) -> Limit:
        """Seconds that a booking lasts at least."""
        return self._strictest("shortest", max)

    @property
    def longest(self) -> Limit:
        """Seconds that a booking lasts at most."""
        return self._strictest("longest", min)

    @property
    def least_lead(self) -> Limit:
        """Seconds between the request and the start at least."""
        return self._strictest("least_lead", max)

    @property
    def most_lead(self) -> Limit:
        """Seconds between the request and the start at most."""
        return self._strictest("most_lead", min)

    @property
    def most_open(self) -> Limit:
        """Bookings of a person that are not over at most."""
        return self._strictest("most_open", min)

    @property
    def most_gpus(self) -> Limit:
        """GPUs of these bookings at most."""
        return self._strictest("most_gpus", min)

    def _strictest(self, name: str, choose: Callable[[int, int], int]) -> Limit:
        bound, own = getattr(self.bounds, name), getattr(self.own, name)
        if own is None or (bound is not None and choose(bound, own) == bound):
            return Limit(bound, "operator")
        return Limit(own, "tenant_admin")


# The limit from below, and the one from above that belongs to it.
_PAIRS = (("shortest", "longest"), ("least_lead", "most_lead"))


def outside_bounds(own: Bounds, bounds: Bounds) -> Iterator[tuple[str, int]]:
    """Yields the limits of a tenant that are outside an operator's bounds, with the bound.

    So are limits that no booking can keep together.
    """
    for low, high in _PAIRS:
        yield from _outside_pair(own, bounds, low, high)
    for name in ("longest", "most_lead", "most_open", "most_gpus"):
        value, bound = getattr(own, name), getattr(bounds, name)
        if value is not None and bound is not None and value > bound:
            yield name, bound


def _outside_pair(own: Bounds, bounds: Bounds, low: str, high: str) -> Iterator[tuple[str, int]]:
    least, most = getattr(own, low), getattr(own, high)
    floor, ceiling = getattr(bounds, low) or 0, getattr(bounds, high)
    tops = [each for each in (most, ceiling) if each is not None]
    if least is not None and least < floor:
        yield low, floor
    if tops and (least or 0) > min(tops):
        yield low, min(tops)
    if most is not None and most < floor:
        yield high, floor
