"""What the API server says, read into what the engine needs. Pure; raises LookupError and ValueError."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from agent.kubernetes import names
from agent.kubernetes.api import Object
from wire.kubernetes_names import RANKS

HOSTNAME = "kubernetes.io/hostname"
_GPU = re.compile(r"nvidia\.com/(gpu|mig-\d+g\.\d+gb(\.[a-z0-9.]+)?)")
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")
_SUFFIX = {
    **dict(zip("numkMGTPE", (Decimal(10) ** n for n in (-9, -6, -3, 3, 6, 9, 12, 15, 18)), strict=True)),
    **{f"{each}i": Decimal(1024) ** n for n, each in enumerate("KMGTPE", 1)},
}


@dataclasses.dataclass(frozen=True, slots=True)
class SeenNode:
    """`capacity` and `usable` count GPUs by resource; `usable` is without the unhealthy ones. `host`
    has the other resources that pods may request, as the node offers them. `is_apart`: its taint keeps
    pods of others away."""

    name: str
    hostname: str
    labels: Mapping[str, str]
    damage: str | None
    closure: str | None
    capacity: Mapping[str, int]
    usable: Mapping[str, int]
    host: Mapping[str, Decimal]
    boot: str
    is_apart: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SeenPod:
    """`booking` is the ClusterQueue whose quota it was admitted in, by the toleration of its flavor;
    `aims` the host name that it asks for. `uses` counts GPUs by resource. `rank` is its PriorityClass,
    `holds` the part of a booking whose devices it keeps taken. `refusal` says why it has no node;
    `is_chosen`: others end for it on its node."""

    uid: str
    namespace: str
    name: str
    node: str
    aims: str
    booking: str
    uses: Mapping[str, int]
    is_over: bool
    is_leaving: bool
    rank: str = ""
    priority: int = 0
    holds: str = ""
    refusal: str = ""
    is_chosen: bool = False

    @property
    def is_marked(self) -> bool:
        """Whether it says that it is a booking's, or keeps a booking's devices."""
        return bool(self.booking or self.holds) or self.rank.startswith(RANKS)


@dataclasses.dataclass(frozen=True, slots=True)
class SeenQueue:
    """A ClusterQueue of ours. `entries` has the quotas by flavor. `trouble` says why it admits nothing;
    None while that is not known."""

    name: str
    uid: str
    version: str
    namespace: str
    stop: str
    entries: Mapping[str, Mapping[str, str]]
    trouble: str | None
    is_ending: bool
    is_paused: bool


@dataclasses.dataclass(frozen=True, slots=True)
class SeenLocal:
    """A LocalQueue of ours; `annotations` are those that the engine writes."""

    namespace: str
    name: str
    uid: str
    version: str
    queue: str
    annotations: Mapping[str, str]
    trouble: str | None
    is_ending: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A ResourceFlavor of ours, or without Kueue a PriorityClass: what one booking has on one node, by the
    index of the places there. All parts of a `run` begin together; after a pause or a loss it is another
    one. Without Kueue `namespace` is where people work."""

    name: str
    uid: str
    queue: str
    node: str
    places: tuple[int, ...]
    allocations: tuple[str, ...]
    run: str
    is_ending: bool
    namespace: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SeenQuota:
    """A ResourceQuota of ours. `part` is the PriorityClass that it is for; `hard` what its pods may
    request, `known` what the API server says of that. `annotations` are those that the engine writes."""

    namespace: str
    name: str
    uid: str
    version: str
    part: str
    node: str
    hard: Mapping[str, str]
    known: Mapping[str, str]
    annotations: Mapping[str, str]
    is_ending: bool

    @property
    def is_held(self) -> bool:
        """Whether it admits no pod."""
        return quantity(self.hard.get("pods", "1")) == 0

    @property
    def is_known(self) -> bool:
        """Whether the API server has taken it in."""
        return {key: quantity(value) for key, value in self.hard.items()} == {
            key: quantity(value) for key, value in self.known.items()
        }


@dataclasses.dataclass(frozen=True, slots=True)
class SeenWorkload:
    """`flavors` are those in whose quota it holds a reservation."""

    uid: str
    namespace: str
    name: str
    local: str
    flavors: frozenset[str]
    is_over: bool
    pause: str


