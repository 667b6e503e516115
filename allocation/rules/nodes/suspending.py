"""Which bookings nodes can suspend at a pause, as far as that is known before."""

import re
from collections.abc import Iterable

MIN_DRIVER = 550


def why_not_suspendable(
    *, devices: int, is_divided: bool, drivers: Iterable[str] = ()
) -> str | None:
    """Returns why a booking of so many devices is stopped instead; None if it can be suspended.

    `is_divided`: they are slices or shares of GPUs. `drivers` are the versions on its nodes; one
    that is not known proves nothing.
    """
    if is_divided:
        return "only a whole GPU can be suspended"
    if devices > 1:
        return "programs that work together on several GPUs can't be suspended"
    majors = (re.match(r"\d+", version) for version in drivers)
    if any(found and int(found[0]) < MIN_DRIVER for found in majors):
        return f"its node has a driver before {MIN_DRIVER}, which can't suspend programs"
    return None
