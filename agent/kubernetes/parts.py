"""What bookings have on one node, and how it is followed, handed over and ended: the same with Kueue and
without it. What a part is differs: a flavor of a queue, or a PriorityClass with its quota.

A part is the record of what a booking has on a node. It is made before the booking admits anything there,
and removed only when no pod is left there, so whenever the agent is killed it finds in the cluster what
it has begun.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from agent.kubernetes.api import PODS, ApiError
from agent.kubernetes.cluster import KubernetesCluster, View
from agent.kubernetes.names import queue_names_of
from agent.kubernetes.objects import Part, SeenNode, SeenPod
from agent.plan.bookings import NodeWants, WantedBooking, wants_of
from agent.plan.targets import GpuTarget
from agent.ports.gpu import GpuError, RetryLater
from wire import DesiredAllocation, ReportedScript

log = logging.getLogger(__name__)

GRACE_S = 1
"""What a pod gets after the grace of its booking. Not 0: the API server would forget such a pod before
its kubelet has ended it, and the device would only seem to be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSettings:
    """One node. `slot_of` gives the index of a place by its UUID, `resource_of` the resource of a place
    (it raises GpuError where there is none). `now` is in Unix seconds."""

    node: str
    slot_of: Callable[[str], int]
    resource_of: Callable[[int], str]
    now: Callable[[], float] = time.time


@dataclass(slots=True)
class Turn:
    """What came of one turn."""

    problems: list[str] = field(default_factory=list)
    waits: bool = False


