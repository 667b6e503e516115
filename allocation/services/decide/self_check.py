"""Self-checks: invariants of the database, failed cycles, and the age of undecided requests.

Results are kept in the cache until the next check. Only the age of the oldest undecided request is
read from the database each time.
"""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime

import redis
from django.core.cache import cache
from django.db import DatabaseError, connection

from allocation.services.decide.invariants import invariants_check
from allocation.services.nodes.clock import JUMP_KEY
from tenants.failures import failed_count

logger = logging.getLogger(__name__)

# Every request is decided within seconds, even if it has to wait. An older one shows a fault.
BEHIND_SECONDS = 30

_CHECKED = "watch:invariants"
_FAILED = "watch:cycles-failed"


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The last results; None before the first check. Ages are whole seconds."""

    invariant_violations: int | None = None
    invariants_checked_seconds_ago: int | None = None
    failed_cycles: int | None = None
    clock_jump_seconds: int | None = None
    oldest_undecided_seconds: int | None = None
    decisions_behind: int | None = None
    failed_messages: int | None = None


def invariants_run(now: datetime) -> int:
    """Checks every invariant of the database; returns the number of violations."""
    found = invariants_check()
    for violation in found:
        logger.error("Broken invariant %s, %s: %s", violation.promise, violation.name, violation.detail)
    cache.set(_CHECKED, {"violations": len(found), "at": now.timestamp()}, timeout=None)
    return len(found)


def cycle_failure_note(error: Exception, snapshot_sha256: str) -> None:
    """Counts a cycle in which the solver failed; earlier decisions stay."""
    logger.error("The solver failed on snapshot %s; earlier decisions stay", snapshot_sha256, exc_info=error)
    try:
        cache.add(_FAILED, 0, timeout=None)
        cache.incr(_FAILED)
    except redis.RedisError as lost:
        logger.warning("A failed cycle was not counted: %s", lost)


def self_check_read(now: datetime) -> dict[str, int | None]:
    """Returns the figures by name; None while the cache or the database does not answer."""
    return _cached(now) | _decisions(now) | {"failed_messages": failed_messages_count()}


def failed_messages_count() -> int | None:
    """Returns how many messages a program failed on; None while the database does not answer."""
    try:
        return failed_count()
    except DatabaseError as lost:
        logger.warning("The number of failed messages is not known: %s", lost)
        return None


def _decisions(now: datetime) -> dict[str, int | None]:
    """Reads the age from the database, because a dead solver reports nothing."""
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
