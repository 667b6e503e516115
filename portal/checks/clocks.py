"""Compares the clocks of PostgreSQL and both Valkeys with this machine's."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import redis
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import DatabaseError, connection
from django.utils import timezone

from portal.checks.valkey import STORES, client_of

MAX_DIFFERENCE_SECONDS = 1.0


def clocks_check(*, clock: Callable[[], datetime] = timezone.now, **_: object) -> list[CheckMessage]:
    """One finding per clock that differs; other checks report a server that does not answer."""
    found: list[CheckMessage] = []
    readings = {"PostgreSQL": _database_time}
    readings |= {name: _reader(setting) for name, setting in STORES.items()}
    for name, read in readings.items():
        before = clock()
        try:
            theirs = read()
        except (DatabaseError, redis.RedisError):
            continue
        apart = _apart(before, theirs, clock())
        if apart > timedelta(seconds=MAX_DIFFERENCE_SECONDS):
            found.append(
                Error(
                    f"The clock of {name} and this machine's are {apart.total_seconds():.1f} s"
                    " apart: bookings would start and end at the wrong time.",
                    hint="Let one NTP server set all machines' clocks (chronyc tracking).",
                    id="portal.E301",
                )
            )
    return found


def _apart(before: datetime, theirs: datetime, after: datetime) -> timedelta:
    """How far `theirs` is outside the interval in which it was read."""
    return max(before - theirs, theirs - after, timedelta(0))


def _database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found


def _reader(setting: str) -> Callable[[], datetime]:
    def read() -> datetime:
        with client_of(getattr(settings, setting)) as server:
            seconds, micro = server.time()
        return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micro)

    return read
