"""Which bookings can be suspended at a pause, as far as that is known in advance."""

import re
from collections.abc import Iterable

MIN_DRIVER = 550


def why_not_suspendable(*, devices: int, is_divided: bool, drivers: Iterable[str] = ()) -> str | None:
    """Returns why a booking can't be suspended and is stopped instead, or None if it can.

    `is_divided`: its devices are slices or shares. `drivers` are the driver versions of its nodes;
    an unknown version does not prevent suspension.
    """
    if is_divided:
        return "only a whole GPU can be suspended"
    if devices > 1:
        return "programs that work together on several GPUs can't be suspended"
    drivers = tuple(drivers)
    if any(version.startswith("Slurm") for version in drivers):
        return "Slurm gives the devices of suspended programs to others"
    if any(version.startswith("Kubernetes") for version in drivers):
        return "Kubernetes can't suspend programs"
    majors = (re.match(r"\d+", version) for version in drivers)
    if any(found and int(found[0]) < MIN_DRIVER for found in majors):
        return f"its node has a driver older than {MIN_DRIVER}, which can't suspend programs"
    return None
