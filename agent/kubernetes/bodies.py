"""What the engine writes: the quotas of bookings, and the bodies of their objects. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Decimal
from types import MappingProxyType

from agent.kubernetes import names
from agent.kubernetes.api import GANG_QUEUES, Object, Resource
from agent.kubernetes.objects import (
    HOST,
    HOSTNAME,
    NAMESPACE_NAME,
    Part,
    SeenGangQueue,
    SeenGroup,
    SeenLocal,
    SeenNode,
    SeenPod,
    SeenQuota,
    quantity,
)
from wire import DesiredAllocation, Notice
from wire.kubernetes_names import QueueNames

RANK = 1_000_000
"""Value of the PriorityClass of bookings. That of the pods which hold devices is less, and that of pods
without a class is 0."""

Quotas = Mapping[str, str]
"""The quantity of each resource."""


def quotas_of(parts: Iterable[tuple[DesiredAllocation, str]], node: SeenNode) -> dict[str, str]:
    """Returns the quotas of allocations with the resources of their places: exactly the GPUs that are
    booked, with their host cores and memory, or the GPUs' share of the node where none were booked."""
    parts = tuple(parts)
    found: dict[str, str] = {}
    for _, resource in parts:
        found[resource] = str(int(found.get(resource, "0")) + 1)
    total = sum(node.capacity.values())
    cores = sum(each.cores for each, _ in parts)
    memory = sum(each.memory_mb for each, _ in parts) << 20
    asked = {"cpu": Decimal(cores), "memory": Decimal(memory)}
    for name in HOST:
        share = node.host.get(name, Decimal(0)) * len(parts) / max(1, total)
        found[name] = _text(asked.get(name) or share, name)
    return found


def _text(amount: Decimal, name: str) -> str:
    if name == "cpu":
        milli = int((amount * 1000).to_integral_value(ROUND_DOWN))
        return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
    return str(int(amount.to_integral_value(ROUND_DOWN)))


def resource_groups(entries: Mapping[str, Quotas]) -> list[Object]:
    """Returns `resourceGroups` of a ClusterQueue: each flavor needs a quota of each resource."""
    if not entries:
        return []
    covered = sorted({name for quotas in entries.values() for name in quotas})
    flavors = [
        {
            "name": flavor,
            "resources": [{"name": name, "nominalQuota": quotas.get(name, "0")} for name in covered],
        }
        for flavor, quotas in sorted(entries.items())
    ]
    return [{"coveredResources": covered, "flavors": flavors}]


def is_same(one: Quotas, other: Quotas) -> bool:
    """Returns whether two quotas are the same, however they are written; a resource without one has 0."""
    return all(quantity(one.get(name, "0")) == quantity(other.get(name, "0")) for name in {*one, *other})


def flavor_body(name: str, queue: str, node: SeenNode, notes: Mapping[str, str]) -> Object:
    """Returns the ResourceFlavor of a booking's part: pods that Kueue admits in it go to this node, and
    have a toleration by which they are known."""
    mark = {"key": names.BOOKING, "operator": "Equal", "value": queue, "effect": "NoSchedule"}
    tainted = {"key": names.NODE, "operator": "Exists", "effect": "NoSchedule"}
    return {
        "metadata": {"name": name, "labels": {names.BOOKING: queue}, "annotations": dict(notes)},
        "spec": {"nodeLabels": {HOSTNAME: node.hostname}, "tolerations": [mark, tainted]},
    }


def queue_body(name: str, namespace: str, entries: Mapping[str, Quotas]) -> Object:
    """Returns the ClusterQueue of a booking, which takes work of one namespace."""
    return {
        "metadata": {"name": name, "labels": {names.BOOKING: name}},
        "spec": {
            "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}},
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": resource_groups(entries),
            "stopPolicy": "None",
        },
    }


def local_body(found: QueueNames, notes: Mapping[str, str]) -> Object:
    """Returns the LocalQueue of a booking."""
    return {
        "metadata": {
            "name": found.local,
            "labels": {names.BOOKING: found.queue},
            "annotations": dict(notes),
        },
        "spec": {"clusterQueue": found.queue},
    }


def hard_of(parts: Iterable[tuple[DesiredAllocation, str]], node: SeenNode) -> dict[str, str]:
    """Returns what the pods of a booking may request where it is no queue. A quota does not limit what it
    does not name, so it says 0 of the node's other GPUs. One that is for one PriorityClass can't count
    the local disk."""
    found = dict.fromkeys(node.capacity, "0") | quotas_of(parts, node)
    return {f"requests.{name}": count for name, count in found.items() if name != "ephemeral-storage"}


