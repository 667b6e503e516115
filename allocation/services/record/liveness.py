"""When each process of the portal last worked, kept in the cache for monitoring."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import redis
from django.conf import settings
from django.core.cache import cache

from tenants.platform.watchdog.notes import silent_read

logger = logging.getLogger(__name__)

PROGRAMS = ("web", "operators", "worker", "solver", "beat", "reader", "sender", "notebooks")
# Programs that work at least every 15 s, whether anybody asks for something or not.
ALWAYS = ("worker", "solver", "beat", "reader", "sender")
STOPPED_AFTER_SECONDS = 40
_AT = "seen:{}"
_LAG = "seen:reader-lag"


SEEN_EVERY_SECONDS = 5.0
"""A program that is seen more often than this is recorded so often."""


class SeenNow:
    """Records that a program works, for one that has occasion to each second."""

    def __init__(self, program: str, steady: Callable[[], float] = time.monotonic) -> None:
        """`steady` never jumps."""
        self._program, self._steady = program, steady
        self._recorded = -math.inf

    def __call__(self, now: datetime) -> bool:
        """Returns whether it was recorded now."""
        at = self._steady()
        if at - self._recorded < SEEN_EVERY_SECONDS:
            return False
        self._recorded = at
        program_seen(self._program, now)
        return True


def program_seen(program: str, now: datetime) -> None:
    """Records that `program` worked at `now`; skipped when the cache does not answer."""
    _set(_AT.format(program), now.timestamp())


def reader_lag_seen(seconds: float) -> None:
    """Records how long the messages that the reader now processes have waited."""
    _set(_LAG, seconds)


def programs_read(now: datetime, programs: Sequence[str] = PROGRAMS) -> Iterator[tuple[str, float]]:
    """Each program that has ever worked, with the seconds since then. Raises redis.RedisError."""
    found = cache.get_many([_AT.format(program) for program in programs])
    for program in programs:
        at = found.get(_AT.format(program))
        if at is not None:
            yield program, max(0.0, now.timestamp() - at)


def programs_silent(now: datetime) -> dict[str, str]:
    """What is wrong with each program that does not do its work. Raises redis.RedisError.

    A site on which none of them has ever worked has no such program yet.
    """
    ages = dict(programs_read(now, ALWAYS))
    late = {
        name: f"no work for {ages[name]:.0f} s" if name in ages else "never worked"
        for name in ALWAYS
        if ages and ages.get(name, math.inf) > STOPPED_AFTER_SECONDS
    }
    loops = silent_read(settings.CACHE_REDIS_URL, PROGRAMS)
    return late | {name: f"silent: {loop}" for name, loop in loops.items()}


def reader_lag_read() -> float | None:
    """The reader's last recorded lag in seconds. Raises redis.RedisError."""
    lag: float | None = cache.get(_LAG)
    return lag


def _set(key: str, value: float) -> None:
    try:
        cache.set(key, value, timeout=None)
    except redis.RedisError as error:
        logger.warning("%s was not recorded: %s", key, error)
