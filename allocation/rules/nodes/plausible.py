"""Whether what was measured of a device at one instant can be true together. Pure.

Nothing is decided or charged by what nodes measure: charges follow the time for which devices were
assigned. So this only tells an operator which node to look at.
"""

from collections.abc import Mapping

# Utilisation from which a device is at work, in percent.
BUSY_PERCENT = 90
# A whole GPU at work takes more than this, in mW; one that does nothing takes less than that.
MIN_BUSY_POWER_MW, MAX_IDLE_POWER_MW = 15_000, 300_000


def is_implausible(reading: Mapping[str, int | None], *, whole: bool) -> bool:
    """Of a `whole` GPU, or a slice, whose power nobody measures. What is not known, None,
    contradicts nothing."""
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
    at_work = utilisation >= BUSY_PERCENT and power < MIN_BUSY_POWER_MW
    return at_work or (utilisation == 0 and power > MAX_IDLE_POWER_MW)
