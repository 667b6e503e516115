"""Notices of pauses: annotations of a booking's LocalQueue and of the workloads in it, and an Event."""

import hashlib
from datetime import UTC, datetime

from agent.kubernetes import names
from agent.kubernetes.api import EVENTS, LOCAL_QUEUES, WORKLOADS, ApiError, Object
from agent.kubernetes.cluster import KubernetesCluster, View
from agent.kubernetes.objects import SeenLocal
from wire import Notice


def notice_follow(cluster: KubernetesCluster, view: View, local: SeenLocal, notice: Notice | None) -> None:
    """Gives a notice to who works in a queue, or takes it back. The queue itself comes last, so that
    what was interrupted is done again. Raises ApiError."""
    wanted = "" if notice is None else notice.id
    notes = {
        names.PAUSE: wanted or None,
        names.PAUSE_AT: None if notice is None else _moment(notice.at),
    }
    change: Object = {"metadata": {"annotations": notes}}
    if notice is not None and local.annotations.get(names.PAUSE) != wanted:
        _event(cluster, local, notice)
    for each in view.workloads.values():
        mine = (each.namespace, each.local) == (local.namespace, local.name)
        if mine and not each.is_over and each.pause != wanted:
            _patched(cluster, each.name, change, each.namespace)
    if local.annotations.get(names.PAUSE, "") != wanted:
        cluster.patch(LOCAL_QUEUES, local.name, change, local.namespace)


def _patched(cluster: KubernetesCluster, workload: str, change: Object, namespace: str) -> None:
    try:
        cluster.patch(WORKLOADS, workload, change, namespace)
    except ApiError as error:
        if not error.is_missing:
            raise


def _event(cluster: KubernetesCluster, local: SeenLocal, notice: Notice) -> None:
    """An Event has a name of its notice, so each notice has one."""
    digest = hashlib.sha256(notice.id.encode()).hexdigest()[:16]
    said = _moment(notice.told)
    body: Object = {
        "metadata": {"name": f"{local.name}.{digest}", "namespace": local.namespace},
        "involvedObject": {
            "apiVersion": LOCAL_QUEUES.version,
            "kind": LOCAL_QUEUES.kind,
            "namespace": local.namespace,
            "name": local.name,
            "uid": local.uid,
        },
        "type": "Normal",
        "reason": "PauseAnnounced",
        "message": f"The booking of this queue is paused at {_moment(notice.at)}: save what runs in it.",
        "source": {"component": "gpu-agent"},
        "reportingComponent": "gpu-agent",
        "firstTimestamp": said,
        "lastTimestamp": said,
        "count": 1,
    }
    try:
        cluster.create(EVENTS, body, local.namespace)
    except ApiError as error:
        if not error.is_conflict:
            raise


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
