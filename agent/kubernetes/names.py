"""Names of what a booking has in Kubernetes. Pure.

Names are bounded (63 characters, so that they fit labels) and safe; two bookings never have the same.
"""

import dataclasses
import hashlib
import re

from wire import DesiredAllocation

BOOKING = "gpu-portal/booking"
"""Label of a booking's objects, and key of the toleration that marks its pods."""
NODE = "gpu-portal/node"
"""Label of the nodes whose GPUs the portal gives to bookings. A taint of that name keeps all else away."""
TENANT = "gpu-portal/tenant"
PROJECT = "gpu-portal/project"
"""Labels of the namespaces of projects."""
HOLDS = "gpu-portal/holds"
"""Without Kueue: label of a quota, and of the pods that keep its devices taken, with the PriorityClass of the
booking's part."""
RANKS = "gpu-portal."
"""Without Kueue: what the names of bookings' PriorityClasses begin with."""
HOLDER = "gpu-portal-holder"
"""PriorityClass of the pods that keep devices taken, which the chart makes."""
POLICY = "gpu-portal-bookings"
"""The policy of the chart that keeps each booking's PriorityClass to its namespace and node."""
NAMESPACE = "gpu-portal/namespace"
HOST = "gpu-portal/host"
PLACES = "gpu-portal/places"
ALLOCATIONS = "gpu-portal/allocations"
RUN = "gpu-portal/run"
ENDS = "gpu-portal/ends"
PAUSE_AT = "gpu-portal/pause-at"
PAUSE = "gpu-portal/pause"
PAUSED = "gpu-portal/paused"

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


def queue_names_of(allocation: DesiredAllocation) -> QueueNames:
    return queue_names(allocation.tenant, allocation.booking)


def flavor_name(queue: str, node: str) -> str:
    """Returns the name of the booking's part on a node."""
    return bounded(f"{queue}.{node.lower()}", f"{queue}/{node}")


def rank_name(queue: str, node: str) -> str:
    """Returns the name of the PriorityClass of the booking's part on a node. A quota can select only
    names that fit labels."""
    return bounded(f"{RANKS}{queue}.{node.lower()}", f"{queue}/{node}")


def quota_name(local: str, node: str) -> str:
    """Returns the name of the ResourceQuota of the booking's part on a node."""
    return bounded(f"{local}.{node.lower()}", f"{local}/{node}")


def holder_name(part: str, slot: int) -> str:
    """Returns the name of the pod that keeps a place taken."""
    return bounded(f"{part}.{slot}", f"{part}/{slot}")


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
