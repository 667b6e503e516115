"""What must hold of changes, offers and arrays, by the invariants of the design."""

from collections import Counter
from collections.abc import Iterable

from tests.simulation.tables.rows import LIVE, OVER, STARTED_STATES, Booking, Tables

Target = tuple[object, ...]


class RequestsLook:
    """Compares what bookings ask for with what they asked for before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, Target]] = {}

    def look(self, tables: Tables, now: float) -> Iterable[str]:
        """What is wrong, each time anew."""
        for name, booking in tables.bookings.items():
            before, requested = self._before.get(name), _target(booking)
            if before is not None and before[0] == booking.revision and before[1] != requested:
                is_accepted = booking.state == "scheduled" and booking.requested.starts is not None
                if not is_accepted and booking.state not in OVER:
                    yield f"C1 {name} asks for something else, and nobody changed it"
        self._before = {n: (b.revision, _target(b)) for n, b in tables.bookings.items()}
        yield from requests_broken(tables, now)


def _target(booking: Booking) -> Target:
    requested = booking.requested
    return (requested.count, requested.starts, requested.duration, booking.requested_from)


def requests_broken(tables: Tables, now: float) -> Iterable[str]:
    """A booking gets nothing before its approval and acceptance, and never more than requested."""
    for name, booking in tables.bookings.items():
        yield from _unaccepted(tables, booking)
        if booking.state in ("scheduled", "starting", "active") and name not in tables.cuts:
            yield from _more_than_requested(tables, booking)
    for name, offer in tables.offers.items():
        if now >= offer.starts:
            yield f"C7 {name} has an offer that begins before it is answered"
    people = Counter(
        (tables.bookings[each.booking].requested.who, each.gpu_class) for each in tables.offers.values()
    )
    if any(count > 1 for count in people.values()):
        yield f"C7 somebody has two offers of one class: {dict(people)}"
    for array in tables.arrays.values():
        own = [b for b in tables.bookings.values() if b.array == array.id]
        if sum(b.state not in OVER for b in own) > array.parallel or len(own) > array.count:
            yield f"C11 {array.id} has more elements than it may"


def _unaccepted(tables: Tables, booking: Booking) -> Iterable[str]:
    """5., 6. Rows without a planned start are those of an offer, and begin nothing."""
    name, rows = booking.id, tables.of(booking, *LIVE)
    if booking.state in ("waitlisted", "requested") and rows:
        yield f"C5 {name} is {booking.state} and has rows"
    if (booking.state == "offered") != (name in tables.offers):
        yield f"C7 {name} is {booking.state}, and its offer says something else"
    if booking.state == "offered" and any(row.state in STARTED_STATES for row in rows):
        yield f"C6 {name} was begun and nobody accepted the offer"


def _more_than_requested(tables: Tables, booking: Booking) -> Iterable[str]:
    """11. No time on the calendar is anybody's that did not ask, and pay, for it."""
    ends = max((row.ends for row in tables.here(booking)), default=None)
    if ends is not None and booking.ends is not None and ends > booking.ends:
        yield f"C11 {booking.id} has its GPUs until {ends}, and asked for {booking.ends}"
    if booking.requested.starts is None or booking.starts is None or booking.state != "scheduled":
        return
    if booking.starts < booking.requested.starts:
        yield f"C11 {booking.id} starts at {booking.starts}, before its window"
