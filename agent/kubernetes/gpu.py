"""The ports of an agent whose node is a node of Kubernetes.

What a node offers of a resource (`nvidia.com/gpu`, or a MIG profile) are so many places. A booking's
part of its queue is a program on each of its places, and so are its pods on the node; pods of others
take free places, the last ones first.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping

from agent.kubernetes.cluster import EMPTY, KubernetesCluster, KubernetesSite, View
from agent.kubernetes.names import NODE
from agent.kubernetes.objects import Part, SeenNode, SeenPod
from agent.kubernetes.parts import BookingParts
from agent.ports.gpu import GpuError, Reading, Truth
from agent.ports.places import PlacesPort, PlacesWatch, model_of, partners_refusal, reading_of
from agent.ports.programs import ProcessOwner
from wire import InventoryGpu

log = logging.getLogger(__name__)

_NAMESPACE = uuid.UUID("5b0f6a0e-9a55-4f0c-8a43-3d0f5c1b7a2e")
WHOLE = "nvidia.com/gpu"
Models = Mapping[str, tuple[str, int]]


class KubernetesGpus(PlacesPort):
    """See agent.ports.gpu.GpuPort. `models` has name and memory in MiB of products and resources."""

    scheduler = "Kubernetes"

    def __init__(self, cluster: KubernetesCluster, node: str, site: KubernetesSite, models: Models) -> None:
        """Raises GpuError."""
        self._cluster = cluster
        self._name = node
        self._site = site
        self._models = models
        self.queues: BookingParts | None = None
        self._resources: tuple[str, ...] = ()
        self._slots: dict[str, int] = {}
        self._number(self._node(cluster.view()))

    @property
    def gpus(self) -> tuple[str, ...]:
        """Returns the UUIDs in their order."""
        return tuple(self._slots)

    def slot(self, gpu: str) -> int:
        """Returns the index of a place, -1 for an unknown one."""
        return self._slots.get(gpu, -1)

    def resource(self, slot: int) -> str:
        """Returns the resource of a place. Raises GpuError."""
        if not 0 <= slot < len(self._resources):
            raise GpuError("lost", f"{self._name} has no such GPU in Kubernetes")
        return self._resources[slot]

    def _node(self, view: View) -> SeenNode:
        found = view.nodes.get(self._name)
        if found is None:
            raise GpuError("lost", f"Kubernetes knows no node {self._name}")
        return found

    def _number(self, node: SeenNode) -> None:
        """Whole GPUs come first, so that their numbers stay when slices are added."""
        order = sorted(node.capacity, key=lambda name: (name != WHOLE, name))
        found = [(name, index) for name in order for index in range(node.capacity[name])]
        self._resources = tuple(name for name, _ in found)
        self._slots = {
            place_uuid(self._site.id, node.name, name, index): slot
            for slot, (name, index) in enumerate(found)
        }

    def driver(self) -> str:
        return self._site.version

    def inventory(self) -> tuple[InventoryGpu, ...]:
        node = self._node(self._cluster.view())
        self._number(node)
        return tuple(self._inventory(gpu, slot, node) for gpu, slot in self._slots.items())

    def _inventory(self, gpu: str, slot: int, node: SeenNode) -> InventoryGpu:
        name, memory_mb = product_of(self._resources[slot], node.labels, self._models)
        return InventoryGpu(
            index=slot,
            uuid=gpu,
            name=name,
            memory_mb=memory_mb,
            mig_capable=False,
            mode="whole",
            numa=None,
            pci="",
            nvlink_domain=None,
        )

    def truth(self, gpu: str) -> Truth:
        view = self._cluster.view()
        node = self._node(view)
        slot = self.slot(gpu)
        resource = self.resource(slot)
        if node.capacity.get(resource, 0) < self._resources.count(resource):
            raise GpuError("lost", f"{self._name} has {node.capacity.get(resource, 0)} {resource} left")
        if node.damage is not None:
            raise GpuError("lost", node.damage)
        there = self._on(slot, view)
        return Truth(
            gpu,
            "whole",
            processes=len(there),
            holders=tuple(holder_text(number, view) for number in there),
            unready=self._unready(slot, view),
            withheld=self._withheld(node, slot, view),
        )

    def _unready(self, slot: int, view: View) -> str | None:
        if self.queues is None:
            return None
        return partners_refusal(
            self.queues.partners(slot, view), self.queues.leaving, self._takers(view).keys()
        )

    def _withheld(self, node: SeenNode, slot: int, view: View) -> str | None:
        if node.closure is not None:
            return node.closure
        if NODE not in node.labels:
            return f"{node.name} has no label {NODE} in Kubernetes"
        resource = self._resources[slot]
        all_of_it = [number for number, name in enumerate(self._resources) if name == resource]
        sick = node.capacity[resource] - node.usable.get(resource, 0)
        if sick > 0 and slot in all_of_it[-sick:]:
            return f"{node.name} says that {sick} of its {len(all_of_it)} {resource} are unhealthy"
        return None if self.queues is None else self.queues.withheld(view)

    def _on(self, slot: int, view: View) -> tuple[int, ...]:
        mine = self.queues.on(slot, view) if self.queues is not None else ()
        taker = self._takers(view).get(slot)
        return mine if taker is None else (*mine, view.numbers[taker.uid])

    def _takers(self, view: View) -> dict[int, SeenPod]:
        """Returns the pods of others by the place that they take: free ones, the last ones first, then
        booked ones. A place that a booking is leaving is proven empty by that booking alone."""
        parts = [] if self.queues is None else self.queues.parts(view)
        leaving = frozenset() if self.queues is None else self.queues.leaving
        held = {slot for part in parts for slot in part.places}
        found: dict[int, SeenPod] = {}
        for resource, takers in self._others(parts, view).items():
            slots = [slot for slot, name in enumerate(self._resources) if name == resource]
            free = [slot for slot in reversed(slots) if slot not in held and slot not in leaving]
            booked = [slot for slot in reversed(slots) if slot in held and slot not in leaving]
            found |= dict(zip((*free, *booked), takers, strict=False))
        return found

    def _others(self, parts: Iterable[Part], view: View) -> dict[str, list[SeenPod]]:
        """Returns, for each resource, a pod for each GPU that is used beyond what its booking has."""
        left: dict[str, dict[str, int]] = {}
        ours: dict[str, str] = {}
        for part in parts:
            quota = left.setdefault(part.queue, {})
            for slot in part.places:
                name = self._resources[slot] if slot < len(self._resources) else ""
                quota[name] = quota.get(name, 0) + 1
            if self.queues is not None:
                ours |= {pod.uid: part.queue for pod in self.queues.pods_of(part, view)}
        found: dict[str, list[SeenPod]] = {}
        there = (pod for pod in view.pods_on(self._name) if pod.node and not self._is_holder(pod))
        for pod in sorted(there, key=lambda each: each.uid):
            quota = left.get(ours.get(pod.uid, ""), {})
            for name, count in pod.uses.items():
                own = min(count, quota.get(name, 0))
                quota[name] = quota.get(name, 0) - own
                found.setdefault(name, []).extend([pod] * (count - own))
        return found

    def _is_holder(self, pod: SeenPod) -> bool:
        return self.queues is not None and self.queues.is_holder(pod)

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        return self._on(self.slot(gpu), self._cluster.view())

    def end_processes(
        self, gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        """Holds and drains the queue of the booking there; `force` deletes its pods."""
        if self.queues is not None:
            self.queues.end(self.slot(gpu), force=force, only=only)

    def readings(self, gpu: str) -> tuple[Reading, ...]:
        return reading_of(gpu, len(self.pids(gpu, None)))


class KubernetesWatch(PlacesWatch):
    """See agent.ports.gpu.WatchPort."""

    def __init__(self, cluster: KubernetesCluster, gpus: KubernetesGpus) -> None:
        self._cluster = cluster
        self._gpus = gpus

    def users(self, pids: Collection[int]) -> tuple[str, ...]:
        found = (self._cluster.last.numbered.get(pid) for pid in pids)
        return tuple(sorted({owner_text(each) for each in found if isinstance(each, SeenPod)}))

    def hanging(self) -> tuple[str, ...]:
        return self._gpus.gpus if self._cluster.is_silent else ()


class KubernetesPrograms:
    """See agent.ports.programs.Programs. Programs are pods and parts of queues, by number."""

    def __init__(self, cluster: KubernetesCluster, gpus: KubernetesGpus) -> None:
        self._cluster = cluster
        self._gpus = gpus

    def _found(self, pid: int) -> SeenPod | Part | None:
        return self._cluster.last.numbered.get(pid)

    def birth(self, pid: int) -> str | None:
        found = self._found(pid)
        return None if found is None else found.uid

    def owner_of(self, pid: int) -> ProcessOwner:
        """A pod of a booking is the booking's, whoever made it; one of others is its namespace's."""
        names = frozenset(self._names(pid))
        found = self._found(pid)
        return ProcessOwner(names, None if names or not isinstance(found, SeenPod) else owner_text(found))

    def _names(self, pid: int) -> Iterable[str]:
        found, view, queues = self._found(pid), self._cluster.last, self._gpus.queues
        if found is None or queues is None:
            return ()
        parts = queues.parts(view)
        mine = [each for each in parts if found.uid in queues.uids_of(each, view)]
        return (name for each in mine for name in each.allocations)

    def warn(self, pid: int, number: int) -> bool:
        """Pods get no signal before they are ended; their queue has the notice."""
        return False

    def named(self, names: Collection[str]) -> tuple[int, ...]:
        view, queues = self._cluster.last, self._gpus.queues
        if queues is None or view is EMPTY:
            return ()
        mine = [each for each in queues.parts(view) if set(names).intersection(each.allocations)]
        return tuple(view.numbers[uid] for each in mine for uid in queues.uids_of(each, view))

    def write(self, pid: int, text: str) -> int:
        """Pods have no terminals."""
        return 0

    def ask(self, pid: int, birth: str) -> None:
        self._end(pid, birth, force=False)

    def kill(self, pid: int, birth: str) -> None:
        self._end(pid, birth, force=True)

    def _end(self, pid: int, birth: str, *, force: bool) -> None:
        """Ends what is a booking's; never a pod of others."""
        found, queues = self._found(pid), self._gpus.queues
        if queues is None or found is None or found.uid != birth or not any(self._names(pid)):
            return
        end: Callable[[], None]
        if isinstance(found, SeenPod):
            pod = found
            end = lambda: queues.pod_end(pod, force=force)  # noqa: E731
        else:
            slot = found.places[0]
            end = lambda: queues.end(slot, force=force, only=(pid,))  # noqa: E731
        try:
            end()
        except GpuError:
            # The server does not answer, which the report says.
            return
        except OSError as error:
            log.warning("%s: %s", holder_text(pid, self._cluster.last), error)


