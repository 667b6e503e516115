"""Names of what the engine makes and reads in Kubernetes. See wire.kubernetes_names."""

from wire import DesiredAllocation
from wire.kubernetes_names import QueueNames, bounded, queue_names

BOOKING = "gpu-portal/booking"
"""Label of a booking's objects, and key of the toleration that marks its pods."""
NODE = "gpu-portal/node"
"""Label of the nodes whose GPUs the portal gives to bookings. A taint of that name keeps all else away."""
RACK = "gpu-portal/rack"
"""Label of nodes: the rack in which one stands."""
TENANT = "gpu-portal/tenant"
PROJECT = "gpu-portal/project"
"""Labels of the namespaces of projects."""
HOLDS = "gpu-portal/holds"
"""Without Kueue: label of a quota, and of the pods that keep its devices taken, with the PriorityClass of the
booking's part."""
HOLDER = "gpu-portal-holder"
"""PriorityClass of the pods that keep devices taken, which the chart makes."""
POLICY = "gpu-portal-bookings"
"""The policy of the chart that keeps each booking's PriorityClass to its namespace and node."""
GROUP_POLICY = "gpu-portal-groups"
"""The policy of the chart that keeps each booking's queue of Volcano to its namespace."""
NODE_GROUP = "volcano.sh/nodegroup-name"
"""Volcano's label of nodes: its plugin `nodegroup` lets only queues that name the group on them."""
NAMESPACE = "gpu-portal/namespace"
HOST = "gpu-portal/host"
PLACES = "gpu-portal/places"
ALLOCATIONS = "gpu-portal/allocations"
RUN = "gpu-portal/run"
ENDS = "gpu-portal/ends"
PAUSE_AT = "gpu-portal/pause-at"
PAUSE = "gpu-portal/pause"
PAUSED = "gpu-portal/paused"
OF_QUEUES = (ENDS, PAUSE, PAUSE_AT, PAUSED)
"""Annotations of queues of Volcano that the engine writes."""


def queue_names_of(allocation: DesiredAllocation) -> QueueNames:
    return queue_names(allocation.tenant, allocation.booking)


def flavor_name(queue: str, node: str) -> str:
    """Returns the name of the booking's part on a node."""
    return bounded(f"{queue}.{node.lower()}", f"{queue}/{node}")


def quota_name(local: str, node: str) -> str:
    """Returns the name of the ResourceQuota of the booking's part on a node."""
    return bounded(f"{local}.{node.lower()}", f"{local}/{node}")


def holder_name(part: str, slot: int) -> str:
    """Returns the name of the pod that keeps a place taken."""
    return bounded(f"{part}.{slot}", f"{part}/{slot}")