@dataclasses.dataclass(frozen=True, slots=True)
class SeenGangQueue:
    """A queue of Volcano of ours, for the work of one namespace. `booking` is the name of its booking's
    queue; `state` what Volcano says, empty while it has said nothing; `limits` what its pods may request,
    and `groups` the node groups that they may go to. `pods` counts those that have a place."""

    name: str
    uid: str
    version: str
    booking: str
    namespace: str
    state: str
    limits: Mapping[str, str]
    groups: tuple[str, ...]
    annotations: Mapping[str, str]
    pods: int
    is_ending: bool

    @property
    def is_closed(self) -> bool:
        """Whether Volcano has nothing more begin in it, and takes no change of it."""
        return self.state not in ("", "Open")


@dataclasses.dataclass(frozen=True, slots=True)
class SeenGroup:
    """A PodGroup of Volcano: pods that begin together."""

    uid: str
    namespace: str
    name: str
    queue: str
    is_over: bool
    pause: str


@dataclasses.dataclass(frozen=True, slots=True)
class SeenNamespace:
    name: str
    tenant: str
    project: str
    is_ending: bool


def node_read(data: Object) -> SeenNode:
    meta, status, spec = data["metadata"], data.get("status", {}), data.get("spec", {})
    name, labels = meta["name"], meta.get("labels", {})
    ready = _condition(status, "Ready")
    damage = None
    if ready.get("status") != "True":
        why = ready.get("message") or ready.get("reason") or "its kubelet has said nothing"
        damage = f"Kubernetes says that {name} is not ready ({why})"
    closure = f"{name} is cordoned in Kubernetes" if spec.get("unschedulable") else None
    if "deletionTimestamp" in meta:
        closure = f"{name} leaves Kubernetes"
    usable = status.get("allocatable", {})
    return SeenNode(
        name=name,
        hostname=labels.get(HOSTNAME, name),
        labels=labels,
        damage=damage,
        closure=closure,
        capacity=gpus_of(status.get("capacity", {})),
        usable=gpus_of(usable),
        host={key: quantity(usable[key]) for key in HOST if key in usable},
        boot=status.get("nodeInfo", {}).get("bootID", ""),
        is_apart=any(each["key"] == names.NODE for each in spec.get("taints", ())),
    )


HOST = ("cpu", "ephemeral-storage", "memory")
"""Resources of the host that a queue must have a quota of: Kueue admits no pod that requests another."""


def pod_read(data: Object) -> SeenPod:
    meta, spec, status = data["metadata"], data["spec"], data.get("status", {})
    return SeenPod(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        node=spec.get("nodeName", ""),
        aims=spec.get("nodeSelector", {}).get(HOSTNAME, ""),
        booking=_marked(spec.get("tolerations", ())),
        uses=_requests(spec),
        is_over=status.get("phase") in ("Succeeded", "Failed"),
        is_leaving="deletionTimestamp" in meta,
        rank=spec.get("priorityClassName", ""),
        priority=spec.get("priority", 0),
        holds=meta.get("labels", {}).get(names.HOLDS, "") if _is_holder(spec) else "",
        refusal=_condition(status, "PodScheduled").get("message", ""),
        is_chosen="nominatedNodeName" in status,
    )


def _is_holder(spec: Object) -> bool:
    return bool(spec.get("priorityClassName") == names.HOLDER)


def _marked(tolerations: Iterable[Object]) -> str:
    return next((str(each.get("value", "")) for each in tolerations if each.get("key") == names.BOOKING), "")


def _requests(spec: Object) -> dict[str, int]:
    """Returns the GPUs that the kubelet gives to a pod: of its containers together, or of the first
    one that needs more before them."""
    total: Counter[str] = Counter()
    for each in spec.get("containers", ()):
        total.update(gpus_of(each.get("resources", {}).get("limits", {})))
    for each in spec.get("initContainers", ()):
        for name, count in gpus_of(each.get("resources", {}).get("limits", {})).items():
            total[name] = max(total[name], count)
    return {name: count for name, count in total.items() if count}


def queue_read(data: Object) -> SeenQueue:
    meta, spec = data["metadata"], data.get("spec", {})
    return SeenQueue(
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        namespace=spec.get("namespaceSelector", {}).get("matchLabels", {}).get(NAMESPACE_NAME, ""),
        stop=spec.get("stopPolicy") or "None",
        entries={
            flavor["name"]: {each["name"]: str(each["nominalQuota"]) for each in flavor["resources"]}
            for group in spec.get("resourceGroups", ())
            for flavor in group["flavors"]
        },
        trouble=_trouble(data),
        is_ending="deletionTimestamp" in meta,
        is_paused=names.PAUSED in meta.get("annotations", {}),
    )


NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""A label that the API server sets on each namespace."""


def local_read(data: Object) -> SeenLocal:
    meta = data["metadata"]
    notes = meta.get("annotations", {})
    return SeenLocal(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        queue=data.get("spec", {}).get("clusterQueue", ""),
        annotations={key: notes[key] for key in (names.ENDS, names.PAUSE, names.PAUSE_AT) if key in notes},
        trouble=_trouble(data),
        is_ending="deletionTimestamp" in meta,
    )


def part_read(data: Object) -> Part:
    meta = data["metadata"]
    notes = meta["annotations"]
    return Part(
        name=meta["name"],
        uid=meta["uid"],
        queue=meta["labels"][names.BOOKING],
        node=notes[names.NODE],
        places=tuple(int(each) for each in notes[names.PLACES].split(",")),
        allocations=tuple(notes[names.ALLOCATIONS].split(",")),
        run=notes[names.RUN],
        is_ending="deletionTimestamp" in meta,
        namespace=notes.get(names.NAMESPACE, ""),
    )


def quota_read(data: Object) -> SeenQuota:
    meta = data["metadata"]
    notes = meta.get("annotations", {})
    return SeenQuota(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        part=meta["labels"][names.HOLDS],
        node=notes.get(names.NODE, ""),
        hard=data.get("spec", {}).get("hard", {}),
        known=data.get("status", {}).get("hard", {}),
        annotations={key: notes[key] for key in (names.ENDS, names.PAUSE, names.PAUSE_AT) if key in notes},
        is_ending="deletionTimestamp" in meta,
    )


def workload_read(data: Object) -> SeenWorkload:
    meta, status = data["metadata"], data.get("status", {})
    sets = status.get("admission", {}).get("podSetAssignments", ())
    return SeenWorkload(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        local=data.get("spec", {}).get("queueName", ""),
        flavors=frozenset(flavor for each in sets for flavor in each.get("flavors", {}).values()),
        is_over=_condition(status, "Finished").get("status") == "True",
        pause=meta.get("annotations", {}).get(names.PAUSE, ""),
    )


def gang_queue_read(data: Object) -> SeenGangQueue:
    meta, spec, status = data["metadata"], data.get("spec", {}), data.get("status", {})
    notes = meta["annotations"]
    wanted = spec.get("affinity", {}).get("nodeGroupAffinity", {})
    return SeenGangQueue(
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        booking=meta["labels"][names.BOOKING],
        namespace=notes[names.NAMESPACE],
        state=status.get("state", ""),
        limits={name: str(count) for name, count in spec.get("capability", {}).items()},
        groups=tuple(wanted.get("requiredDuringSchedulingIgnoredDuringExecution", ())),
        annotations={key: notes[key] for key in names.OF_QUEUES if key in notes},
        pods=int(quantity(status.get("allocated", {}).get("pods", "0"))),
        is_ending="deletionTimestamp" in meta,
    )


def group_read(data: Object) -> SeenGroup:
    meta = data["metadata"]
    return SeenGroup(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        queue=data.get("spec", {}).get("queue", ""),
        is_over=data.get("status", {}).get("phase") == "Completed",
        pause=meta.get("annotations", {}).get(names.PAUSE, ""),
    )


def namespace_read(data: Object) -> SeenNamespace:
    meta = data["metadata"]
    labels = meta.get("labels", {})
    ending = data.get("status", {}).get("phase") == "Terminating" or "deletionTimestamp" in meta
    return SeenNamespace(meta["name"], labels.get(names.TENANT, ""), labels.get(names.PROJECT, ""), ending)


def _trouble(data: Object) -> str | None:
    """Returns why a queue admits nothing, "" if it does, None while Kueue has not said it."""
    found = _condition(data.get("status", {}), "Active")
    if not found:
        return None
    return "" if found["status"] == "True" else str(found.get("message") or found.get("reason") or "inactive")


def _condition(status: Object, kind: str) -> Object:
    found: Object = next((each for each in status.get("conditions", ()) if each["type"] == kind), {})
    return found


def gpus_of(resources: Mapping[str, Any]) -> dict[str, int]:
    """Returns the numbers of whole GPUs and of MIG slices among resources."""
    found = {name: int(quantity(count)) for name, count in resources.items() if _GPU.fullmatch(name)}
    return {name: count for name, count in found.items() if count}


def quantity(text: object) -> Decimal:
    """Returns a quantity of Kubernetes, as `63500m` or `256Gi`. Raises ValueError."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    number, power, suffix = found.groups()
    if power is not None:
        return Decimal(number).scaleb(int(power))
    return Decimal(number) * (_SUFFIX[suffix] if suffix else 1)
