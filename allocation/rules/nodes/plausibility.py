"""Whether a node's clock and its readings are plausible. Pure.

Charges follow the time for which devices were assigned, so implausible readings change no decision
and no charge. They only show an operator which node to check.
"""

from collections.abc import Mapping

WRONG_SECONDS = 5
RIGHT_SECONDS = 2
BUSY_PERCENT = 90
"""Utilisation from which a device counts as busy."""
# A busy whole GPU draws more than the first, and an idle one less than the second.
MIN_BUSY_POWER_MW, MAX_IDLE_POWER_MW = 15_000, 300_000


def clock_is_wrong(*, skew: int, before: int | None, was_wrong: bool) -> bool:
    """Whether a node's clock is too wrong for work, which it starts and ends by that clock.

    `skew` is the node's clock minus the portal's in seconds, `before` the skew one heartbeat
    earlier: a single one proves nothing, because a heartbeat may have been delayed. A wrong clock
    has to be clearly right again, so that a node at the limit does not flap.
    """
    if was_wrong:
        return abs(skew) > RIGHT_SECONDS
    return abs(skew) > WRONG_SECONDS and before is not None and abs(before) > WRONG_SECONDS


def is_implausible(reading: Mapping[str, int | None], *, whole: bool) -> bool:
    """Whether the values of a reading contradict each other. Unknown values (None) contradict
    nothing. The power of a slice (not `whole`) is never measured."""
    used, total = reading["memory_used_mb"], reading["memory_total_mb"]
    if used is not None and total is not None and used > total:
        return True
    utilisation, power = reading["utilisation"], reading["power_mw"]
    if utilisation is None:
        return False
    if utilisation >= BUSY_PERCENT and reading["processes"] == 0:
        return True
    if not whole or power is None:
        return False
    too_little = utilisation >= BUSY_PERCENT and power < MIN_BUSY_POWER_MW
    return too_little or (utilisation == 0 and power > MAX_IDLE_POWER_MW)