def owner_text(pod: SeenPod) -> str:
    return f"{pod.namespace}/{pod.name}"


def holder_text(number: int, view: View) -> str:
    """Names a pod or a part of a queue for people."""
    found = view.numbered.get(number)
    if isinstance(found, SeenPod):
        return f"pod {owner_text(found)}"
    return "what has gone meanwhile" if found is None else f"queue {found.queue}"


def place_uuid(cluster: str, node: str, resource: str, index: int) -> str:
    """Returns the UUID of a place: the same whenever the engine starts."""
    return f"kubernetes-{uuid.uuid5(_NAMESPACE, f'{cluster}/{node}/{resource}/{index}')}"


def product_of(resource: str, labels: Mapping[str, str], models: Models) -> tuple[str, int]:
    """Returns name and memory in MiB of a resource's GPUs: by the options, else by the labels of
    NVIDIA's GPU feature discovery. Raises GpuError where nobody says them."""
    product, memory = (labels.get(f"{resource}.{key}", "") for key in ("product", "memory"))
    found = models.get(product) or model_of(resource, models)
    if found is not None:
        return found
    if product and memory.isdecimal() and int(memory):
        return product.replace("-", " "), int(memory)
    text = f"say what {resource} is: --gpu-models {product or resource}=NAME:MIB"
    raise GpuError("invalid", text)
