"""Bounds of arrays, and what their elements are called."""

from uuid import UUID

MOST_ELEMENTS = 10_000
MOST_PARALLEL = 1_000
"""Elements that are open at a time."""
USUAL_PARALLEL = 100


def parallel_usual(count: int) -> int:
    """Returns how many elements are open at a time if nobody says so."""
    return min(count, USUAL_PARALLEL)


def element_id(array_id: UUID, index: int) -> UUID:
    """Returns the id of an element. Of equal bookings the one with the lower id goes first."""
    return UUID(bytes=array_id.bytes[:12] + index.to_bytes(4))
