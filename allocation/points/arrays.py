"""What the core asks of arrays, whose elements are bookings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Arrays:
    """`request(actor=, request=, array=, now=, key=)` creates an array with this id and returns its first
    element, in the tenant's transaction; `cancel(actor=, array=, now=)` cancels all of its elements; both
    raise Refused. `words` says of arrays, by id, how many of their elements are where."""

    request: Callable[..., Any]
    cancel: Callable[..., int]
    words: Callable[[Iterable[Any]], Mapping[UUID, str]]


ARRAYS: list[Arrays] = []


def arrays() -> Arrays:
    """Returns what arrays do."""
    (found,) = ARRAYS
    return found
