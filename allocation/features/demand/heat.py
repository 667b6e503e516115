"""When to book: the expected wait at each coming hour, from a forecast of what is wanted. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

HOUR = timedelta(hours=1)


def waits(wanted: Sequence[float], gpus: float, count: int) -> list[int | None]:
    """The hours from each hour until so many GPUs are expected free; None: not within the forecast."""
    found: list[int | None] = [None] * len(wanted)
    following: int | None = None
    for number in range(len(wanted) - 1, -1, -1):
        if wanted[number] + count <= gpus + 1e-6:
            following = number
        found[number] = None if following is None else following - number
    return found


def shortage(wanted: Sequence[float], gpus: float) -> list[float]:
    """The GPUs that are missing in each hour."""
    return [max(0.0, each - gpus) for each in wanted]


def hours_from(at: datetime, count: int) -> list[datetime]:
    """So many hours from one on."""
    return [at + number * HOUR for number in range(count)]
