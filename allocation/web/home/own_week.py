"""The strip of the reader's own week on the start page: seven days from today with their bookings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

from allocation.models import Booking
from allocation.queries.bookings.bookings import own_bookings_between
from allocation.rules.states import RUNNING
from allocation.web.parts.times import clock
from tenants.access import Actor
from tenants.web.frame import zone_of

DAYS = 7
MOST_OF_A_DAY = 3
MOST_READ = 60


@dataclass(frozen=True, slots=True)
class WeekBooking:
    """A booking on a day: from when on that day, and whether the start is only planned."""

    label: str
    title: str
    words: str
    is_running: bool
    is_planned: bool


@dataclass(frozen=True, slots=True)
class WeekDay:
    """A day of the strip; `more` bookings are not shown."""

    day: date
    name: str
    bookings: tuple[WeekBooking, ...]
    more: int


def own_week(actor: Actor, now: datetime) -> tuple[WeekDay, ...]:
    """Returns the seven days from today in the reader's zone; none without a booking in them."""
    zone = zone_of(actor.time_zone)
    first = now.astimezone(zone).date()
    starts, ends = _midnight(first, zone), _midnight(first + timedelta(days=DAYS), zone)
    found = own_bookings_between(actor, max(starts, now), ends, count=MOST_READ)
    if not found:
        return ()
    days = [first + timedelta(days=each) for each in range(DAYS)]
    return tuple(_day(each, days[0], found, zone) for each in days)


def _day(day: date, today: date, bookings: Sequence[Booking], zone: tzinfo) -> WeekDay:
    begins, ends = _midnight(day, zone), _midnight(day + timedelta(days=1), zone)
    here = [each for each in bookings if _starts(each) < ends and _ends(each) > begins]
    shown = tuple(_booking(each, begins, ends, zone) for each in here[:MOST_OF_A_DAY])
    name = "Today" if day == today else f"{day:%a} {day.day} {day:%b}"
    return WeekDay(day, name, shown, len(here) - len(shown))


def _booking(booking: Booking, begins: datetime, ends: datetime, zone: tzinfo) -> WeekBooking:
    """The booking with its hours on the day: `14:00 – 18:00`, `until 09:00`, `all day`."""
    is_from, is_to = _starts(booking) >= begins, _ends(booking) <= ends
    first, last = clock(_starts(booking), zone), clock(_ends(booking), zone)
    if is_from and is_to:
        words = f"{first} – {last}"
    elif is_from:
        words = f"from {first}"
    else:
        words = f"until {last}" if is_to else "all day"
    return WeekBooking(
        booking.label,
        booking.name or booking.label,
        words,
        booking.state in RUNNING,
        booking.is_unplanned or booking.planned_strength == "expected",
    )


def _starts(booking: Booking) -> datetime:
    if booking.planned_starts is None:
        raise ValueError("a booking without a planned start has no place in a week")
    return booking.planned_starts


def _ends(booking: Booking) -> datetime:
    if booking.planned_ends is None:
        raise ValueError("a booking without a planned end has no place in a week")
    return booking.planned_ends


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone)
