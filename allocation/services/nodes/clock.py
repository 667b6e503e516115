"""Watch over the portal's own clock: after a jump nothing is started or ended by it.

The wall clock is compared with the steady clock of the same machine, which never jumps. Their first
offset comes from the database's clock, which may be on another machine.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.cache import cache
from django.db import connection, transaction
from redis import RedisError

from allocation.models import MachineClock
from allocation.words.refusals import refusal_text
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused

logger = logging.getLogger(__name__)

# Time synchronisation makes smaller steps.
JUMP = timedelta(seconds=30)
JUMP_KEY = "watch:clock-jump"


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks of a `machine` at one instant; `steady` counts seconds since its start, including
    suspend."""

    wall: datetime
    steady: float
    machine: str

    @property
    def clock_offset(self) -> timedelta:
        """Offset between the two clocks, as a time since 1970."""
        return timedelta(seconds=self.wall.timestamp() - self.steady)


def clock_in_doubt(reading: ClockReading) -> bool:
    """Whether the clock has jumped and no operator has accepted it: callers then start and end
    nothing. The doubt also ends when the clock returns to its expected value."""
    with transaction.atomic():
        row, _ = MachineClock.objects.select_for_update().get_or_create(
            machine=reading.machine, defaults={"clock_offset": _apart_by_database(reading)}
        )
        jump = reading.clock_offset - row.clock_offset
        if abs(jump) <= JUMP:
            _follow(row, reading.clock_offset)
            return False
        if row.jump is None:
            logger.error("The clock has jumped by %s: nothing ends or starts", jump)
        if row.jump != jump:
            row.jump = jump
            row.save(update_fields=["jump"])
    _show(round(jump.total_seconds()))
    return True


def clock_accept(*, operator: User, now: datetime) -> timedelta:
    """Accepts the clock as it is now, after an operator has checked it. Returns the jump.

    Raises:
        Refused: `clock_not_in_doubt`.
    """
    with transaction.atomic():
        rows = MachineClock.objects.select_for_update().filter(jump__isnull=False)
        found = list(rows.order_by("machine"))
        if not found:
            raise Refused("clock_not_in_doubt", refusal_text("clock_not_in_doubt"))
        most = max((row.jump or timedelta(0) for row in found), key=abs)
        for row in found:
            row.clock_offset, row.jump = row.clock_offset + (row.jump or timedelta(0)), None
            row.save(update_fields=["clock_offset", "jump"])
        platform_record(
            operator_id=operator.id,
            action="clock.accepted",
            target=("clock", "portal"),
            now=now,
            before={"jump_seconds": round(most.total_seconds()), "machines": len(found)},
            after={"jump_seconds": 0, "machines": len(found)},
        )
    logger.warning("%s accepted the clock after a jump of %s", operator.username, most)
    _show(0)
    task_request("allocation.cycle")
    return most


def clock_jump_shown() -> bool:
    """Whether a solver has found a jump that nobody has accepted; False without Redis."""
    try:
        return bool(cache.get(JUMP_KEY, 0))
    except RedisError:
        return False


def _follow(row: MachineClock, apart: timedelta) -> None:
    """Follows the small steps of time synchronisation."""
    if row.jump is None and abs(apart - row.clock_offset) < timedelta(seconds=1):
        return
    if row.jump is not None:
        logger.warning("The clock is back at its expected value: bookings start and end again")
        _show(0)
    row.clock_offset, row.jump = apart, None
    row.save(update_fields=["clock_offset", "jump"])


def _apart_by_database(reading: ClockReading) -> timedelta:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (database_now,) = cursor.fetchone()
    return timedelta(seconds=database_now.timestamp() - reading.steady)


def _show(seconds: int) -> None:
    try:
        cache.set(JUMP_KEY, seconds, timeout=None)
    except RedisError as error:
        logger.warning("The clock's jump was not published: %s", error)
