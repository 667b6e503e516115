"""The two clocks of a node, and the time by which it starts and ends bookings."""

import dataclasses
import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

JUMP_S = 30.0
"""Time synchronisation makes smaller steps."""


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """`wall` gives Unix seconds, for what people agreed on; `steady` never jumps."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


class AgreedTime:
    """Follows the wall clock, and after a jump of it the steady one: nothing ends an hour early
    because somebody set the clock.

    The wall clock counts again when it is back, or when the portal's server has the same time: then
    it was wrong before the jump.
    """

    def __init__(self, clock: Clock) -> None:
        """Believes the clock as it is at the start."""
        self._clock = clock
        self._offset = self._apart()
        self._has_jumped = False

    def now(self) -> float:
        """Returns Unix seconds."""
        wall, steady = self._clock.wall(), self._clock.steady()
        jump = wall - steady - self._offset
        if abs(jump) <= JUMP_S:
            self._follow(wall - steady)
            # Not by the sum: rounding could make it a moment earlier, for ever.
            return wall
        if not self._has_jumped:
            self._has_jumped = True
            log.error("the clock jumped by %.0f s: bookings start and end by the steady one", jump)
        return steady + self._offset

    def confirm(self, server_time: float) -> None:
        """Compares with the server's time, which has just come."""
        if abs(self._clock.wall() - server_time) <= JUMP_S:
            self._follow(self._apart())

    def _follow(self, apart: float) -> None:
        if self._has_jumped:
            log.warning("the clock is right: bookings start and end by it again")
        self._offset, self._has_jumped = apart, False

    def _apart(self) -> float:
        return self._clock.wall() - self._clock.steady()
