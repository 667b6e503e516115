"""Names of what a booking has in Kubernetes: its engine makes it, and its page names it. Pure.

Names are bounded (63 characters, so that they fit labels) and safe; two bookings never have the same.
"""

import dataclasses
import hashlib
import re

RANKS = "gpu-portal."
"""Without Kueue: what the names of bookings' PriorityClasses, and of their queues of Volcano, begin with."""
_LONGEST = 63
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_BOOKING = re.compile(r"BK-(\d{1,18})(?:_(\d{1,9}))?")
_HASH = 10


@dataclasses.dataclass(frozen=True, slots=True)
class QueueNames:
    """`local` is the LocalQueue in the project's namespace, `queue` the ClusterQueue."""

    local: str
    queue: str


def queue_names(tenant: str, booking: str) -> QueueNames:
    """Returns for example `bk-12` and `helix.bk-12`."""
    local = _booking_part(booking)
    return QueueNames(local, bounded(f"{_part(tenant)}.{local}", f"{tenant}/{booking}"))


def rank_name(queue: str, node: str) -> str:
    """Returns the name of the PriorityClass of the booking's part on a node. A quota can select only
    names that fit labels."""
    return bounded(f"{RANKS}{queue}.{node.lower()}", f"{queue}/{node}")


def gang_queue_name(queue: str) -> str:
    """Returns the name of the booking's queue of Volcano, for example `gpu-portal.helix.bk-12`."""
    return bounded(f"{RANKS}{queue}", queue)


def bounded(name: str, key: str) -> str:
    """Returns the name, or its beginning with a hash of `key` where it is too long or not safe."""
    if len(name) <= _LONGEST and all(_LABEL.fullmatch(part) for part in name.split(".")):
        return name
    return _hashed(name, key)


def _hashed(name: str, key: str) -> str:
    parts = (re.sub(r"[^a-z0-9]+", "-", part).strip("-") for part in name.lower().split("."))
    safe = ".".join(part for part in parts if part)[: _LONGEST - _HASH - 1].rstrip("-.")
    return f"{safe or 'x'}-{hashlib.sha256(key.encode()).hexdigest()[:_HASH]}"


def _part(text: str) -> str:
    """Returns a name without a dot."""
    return text if _LABEL.fullmatch(text) else _hashed(text.replace(".", "-"), text)


def _booking_part(booking: str) -> str:
    found = _BOOKING.fullmatch(booking)
    if found is None:
        return _hashed("x", booking)
    number, index = found.groups()
    return f"bk-{number}" if index is None else f"bk-{number}-{index}"