class BookingParts(ABC):
    """See agent.node.Jobs and agent.ports.handover.HandoverGuard."""

    def __init__(self, cluster: KubernetesCluster, settings: PartSettings) -> None:
        self._cluster = cluster
        self._node = settings.node
        self._settings = settings
        self._wants = NodeWants()
        self._over: dict[str, str] = {}
        self._turn = Turn()

    # What there is.

    @property
    def is_waiting(self) -> bool:
        """Whether a queue may become active, or empty, at any moment."""
        return self._turn.waits

    @property
    def leaving(self) -> frozenset[int]:
        """Returns the places whose last booking has not left."""
        return self._wants.leaving

    def parts(self, view: View) -> list[Part]:
        """Returns what bookings have on this node."""
        return [each for each in view.parts.values() if each.node == self._node and view.is_open(each)]

    def on(self, slot: int, view: View) -> tuple[int, ...]:
        """Returns the numbers of the part of a booking that has a place, and of its pods."""
        mine = [each for each in self.parts(view) if slot in each.places]
        uids = [uid for each in mine for uid in self.uids_of(each, view)]
        return tuple(view.numbers[uid] for uid in uids)

    def pods_of(self, part: Part, view: View) -> list[SeenPod]:
        """Returns the pods of a booking on this node. Those of another namespace are not its own,
        whatever they say."""
        return self._owned(part, view, view.pods_on(self._node))

    def uids_of(self, part: Part, view: View) -> list[str]:
        """Returns what counts as the programs of a part: itself, and its pods."""
        return [part.uid, *(pod.uid for pod in self.pods_of(part, view))]

    def partners(self, slot: int, view: View) -> frozenset[int]:
        """Returns the other places of a booking that is to begin here and has not."""
        have = {name for each in self.parts(view) for name in each.allocations}
        return self._wants.partners(slot, lambda booking: booking.first.id in have)

    def together(self, allocations: Iterable[str]) -> set[str]:
        """Returns these allocations and the others of their queues."""
        return self._wants.together(allocations)

    def numbers(self) -> dict[str, int]:
        """Returns nothing: a queue has a name and no number."""
        return {}

    def hosts(self) -> dict[str, str]:
        """Returns nothing: pods are on the node itself."""
        return {}

    def scripts(self) -> dict[str, ReportedScript]:
        """Returns nothing: people submit pods of their own."""
        return {}

    def ended(self) -> dict[str, str]:
        """Returns the allocations whose queue can't be there any more although their booking runs, and
        why."""
        return self._over

    # Following.

    def follow(self, targets: Iterable[GpuTarget], *, known: bool) -> list[str]:
        """Takes in what is to run; returns problems. Unless a document is `known` nothing is
        removed."""
        self._wants = wants_of(targets, self._settings.slot_of, queue_name)
        self._turn = turn = Turn()
        try:
            view = self._cluster.view()
            self._over = dict(self._lost(view))
            for wanted in self._wants.bookings.values():
                if wanted.given and wanted.first.id not in self._over:
                    self._try(wanted.first.booking, partial(self._running_follow, wanted))
            if known:
                for part in self.parts(view):
                    self._try(part.queue, partial(self._part_leaves, part))
                self._rest_remove(view)
        except GpuError as error:
            turn.problems.append(str(error))
        return turn.problems

    def _try(self, what: str, change: Callable[[], None]) -> None:
        try:
            change()
        except RetryLater:
            self._turn.waits = True
        except ApiError as error:
            if error.is_conflict:
                # Somebody else was first; what is there now is seen in the next turn.
                self._turn.waits = True
            else:
                self._turn.problems.append(f"{what}: {error}")
        except OSError as error:
            self._turn.problems.append(f"{what}: {error}")

    def _lost(self, view: View) -> Iterator[tuple[str, str]]:
        """Yields the allocations that run and can't continue: their namespace has gone, or a part of the
        booking has to leave, with which all of it is drained."""
        ending = {each.id for each in self._wants.ending}
        drained = [each for each in self.parts(view) if ending.intersection(each.allocations)]
        for wanted in self._wants.bookings.values():
            why = None
            namespace = self._place_of(wanted, view)
            if wanted.given and namespace and view.is_ending(namespace):
                why = f"the namespace {namespace} was deleted"
            if any(wanted.names.intersection(each.allocations) for each in drained):
                why = f"{queue_name(wanted.first)} was drained as a whole"
            if why is not None:
                yield from ((each, why) for each in wanted.names)

    # Handing over.

    def allow(self, allocation: DesiredAllocation, device: str, cores: tuple[int, ...]) -> None:
        """Has the booking admit work on its places. Raises RetryLater until it does,
        OSError if Kubernetes refuses it, and GpuError if that can't change."""
        if allocation.share is not None:
            raise GpuError("unsupported", "Kubernetes hands out whole GPUs and slices here")
        if allocation.id in self._over:
            raise GpuError("invalid", self._over[allocation.id])
        wanted = self._wants.bookings.get(queue_name(allocation))
        if wanted is None or allocation.id not in wanted.names:
            raise RetryLater("its other devices are not known yet")
        try:
            self._ensure(wanted, begins=True)
            self._active(wanted)
        except RetryLater:
            self._turn.waits = True
            raise
        except ApiError as error:
            self._turn.waits = True
            if not error.is_conflict:
                raise
            raise RetryLater(f"Kubernetes has another state: {error}") from error

    def disallow(self, booking: str, allocation: str) -> None:  # noqa: B027 (there is nothing to do)
        """Does nothing: the part is a program on the device, and ends as programs do."""

    def _namespace(self, wanted: WantedBooking, view: View) -> str:
        """Returns where the booking's work is, or is to be: it stays there while the namespace is its
        organisation's. Raises OSError."""
        place = self._place_of(wanted, view)
        there = view.namespaces.get(place)
        if there is not None and there.tenant == wanted.first.tenant:
            return there.name
        found = view.namespace_of(wanted.first)
        if place:
            raise OSError(f"{queue_name(wanted.first)} is of the namespace {place}, not of {found}")
        return found

    def _seen(self, view: View) -> SeenNode:
        node = view.nodes.get(self._node)
        if node is None:
            raise GpuError("lost", f"Kubernetes knows no node {self._node}")
        return node

    # Ending.

    def end(self, slot: int, *, force: bool, only: Iterable[int] | None = None) -> None:
        """Holds and drains the queue of the booking on a place (`only` of these numbers); `force`
        deletes its pods here. Raises GpuError."""
        wanted = None if only is None else set(only)
        view = self._cluster.view()
        try:
            for part in self.parts(view):
                if slot in part.places and (wanted is None or view.numbers[part.uid] in wanted):
                    self._held(part, view)
                    if force:
                        self._pods_delete(self.pods_of(part, view), GRACE_S)
        except OSError as error:
            if isinstance(error, ApiError) and error.is_conflict:
                return
            raise GpuError("driver", str(error)) from error

    def pod_end(self, pod: SeenPod, *, force: bool) -> None:
        """Deletes one pod. Raises ApiError."""
        self._pods_delete([pod], GRACE_S if force else None)

    def _pods_delete(self, pods: Iterable[SeenPod], grace_s: int | None) -> None:
        for pod in pods:
            if grace_s is None and pod.is_leaving:
                continue
            self._cluster.api.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace_s=grace_s)

    def _is_running(self, part: Part) -> bool:
        """Whether a booking that runs has the part."""
        wanted = self._wants.bookings.get(part.queue)
        return wanted is not None and not wanted.names.isdisjoint(part.allocations)

    def _leaving_of(self, part: Part) -> list[DesiredAllocation]:
        return [each for each in self._wants.ending if each.id in part.allocations]

    # What differs with Kueue and without it.

    def is_holder(self, pod: SeenPod) -> bool:
        """Whether a pod only keeps a booking's device taken."""
        return False

    @abstractmethod
    def withheld(self, view: View) -> str | None:
        """Says why no booking begins on the node."""

    @abstractmethod
    def _place_of(self, wanted: WantedBooking, view: View) -> str:
        """Returns the namespace that a booking has; empty for one that has none yet."""

    @abstractmethod
    def _owned(self, part: Part, view: View, pods: Iterable[SeenPod]) -> list[SeenPod]:
        """Returns the pods among these that are a part's own."""

    @abstractmethod
    def _running_follow(self, wanted: WantedBooking) -> None:
        """Keeps what a booking has that runs."""

    @abstractmethod
    def _ensure(self, wanted: WantedBooking, *, begins: bool) -> None:
        """Makes what is missing of a booking's objects. Only one that `begins` opens what was held."""

    @abstractmethod
    def _active(self, wanted: WantedBooking) -> None:
        """Raises RetryLater until work of the booking can begin."""

    @abstractmethod
    def _held(self, part: Part, view: View) -> bool:
        """Has a part admit nothing more and evicts what runs; returns whether it was so."""

    @abstractmethod
    def _part_leaves(self, part: Part) -> None:
        """Removes a part that no booking wants, once nothing of it is left on the node."""

    @abstractmethod
    def _rest_remove(self, view: View) -> None:
        """Removes what was left of bookings without a part."""


def queue_name(allocation: DesiredAllocation) -> str:
    """Returns the name of the allocation's booking."""
    return queue_names_of(allocation).queue
