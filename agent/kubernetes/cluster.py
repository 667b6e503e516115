"""What Kubernetes says now, kept once for all nodes of the engine."""

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

from agent.kubernetes import objects
from agent.kubernetes.api import (
    CLUSTER_QUEUES,
    FLAVORS,
    GANG_QUEUES,
    GROUPS,
    KUEUE,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    QUOTAS,
    RANKS,
    VOLCANO,
    WORKLOADS,
    ApiError,
    KubernetesApi,
    Object,
    Resource,
    Way,
)
from agent.kubernetes.mirror import Key, Mirror
from agent.kubernetes.names import BOOKING, GROUP_POLICY, HOLDER, POLICY, PROJECT, TENANT
from agent.kubernetes.objects import (
    Part,
    SeenGangQueue,
    SeenGroup,
    SeenLocal,
    SeenNamespace,
    SeenNode,
    SeenPod,
    SeenQueue,
    SeenQuota,
    SeenWorkload,
)
from agent.ports.gpu import GpuError
from wire import DesiredAllocation
from wire.kubernetes_names import gang_queue_name

FAILING_S = 10.0
"""A watch that fails for so long makes the view none."""
OLDEST_S = 25.0
"""So does one without an answer for so long. It is longer than a watch lasts."""
FIRST_WAIT_S = 10.0


@dataclasses.dataclass(frozen=True)
class View:
    """Kubernetes at one moment, by name, or by namespace and name. `pods` are those that use GPUs or
    are a booking's, and not over; `parts` are what bookings have on nodes. `numbers` has for each of
    both, by its `uid`, what stands for it where programs have a process id. Without Kueue there are
    `quotas`, and no queues and workloads; with Volcano its `gang_queues` and `groups`."""

    nodes: Mapping[str, SeenNode]
    pods: Mapping[Key, SeenPod]
    namespaces: Mapping[str, SeenNamespace]
    parts: Mapping[str, Part]
    queues: Mapping[str, SeenQueue]
    locals: Mapping[Key, SeenLocal]
    workloads: Mapping[Key, SeenWorkload]
    numbers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    quotas: Mapping[Key, SeenQuota] = dataclasses.field(default_factory=dict)
    gang_queues: Mapping[str, SeenGangQueue] = dataclasses.field(default_factory=dict)
    groups: Mapping[Key, SeenGroup] = dataclasses.field(default_factory=dict)

    @cached_property
    def _pods_by_node(self) -> dict[str, list[SeenPod]]:
        found: dict[str, list[SeenPod]] = {}
        hosts = {node.hostname: node.name for node in self.nodes.values()}
        for pod in self.pods.values():
            # One that a booking's flavor has sent to a node is on its way there.
            where = pod.node or (hosts.get(pod.aims, "") if pod.is_marked else "")
            found.setdefault(where, []).append(pod)
        return found

    def pods_on(self, node: str) -> list[SeenPod]:
        """Returns the pods on a node, or on their way there by the quota of a booking."""
        return self._pods_by_node.get(node, [])

    @cached_property
    def numbered(self) -> dict[int, SeenPod | Part]:
        """Returns pods and parts by the number that stands for them."""
        found: dict[int, SeenPod | Part] = {self.numbers[pod.uid]: pod for pod in self.pods.values()}
        return found | {self.numbers[part.uid]: part for part in self.parts.values()}

    def is_lost(self, node: str) -> bool:
        """Whether what ran on a node counts as lost."""
        found = self.nodes.get(node)
        return found is None or found.damage is not None

    def is_open(self, part: Part) -> bool:
        """Whether a booking has the part: one that is being deleted counts while its queue uses it."""
        queue = self.queues.get(part.queue)
        return not part.is_ending or (queue is not None and part.name in queue.entries)

    def is_ending(self, namespace: str) -> bool:
        """Whether a namespace is no place to work in any more."""
        found = self.namespaces.get(namespace)
        return found is None or found.is_ending

    def local_of(self, queue: SeenQueue) -> SeenLocal | None:
        """Returns the LocalQueue of a booking."""
        return next((each for each in self.locals.values() if each.queue == queue.name), None)

    def has_work(self, queue: SeenQueue) -> bool:
        """Whether somebody's work is in the queue."""
        local = self.local_of(queue)
        if local is None:
            return False
        there = (each for each in self.workloads.values() if each.namespace == local.namespace)
        return any(each.local == local.name and not each.is_over for each in there)

    def namespace_of(self, allocation: DesiredAllocation) -> str:
        """Returns the namespace that the site has labelled for the allocation's project, else for its
        organisation. A namespace has one label, so no two organisations share one. Raises OSError."""
        there = [each for each in self.namespaces.values() if not each.is_ending]
        mine = [each for each in there if each.tenant == allocation.tenant]
        project = allocation.project or ""
        found = sorted(each.name for each in mine if each.project == project)
        found = found or sorted(each.name for each in mine if not each.project)
        if len(found) == 1:
            return found[0]
        label = f"{TENANT}={allocation.tenant}" + (f",{PROJECT}={project}" if project else "")
        if found:
            raise OSError(f"several namespaces are labelled {label}: {', '.join(found)}")
        raise OSError(f"no namespace is labelled {label}")