def is_equal(one: Quotas, other: Quotas) -> bool:
    """Returns whether two limits are the same, however they are written; one that is not named is none."""
    return one.keys() == other.keys() and is_same(one, other)


def rank_body(name: str, booking: str, notes: Mapping[str, str], *, preempts: bool) -> Object:
    """Returns the PriorityClass of a booking's part."""
    return {
        "metadata": {"name": name, "labels": {names.BOOKING: booking}, "annotations": dict(notes)},
        "value": RANK,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
        "description": f"Pods of the booking {booking}, in {notes[names.NAMESPACE]} on {notes[names.NODE]}.",
    }


def quota_body(name: str, part: Part, hard: Mapping[str, str], notes: Mapping[str, str]) -> Object:
    """Returns the ResourceQuota of a booking's part."""
    only = {"scopeName": "PriorityClass", "operator": "In", "values": [part.name]}
    labels = {names.BOOKING: part.queue, names.HOLDS: part.name}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": dict(notes)},
        "spec": {"hard": dict(hard), "scopeSelector": {"matchExpressions": [only]}},
    }


GANG_WEIGHT = 65535
"""The most that Volcano takes. Where its plugin `proportion` shares the cluster out by weights, a booking's
queue has its whole quota before queues of less weight have more than theirs."""


def gang_queue_body(name: str, booking: str, spec: Object, notes: Mapping[str, str]) -> Object:
    """Returns the queue of Volcano of a booking. Other queues take nothing back from it. It reserves nothing
    (`guarantee`): that would count devices of the whole cluster, and not those of its nodes."""
    return {
        "metadata": {"name": name, "labels": {names.BOOKING: booking}, "annotations": dict(notes)},
        "spec": {"weight": GANG_WEIGHT, "reclaimable": False}
        | {key: value for key, value in spec.items() if value is not None},
    }


def gang_queue_spec(limits: Quotas, groups: Iterable[str], before: Quotas = MappingProxyType({})) -> Object:
    """Returns what a queue of Volcano lets in, in place of what it did `before`, and where."""
    counts = dict.fromkeys(before) | dict(limits)
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(groups)}
    affinity = {"nodeGroupAffinity": required} if groups else None
    return {"capability": counts, "deserved": counts, "affinity": affinity}


def command_body(name: str, action: str, queue: SeenGangQueue) -> Object:
    """Returns the command by which Volcano opens or closes a queue, as `vcctl` makes it."""
    about = {
        "apiVersion": GANG_QUEUES.version,
        "kind": GANG_QUEUES.kind,
        "name": queue.name,
        "uid": queue.uid,
    }
    return {
        "metadata": {"name": name, "ownerReferences": [about]},
        "action": action,
        "target": about,
        "reason": "GpuPortal",
        "message": f"The booking of {queue.name} begins or ends.",
    }


def holder_body(name: str, part: str, node: SeenNode, resource: str, image: str) -> Object:
    """Returns the pod that keeps one device taken."""
    uses = {resource: "1"}
    small = {"cpu": "1m", "memory": "8Mi"}
    return {
        "metadata": {"name": name, "labels": {names.HOLDS: part}},
        "spec": {
            "priorityClassName": names.HOLDER,
            "nodeSelector": {HOSTNAME: node.hostname},
            "tolerations": [{"key": names.NODE, "operator": "Exists", "effect": "NoSchedule"}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "holder",
                    "image": image,
                    "resources": {"requests": {**small, **uses}, "limits": {**small, **uses}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def event_body(kind: Resource, about: SeenGroup | SeenLocal | SeenPod | SeenQuota, notice: Notice) -> Object:
    """Returns the Event of a notice. Its name is of the notice, so each notice has one."""
    digest = hashlib.sha256(notice.id.encode()).hexdigest()[:16]
    since = moment(notice.told)
    return {
        "metadata": {"name": f"{about.name}.{digest}", "namespace": about.namespace},
        "involvedObject": {
            "apiVersion": kind.version,
            "kind": kind.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "type": "Normal",
        "reason": "PauseAnnounced",
        "message": f"The booking is paused at {moment(notice.at)}: save what runs in it.",
        "source": {"component": "gpu-agent"},
        "reportingComponent": "gpu-agent",
        "firstTimestamp": since,
        "lastTimestamp": since,
        "count": 1,
    }


def notice_notes(notice: Notice | None) -> Object:
    """Returns the annotations of a notice; without one those that take it back."""
    if notice is None:
        return {names.PAUSE: None, names.PAUSE_AT: None}
    return {names.PAUSE: notice.id, names.PAUSE_AT: moment(notice.at)}


def moment(at: float) -> str:
    """Returns a time as Kubernetes writes it; `at` is in Unix seconds."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
