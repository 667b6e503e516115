"""Pods of Kubernetes as `kubectl get nodes,pods --all-namespaces --output json` prints them. Pure."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

COMMAND = ("kubectl", "get", "nodes,pods", "--all-namespaces", "--output", "json")
"""Prints what a cluster runs; it needs the right to list both."""
BOOKED = "gpu-portal/booking"
"""Key of the toleration of pods that work in a booking, which counts by itself."""
QUEUE = "kueue.x-k8s.io/queue-name"
_RESOURCE = re.compile(r"([a-z0-9-]+)\.com/(gpu|mig-[a-z0-9.]+)")
_PRODUCTS = {"nvidia": "nvidia.com/gpu.product", "amd": "amd.com/gpu.product-name"}
_OVER = ("Succeeded", "Failed")
_LONGEST = 64
_MOST_LENGTH = 64 << 20


@dataclass(frozen=True, slots=True)
class KubernetesPod:
    """A pod that has, or had, GPUs of one type; one with several types is one of these for each.

    `account` is its namespace and `partition` the queue of Kueue that it was in. `limit_seconds` is None
    without a limit.
    """

    number: str
    gpu_type: str
    gpus: int
    account: str
    partition: str
    state: str
    nodes: str
    submitted: datetime
    eligible: datetime
    started: datetime
    ended: datetime | None
    limit_seconds: int | None


def pods_read(text: str) -> Iterator[KubernetesPod]:
    """Yields the pods with GPUs that have a node. Those that wait for one are left out: their type is not
    known yet. Those of bookings are, too.

    Raises:
        ValueError: says what is no such list, or which pod lacks what.
    """
    if len(text) > _MOST_LENGTH:
        raise ValueError(f"it is longer than {_MOST_LENGTH >> 20} MiB")
    try:
        items = json.loads(text)["items"]
        rows = [each for each in items if each["kind"] in ("Node", "Pod")]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError("it is no list of kubectl get --output json") from None
    labels = {
        each["metadata"]["name"]: each["metadata"].get("labels", {})
        for each in rows
        if each["kind"] == "Node"
    }
    for each in rows:
        if each["kind"] == "Pod":
            try:
                yield from _pods(each, labels)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                name = each.get("metadata", {}).get("name", "without a name")
                raise ValueError(f"pod {name} can't be read: {error!r}") from None


def gpus_requested(spec: Mapping[str, Any]) -> dict[str, int]:
    """Returns the GPUs by resource: of a pod's containers together, or of the first one that needs more
    before them."""
    total: Counter[str] = Counter()
    for each in spec.get("containers", ()):
        total.update(_gpus(each))
    for each in spec.get("initContainers", ()):
        for name, count in _gpus(each).items():
            total[name] = max(total[name], count)
    return {name: count for name, count in sorted(total.items()) if count > 0}


def _gpus(container: Mapping[str, Any]) -> dict[str, int]:
    limits = container.get("resources", {}).get("limits", {})
    return {name: int(count) for name, count in limits.items() if _RESOURCE.fullmatch(name)}


def _pods(pod: Mapping[str, Any], labels: Mapping[str, Mapping[str, str]]) -> Iterator[KubernetesPod]:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    node = spec.get("nodeName", "")
    booked = any(each.get("key") == BOOKED for each in spec.get("tolerations", ()))
    if not node or booked:
        return
    submitted = datetime.fromisoformat(meta["creationTimestamp"])
    started = max(submitted, _condition(status, "PodScheduled") or submitted)
    phase = status.get("phase", "Unknown")
    ended = max(started, _end(status) or started) if phase in _OVER else None
    for resource, count in gpus_requested(spec).items():
        yield KubernetesPod(
            number=str(meta["uid"])[:_LONGEST] if meta["uid"] else _missing("uid"),
            gpu_type=_type(resource, labels.get(node, {}))[:_LONGEST],
            gpus=count,
            account=meta["namespace"],
            partition=meta.get("labels", {}).get(QUEUE, "")[:_LONGEST],
            state=str(status.get("reason") or phase)[:24],
            nodes=node,
            submitted=submitted,
            eligible=submitted,
            started=started,
            ended=ended,
            limit_seconds=spec.get("activeDeadlineSeconds"),
        )


def _type(resource: str, labels: Mapping[str, str]) -> str:
    """Returns for example `NVIDIA-H100-80GB-HBM3`, with the profile of a slice."""
    maker, kind = resource.split(".com/")
    product = labels.get(f"{resource}.product") or labels.get(_PRODUCTS.get(maker, ""), "")
    return product if kind == "gpu" or not product else f"{product} {kind.replace('-', ' ', 1)}"


def _missing(what: str) -> str:
    raise ValueError(f"it has no {what}")


def _end(status: Mapping[str, Any]) -> datetime | None:
    """When the last container ended; where none has begun, the last change of a condition."""
    states = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    ends = [each.get("state", {}).get("terminated", {}).get("finishedAt") for each in states]
    times = [each for each in ends if each]
    times = times or [
        each["lastTransitionTime"] for each in status.get("conditions", ()) if each.get("lastTransitionTime")
    ]
    return max((datetime.fromisoformat(each) for each in times), default=None)


def _condition(status: Mapping[str, Any], kind: str) -> datetime | None:
    found = (each for each in status.get("conditions", ()) if each["type"] == kind)
    at = next((each.get("lastTransitionTime") for each in found if each.get("status") == "True"), None)
    return datetime.fromisoformat(at) if at else None
