"""What the engine needs to be allowed, as its ClusterRoles in deploy/helm say."""

from agent.kubernetes.api import (
    CLUSTER_QUEUES,
    EVENTS,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    WORKLOADS,
    Resource,
)

Rights = tuple[tuple[Resource, tuple[str, ...]], ...]

EVERYWHERE: Rights = (
    (NODES, ("list", "watch")),
    (NAMESPACES, ("get", "list", "watch")),
    (PODS, ("list", "watch")),
    (FLAVORS, ("create", "delete", "list", "patch", "watch")),
    (CLUSTER_QUEUES, ("create", "delete", "list", "patch", "watch")),
    (LOCAL_QUEUES, ("list", "watch")),
    (WORKLOADS, ("list", "watch")),
)
IN_PROJECTS: Rights = (
    (PODS, ("delete",)),
    (EVENTS, ("create",)),
    (LOCAL_QUEUES, ("create", "delete", "patch")),
    (WORKLOADS, ("patch",)),
)
"""In the namespaces of projects only."""
