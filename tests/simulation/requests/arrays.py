"""The model's arrays: see allocation/features/arrays/elements.py."""

import uuid

from tests.simulation.requests.tables import ArrayRow
from tests.simulation.tables.rows import OVER, Booking, Tables

NOT_BEGUN = ("requested", "queued")


def element_id(array: str, index: int) -> str:
    """See element_id."""
    return str(uuid.UUID(bytes=uuid.UUID(array).bytes[:12] + index.to_bytes(4)))


def arrays_advance(tables: Tables, now: float) -> None:
    """See arrays_advance."""
    for name in sorted(tables.arrays):
        array_advance(tables, tables.arrays[name], now)


def array_advance(tables: Tables, array: ArrayRow, now: float) -> None:
    """Books what may enter the queue."""
    own = [b for b in tables.bookings.values() if b.array == array.id]
    array.is_stopped |= any(b.state in ("refused", "expired") for b in own)
    begun = sum(b.state not in NOT_BEGUN for b in own)
    if begun != array.begun:
        array.begun = begun
        for booking in own:
            if booking.state in NOT_BEGUN:
                booking.ranked_at = int(now)
    live = sum(b.state not in OVER for b in own)
    while not array.is_stopped and live < array.parallel and array.following <= array.count:
        _book(tables, array, now)
        live += 1


def _book(tables: Tables, array: ArrayRow, now: float) -> None:
    name = element_id(array.id, array.following)
    tables.bookings[name] = Booking(
        id=name,
        number=array.number,
        index=array.following,
        array=array.id,
        requested=array.requested,
        duration=array.requested.duration,
        bought=array.requested.duration,
        not_before=max(array.not_before, int(now)),
        submitted=int(now),
    )
    array.following += 1