EMPTY = View({}, {}, {}, {}, {}, {}, {})


class KubernetesCluster:
    """Shared by the agents of all nodes, which are threads. `steady` never jumps."""

    def __init__(
        self, api: KubernetesApi, steady: Callable[[], float] = time.monotonic, *, way: Way = "queue"
    ) -> None:
        self.api = api
        self._kind_of_parts = FLAVORS if way == "queue" else RANKS
        self.last = EMPTY
        """The last view, however old it is."""
        self._steady = steady
        self._news = threading.Condition()
        self._seen = -1
        self._numbers: dict[str, int] = {}
        self._count = itertools.count(1)
        self._mirrors: dict[Resource, Mirror[Any]] = {
            NODES: self._mirror(NODES, objects.node_read),
            PODS: self._mirror(PODS, _pod_kept),
            NAMESPACES: self._mirror(NAMESPACES, objects.namespace_read, labelSelector=TENANT),
            **self._of_way(way),
        }
        for mirror in self._mirrors.values():
            mirror.start()
        with self._news:
            self._news.wait_for(lambda: self._refusal() is None, timeout=FIRST_WAIT_S)

    def _of_way(self, way: Way) -> dict[Resource, Mirror[Any]]:
        if way == "queue":
            return {
                FLAVORS: self._mirror(FLAVORS, _part_kept, labelSelector=BOOKING),
                CLUSTER_QUEUES: self._mirror(CLUSTER_QUEUES, objects.queue_read, labelSelector=BOOKING),
                LOCAL_QUEUES: self._mirror(LOCAL_QUEUES, objects.local_read, labelSelector=BOOKING),
                WORKLOADS: self._mirror(WORKLOADS, objects.workload_read),
            }
        found: dict[Resource, Mirror[Any]] = {
            RANKS: self._mirror(RANKS, _part_kept, labelSelector=BOOKING),
            QUOTAS: self._mirror(QUOTAS, _quota_kept, labelSelector=BOOKING),
        }
        if way == "volcano":
            found[GANG_QUEUES] = self._mirror(GANG_QUEUES, _gang_queue_kept, labelSelector=BOOKING)
            found[GROUPS] = self._mirror(GROUPS, objects.group_read)
        return found

    def _mirror(self, resource: Resource, read: Callable[[Object], Any], **query: str) -> Mirror[Any]:
        return Mirror(self.api, resource, read, self._news, self._steady, **query)

    def stop(self) -> None:
        """Ends the threads that watch, within seconds."""
        for mirror in self._mirrors.values():
            mirror.stop()

    @property
    def is_silent(self) -> bool:
        """Whether the API server has not answered for long."""
        with self._news:
            return self._refusal() is not None

    def view(self) -> View:
        """Returns what Kubernetes says. Raises GpuError while it does not."""
        with self._news:
            refusal = self._refusal()
            if refusal is not None:
                raise GpuError("hangs", f"Kubernetes does not answer: {refusal}")
            changes = sum(mirror.changes for mirror in self._mirrors.values())
            if changes != self._seen:
                self._seen = changes
                self.last = self._copied()
            return self.last

    def _copied(self) -> View:
        def of(resource: Resource) -> dict[Key, Any]:
            return dict(self._mirrors[resource].items) if resource in self._mirrors else {}

        def named(resource: Resource) -> dict[str, Any]:
            return {name: each for (_, name), each in of(resource).items()}

        pods, parts = of(PODS), named(self._kind_of_parts)
        known = self._numbers
        uids = [each.uid for each in (*pods.values(), *parts.values())]
        self._numbers = {uid: known[uid] if uid in known else next(self._count) for uid in uids}
        return View(
            named(NODES),
            pods,
            named(NAMESPACES),
            parts,
            named(CLUSTER_QUEUES),
            of(LOCAL_QUEUES),
            of(WORKLOADS),
            self._numbers,
            of(QUOTAS),
            named(GANG_QUEUES),
            of(GROUPS),
        )

    def _refusal(self) -> str | None:
        """Returns why there is no view."""
        now = self._steady()
        for resource, mirror in self._mirrors.items():
            error = mirror.error or "no answer yet"
            if mirror.answered is None or now - mirror.answered >= OLDEST_S:
                return f"{resource.plural}: {error}"
            if mirror.failing_since is not None and now - mirror.failing_since >= FAILING_S:
                return f"{resource.plural}: {error}"
        return None

    # Asking and changing.

    def pods_now(self, node: SeenNode) -> list[SeenPod]:
        """Returns the pods of bookings on a node, or on their way there, by asking the server and not
        the watch: all that it has stored is in the answer. Raises ApiError."""
        # In this order: a pod that is placed meanwhile is in the second list.
        waiting, _ = self.api.listed(PODS, fieldSelector="spec.nodeName=")
        there, _ = self.api.listed(PODS, fieldSelector=f"spec.nodeName={node.name}")
        coming = [pod for pod in map(_pod_kept, waiting) if pod is not None and pod.aims == node.hostname]
        placed = [pod for pod in map(_pod_kept, there) if pod is not None]
        return [pod for pod in (*coming, *placed) if pod.is_marked]

    def create(self, resource: Resource, body: Object, namespace: str = "") -> None:
        """Raises ApiError."""
        self._take(resource, self.api.create(resource, body, namespace))

    def patch(self, resource: Resource, name: str, change: Object, namespace: str = "") -> None:
        """Raises ApiError."""
        self._take(resource, self.api.patch(resource, name, change, namespace))

    def _take(self, resource: Resource, answer: Object) -> None:
        if resource in self._mirrors:
            self._mirrors[resource].take(answer)


