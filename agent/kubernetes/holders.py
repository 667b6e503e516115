"""Bookings on a node of a cluster with no scheduler of queues: pods keep their devices taken while nobody
uses them.

A pod of a booking has precedence over the pods that hold devices, so the scheduler ends one of them for
it. Which booking's one does not matter: devices of a node are alike, quotas sum up to what is booked
there, and each agent makes again what is missing of its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from agent.kubernetes.api import PODS
from agent.kubernetes.bodies import RANK, holder_body
from agent.kubernetes.cluster import KubernetesCluster, View
from agent.kubernetes.names import holder_name
from agent.kubernetes.objects import Part, SeenNode, SeenPod
from agent.kubernetes.parts import GRACE_S, PartSettings
from agent.kubernetes.quotas import BookingQuotas
from agent.plan.bookings import WantedBooking
from agent.ports.gpu import RetryLater


class HeldQuotas(BookingQuotas):
    """`namespace` and `image` are those of the pods that hold devices."""

    preempts = True

    def __init__(
        self, cluster: KubernetesCluster, settings: PartSettings, *, namespace: str, image: str
    ) -> None:
        super().__init__(cluster, settings)
        self._own = namespace
        self._image = image

    def withheld(self, view: View) -> str | None:
        """Kubernetes would end pods of others for a booking's before it ends those that hold devices."""
        there = view.pods_on(self._node)
        others = (pod for pod in there if pod.uses and not pod.is_marked and pod.priority < RANK)
        found = sorted(f"{pod.namespace}/{pod.name}" for pod in others)
        if not found:
            return None
        return f"pods of others use GPUs of {self._node}, and would end for a booking's: {', '.join(found)}"

    def is_holder(self, pod: SeenPod) -> bool:
        return bool(pod.holds) and pod.namespace == self._own

    def _holders(self, part: str, view: View) -> list[SeenPod]:
        return [pod for pod in view.pods.values() if pod.holds == part and self.is_holder(pod)]

    def _devices_keep(
        self, wanted: WantedBooking, part: Part, node: SeenNode, hard: Mapping[str, str], *, begins: bool
    ) -> None:
        """Has as many pods hold devices as the booking's own pods leave."""
        view = self._cluster.view()
        booked = Counter(self._settings.resource_of(slot) for slot in part.places)
        mine, there = self.pods_of(part, view), self._holders(part.name, view)
        for resource, count in booked.items():
            placed = sum(pod.uses.get(resource, 0) for pod in mine if pod.node)
            coming = sum(pod.uses.get(resource, 0) for pod in mine if not pod.node and pod.is_chosen)
            held = [pod for pod in there if resource in pod.uses and not pod.is_leaving]
            surplus = len(held) - max(0, count - placed)
            # Those without a node go first.
            for pod in sorted(held, key=lambda each: (bool(each.node), each.name))[: max(0, surplus)]:
                self._pods_delete([pod], GRACE_S)
            taken = {pod.name for pod in there}
            free = [
                name
                for slot in part.places
                if self._settings.resource_of(slot) == resource
                and (name := holder_name(part.name, slot)) not in taken
            ]
            for name in free[: max(0, count - placed - coming - len(held))]:
                body = holder_body(name, part.name, node, resource, self._image)
                self._cluster.create(PODS, body, self._own)

    def _devices_kept(self, part: Part, view: View) -> None:
        """Each is held or used."""
        there = [*self.pods_of(part, view), *self._holders(part.name, view)]
        have = sum(sum(pod.uses.values()) for pod in there if pod.node)
        if have < len(part.places):
            waits = sorted({pod.refusal for pod in there if pod.holds and pod.refusal})
            why = f": {waits[0]}" if waits else ""
            raise RetryLater(f"the pods that hold its devices have no room yet{why}")

    def _devices_left(self, part: Part, view: View, now: Iterable[SeenPod]) -> bool:
        holders = self._holders(part.name, view)
        self._pods_delete((pod for pod in holders if not pod.is_leaving), GRACE_S)
        return not holders and not any(pod.holds == part.name for pod in now)

    def _rest_remove(self, view: View) -> None:
        super()._rest_remove(view)
        for pod in view.pods_on(self._node):
            if self.is_holder(pod) and pod.holds not in view.parts and not pod.is_leaving:
                self._try(pod.name, partial(self._pods_delete, [pod], GRACE_S))
