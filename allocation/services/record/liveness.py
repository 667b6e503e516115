"""When each program of the portal last did its work, kept in the cache for who watches them."""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime

import redis
from django.core.cache import cache

logger = logging.getLogger(__name__)

PROGRAMS = ("web", "operators", "worker", "solver", "beat", "reader")
_AT = "seen:{}"
_LAG = "seen:reader-lag"


def program_seen(program: str, now: datetime) -> None:
    """Notes that `program` works at `now`; without the cache nothing is noted."""
    _set(_AT.format(program), now.timestamp())


def reader_lag_seen(seconds: float) -> None:
    """Notes for how long what the reader takes now had waited for it."""
    _set(_LAG, seconds)


def programs_read(now: datetime, programs: Sequence[str] = PROGRAMS) -> Iterator[tuple[str, float]]:
    """Each program that was ever seen, with the seconds since. Raises redis.RedisError."""
    found = cache.get_many([_AT.format(program) for program in programs])
    for program in programs:
        at = found.get(_AT.format(program))
        if at is not None:
            yield program, max(0.0, now.timestamp() - at)


def reader_lag_read() -> float | None:
    """What the reader said last, in seconds. Raises redis.RedisError."""
    lag: float | None = cache.get(_LAG)
    return lag


def _set(key: str, value: float) -> None:
    try:
        cache.set(key, value, timeout=None)
    except redis.RedisError as error:
        logger.warning("%s is not noted: %s", key, error)