def _pod_kept(data: Object) -> SeenPod | None:
    pod = objects.pod_read(data)
    return pod if (pod.uses or pod.is_marked) and not pod.is_over else None


def _part_kept(data: Object) -> Part | None:
    """Somebody else's flavor may have our label, but not our annotations."""
    try:
        return objects.part_read(data)
    except (LookupError, ValueError):
        return None


def _quota_kept(data: Object) -> SeenQuota | None:
    try:
        return objects.quota_read(data)
    except LookupError:
        return None


def _gang_queue_kept(data: Object) -> SeenGangQueue | None:
    """Somebody else's queue may have our label, and as a copy of one our annotations, but not its name."""
    try:
        found = objects.gang_queue_read(data)
    except LookupError:
        return None
    return found if found.name == gang_queue_name(found.booking) else None


@dataclasses.dataclass(frozen=True, slots=True)
class KubernetesSite:
    """What does not change while the engine runs. `id` is that of the cluster."""

    id: str
    version: str
    way: Way = "queue"


Asked = Literal["auto", "queue", "volcano", "quota"]


def site_read(api: KubernetesApi, asked: Asked = "auto") -> KubernetesSite:
    """`asked` is what a booking is to be. Raises OSError where that can't be."""
    way = way_find(api, asked)
    lacks = scheduler_lack(api, way)
    if lacks:
        raise OSError(lacks)
    missing = chart_missing(api, way)
    if missing:
        raise OSError(f"without Kueue the cluster needs {' and '.join(missing)}, which the chart makes")
    system = api.get(NAMESPACES, "kube-system")
    return KubernetesSite(str(system["metadata"]["uid"]), f"Kubernetes {api.version()}", way)


def way_find(api: KubernetesApi, asked: Asked) -> Way:
    """Returns what a booking is: with `auto` a queue of Kueue where it is served, else one of Volcano where
    the chart has made its policy, else a quota. Raises ApiError."""
    if asked != "auto":
        return asked
    if api.served(KUEUE):
        return "queue"
    return "volcano" if api.served(VOLCANO) and not chart_missing(api, "volcano") else "quota"


def scheduler_lack(api: KubernetesApi, way: Way) -> str:
    """Says that the scheduler of a way is not there; empty where it is. Raises ApiError."""
    if way == "queue" and not api.served(KUEUE):
        return f"the cluster has no Kueue ({KUEUE.removeprefix('/apis/')})"
    if way == "volcano" and not api.served(VOLCANO):
        return f"the cluster has no Volcano ({VOLCANO.removeprefix('/apis/')})"
    return ""


_OF_CHART: Mapping[Way, tuple[tuple[Resource, str], ...]] = {
    "queue": (),
    "volcano": ((POLICIES, POLICY), (POLICIES, GROUP_POLICY)),
    "quota": ((RANKS, HOLDER), (POLICIES, POLICY)),
}


def chart_missing(api: KubernetesApi, way: Way) -> list[str]:
    """Returns what the chart makes for a way and is not there. Raises ApiError."""
    found = []
    for resource, name in _OF_CHART[way]:
        try:
            api.get(resource, name)
        except ApiError as error:
            if not error.is_missing:
                raise
            found.append(f"the {resource.kind} {name}")
    return found


def served_nodes(view: View, label: str) -> list[str]:
    """Returns the names of the nodes with a label."""
    return sorted(node.name for node in _labelled(view.nodes.values(), label))


def _labelled(nodes: Iterable[SeenNode], label: str) -> Iterable[SeenNode]:
    return (node for node in nodes if label in node.labels)
