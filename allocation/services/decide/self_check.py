"""Whether the promises hold and the solver answers, asked now and then and kept for who looks.

Kept in the cache: a server that loses it has nothing to say until the next look. Only how long
the oldest request has been undecided is asked of the database each time.
"""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime

import redis
from django.core.cache import cache
from django.db import DatabaseError, connection

from allocation.services.decide.invariants import invariants_check
from allocation.services.nodes.clock import JUMP_KEY

logger = logging.getLogger(__name__)

# A request that is undecided for longer is no longer waiting for its turn: something is wrong.
BEHIND_SECONDS = 30

_CHECKED = "watch:invariants"
_FAILED = "watch:cycles-failed"


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What was seen last; None where nobody has looked yet. Ages are whole seconds."""

    invariant_violations: int | None = None
    invariants_checked_seconds_ago: int | None = None
    failed_cycles: int | None = None
    clock_jump_seconds: int | None = None
    oldest_undecided_seconds: int | None = None
    decisions_behind: int | None = None


def invariants_run(now: datetime) -> int:
    """Asks the whole database whether every promise holds; returns how many are broken."""
    found = invariants_check()
    for violation in found:
        logger.error(
            "Broken promise %s, %s: %s", violation.promise, violation.name, violation.detail
        )
    cache.set(_CHECKED, {"violations": len(found), "at": now.timestamp()}, timeout=None)
    return len(found)


def cycle_failure_note(error: Exception, snapshot_sha256: str) -> None:
    """The solver gave up on a snapshot: what was decided before stays, and is said to have."""
    logger.error(
        "The solver failed on snapshot %s; what was decided stays", snapshot_sha256, exc_info=error
    )
    try:
        cache.add(_FAILED, 0, timeout=None)
        cache.incr(_FAILED)
    except redis.RedisError as lost:
        logger.warning("A failed cycle was not counted: %s", lost)


def self_check_read(now: datetime) -> dict[str, int | None]:
    """The figures by name; those of the cache or the database are None while it does not answer."""
    return _cached(now) | _decisions(now)


def _decisions(now: datetime) -> dict[str, int | None]:
    """Asked of the database itself: a solver that is dead tells nobody that it is behind."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT portal_oldest_undecided()")
            (oldest,) = cursor.fetchone()
    except DatabaseError as lost:
        logger.warning("The age of the oldest undecided request is not known: %s", lost)
        return {"oldest_undecided_seconds": None, "decisions_behind": None}
    age = 0 if oldest is None else max(0, int((now - oldest).total_seconds()))
    return {"oldest_undecided_seconds": age, "decisions_behind": int(age > BEHIND_SECONDS)}


def _cached(now: datetime) -> dict[str, int | None]:
    try:
        checked, failed = cache.get(_CHECKED), cache.get(_FAILED, 0)
        jump = cache.get(JUMP_KEY, 0)
    except redis.RedisError:
        return asdict(SelfCheck())
    if checked is None:
        return asdict(SelfCheck(failed_cycles=failed, clock_jump_seconds=jump))
    age = max(0, int(now.timestamp() - checked["at"]))
    return asdict(SelfCheck(checked["violations"], age, failed, jump))
