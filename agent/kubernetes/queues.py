"""The queues of bookings on one node: a LocalQueue in the project's namespace, whose ClusterQueue has
the booked quota of each node in a flavor of its own.

A flavor is the record of what a booking has on a node. It is made before the queue admits anything
there, and removed only when no pod is left there, so whenever the agent is killed it finds in the
cluster what it has begun. The agents of several nodes of a booking share its queue: each changes its
own flavor's quota, and only if nobody else was first.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from agent.kubernetes import names
from agent.kubernetes.api import (
    CLUSTER_QUEUES,
    EVENTS,
    FLAVORS,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    ApiError,
    Object,
)
from agent.kubernetes.bodies import (
    Quotas,
    event_body,
    flavor_body,
    is_same,
    local_body,
    moment,
    notice_notes,
    queue_body,
    quotas_of,
    resource_groups,
)
from agent.kubernetes.cluster import KubernetesCluster, View
from agent.kubernetes.names import QueueNames, flavor_name, queue_names_of
from agent.kubernetes.objects import (
    Part,
    SeenLocal,
    SeenNode,
    SeenPod,
    SeenQueue,
)
from agent.plan.bookings import NodeWants, WantedBooking, wants_of
from agent.plan.targets import GpuTarget
from agent.ports.gpu import GpuError, RetryLater
from wire import DesiredAllocation, Notice

log = logging.getLogger(__name__)

GRACE_S = 1
"""What a pod gets after the grace of its booking. Not 0: the API server would forget such a pod before
its kubelet has ended it, and the device would only seem to be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """One node. `slot_of` gives the index of a place by its UUID, `resource_of` the resource of a place
    (it raises GpuError where there is none). `now` is in Unix seconds."""

    node: str
    slot_of: Callable[[str], int]
    resource_of: Callable[[int], str]
    now: Callable[[], float] = time.time


@dataclass(slots=True)
class _Turn:
    """What came of one turn."""

    problems: list[str] = field(default_factory=list)
    waits: bool = False


class BookingQueues:
    """See agent.node.Jobs and agent.ports.handover.HandoverGuard."""

    def __init__(self, cluster: KubernetesCluster, settings: QueueSettings) -> None:
        self._cluster = cluster
        self._node = settings.node
        self._settings = settings
        self._wants = NodeWants()
        self._over: dict[str, str] = {}
        self._turn = _Turn()

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
        return self._mine(part, view, view.pods_on(self._node))

    def _mine(self, part: Part, view: View, pods: Iterable[SeenPod]) -> list[SeenPod]:
        queue = view.queues.get(part.queue)
        there = (pod for pod in pods if pod.booking == part.queue)
        return [pod for pod in there if queue is None or pod.namespace == queue.namespace]

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

    def ended(self) -> dict[str, str]:
        """Returns the allocations whose queue can't be there any more although their booking runs, and
        why."""
        return self._over

    # Following.

    def follow(self, targets: Iterable[GpuTarget], *, known: bool) -> list[str]:
        """Takes in what is to run; returns problems. Unless a document is `known` nothing is
        removed."""
        self._wants = wants_of(targets, self._settings.slot_of, _queue_name)
        self._turn = turn = _Turn()
        try:
            view = self._cluster.view()
            self._over = dict(self._lost(view))
            for wanted in self._wants.bookings.values():
                if wanted.given and wanted.first.id not in self._over:
                    self._try(wanted.first.booking, partial(self._running_follow, wanted))
            if known:
                for part in self.parts(view):
                    self._try(part.queue, partial(self._part_leaves, part))
                for queue in view.queues.values():
                    self._try(queue.name, partial(self._kept_remove, queue))
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

    def _running_follow(self, wanted: WantedBooking) -> None:
        self._ensure(wanted, begins=False)
        view, found = self._cluster.view(), queue_names_of(wanted.first)
        local = view.locals.get((self._namespace(wanted, view), found.local))
        if local is not None:
            self._notice_follow(view, local, wanted.first.notice)

    def _notice_follow(self, view: View, local: SeenLocal, notice: Notice | None) -> None:
        """Gives a notice to who works in a queue, or takes it back. The queue itself comes last, so
        that what was interrupted is done again."""
        wanted = "" if notice is None else notice.id
        change: Object = {"metadata": {"annotations": notice_notes(notice)}}
        is_new = local.annotations.get(names.PAUSE, "") != wanted
        if notice is not None and is_new:
            with _unless(lambda error: error.is_conflict):
                self._cluster.create(EVENTS, event_body(local, notice), local.namespace)
        for each in view.workloads.values():
            mine = (each.namespace, each.local) == (local.namespace, local.name)
            if mine and not each.is_over and each.pause != wanted:
                with _unless(lambda error: error.is_missing):
                    self._cluster.patch(WORKLOADS, each.name, change, each.namespace)
        if is_new:
            self._cluster.patch(LOCAL_QUEUES, local.name, change, local.namespace)

    def _lost(self, view: View) -> Iterator[tuple[str, str]]:
        """Yields the allocations that run and can't continue: their namespace has gone, or a part of the
        booking has to leave, with which all of it is drained."""
        ending = {each.id for each in self._wants.ending}
        drained = [each for each in self.parts(view) if ending.intersection(each.allocations)]
        for wanted in self._wants.bookings.values():
            name = queue_names_of(wanted.first).queue
            why = None
            queue = view.queues.get(name)
            if wanted.given and queue is not None and view.is_ending(queue.namespace):
                why = f"the namespace {queue.namespace} was deleted"
            if any(wanted.names.intersection(each.allocations) for each in drained):
                why = f"{name} was drained as a whole"
            if why is not None:
                yield from ((each, why) for each in wanted.names)

    # Handing over.

    def allow(self, allocation: DesiredAllocation, device: str, cores: tuple[int, ...]) -> None:
        """Has the queue of the booking admit work on its places. Raises RetryLater until it does,
        OSError if Kubernetes refuses it, and GpuError if that can't change."""
        if allocation.share is not None:
            raise GpuError("unsupported", "Kubernetes hands out whole GPUs and slices here")
        if allocation.id in self._over:
            raise GpuError("invalid", self._over[allocation.id])
        wanted = self._wants.bookings.get(_queue_name(allocation))
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

    def disallow(self, booking: str, allocation: str) -> None:
        """Does nothing: the queue is a program on the device, and ends as programs do."""

    def _ensure(self, wanted: WantedBooking, *, begins: bool) -> None:
        """Makes what is missing of a booking's objects. Only one that `begins` opens a held queue: its
        former run, or another node's part of it, may be leaving."""
        view = self._cluster.view()
        found, node = queue_names_of(wanted.first), self._seen(view)
        queue = view.queues.get(found.queue)
        flavor = flavor_name(found.queue, self._node)
        run = str(wanted.first.starts)
        kept = {} if queue is None else dict(queue.entries)
        if queue is not None and begins:
            kept, lost = _usable(queue, view, flavor, run)
            if lost:
                self._taken_over(queue, view, lost)
        namespace = self._namespace(wanted, view)
        self._part_ensure(wanted, view.parts.get(flavor), found.queue, node)
        quotas = quotas_of(((each, self._settings.resource_of(slot)) for each, slot in wanted.parts), node)
        if queue is None:
            self._cluster.create(CLUSTER_QUEUES, queue_body(found.queue, namespace, {flavor: quotas}))
            log.info("%s has %s", flavor, quotas)
        else:
            self._queue_change(queue, {**kept, flavor: quotas}, begins=begins)
        self._local_ensure(found, namespace, view.locals.get((namespace, found.local)), wanted.ends)

    def _taken_over(self, queue: SeenQueue, view: View, lost: Collection[str]) -> None:
        """Has what a former run has on lost nodes evicted, so that nothing of it begins again there. Raises
        RetryLater until then. What hangs on those nodes is for their agents to end."""
        if queue.stop != "HoldAndDrain":
            self._queue_patch(queue, {"stopPolicy": "HoldAndDrain"}, {})
            raise RetryLater("its former run is being drained")
        if any(each.flavors.intersection(lost) for each in view.workloads.values()):
            raise RetryLater("its former run is being drained")

    def _namespace(self, wanted: WantedBooking, view: View) -> str:
        """Returns where the booking's queue is, or is to be: people's work stays with it while the
        namespace is their organisation's. Raises OSError."""
        queue = view.queues.get(queue_names_of(wanted.first).queue)
        there = None if queue is None else view.namespaces.get(queue.namespace)
        if there is not None and there.tenant == wanted.first.tenant:
            return there.name
        found = view.namespace_of(wanted.first)
        if queue is not None:
            raise OSError(f"{queue.name} is a queue of the namespace {queue.namespace}, not of {found}")
        return found

    def _seen(self, view: View) -> SeenNode:
        node = view.nodes.get(self._node)
        if node is None:
            raise GpuError("lost", f"Kubernetes knows no node {self._node}")
        return node

    def _part_ensure(self, wanted: WantedBooking, part: Part | None, queue: str, node: SeenNode) -> None:
        places = ",".join(map(str, wanted.slots))
        allocations = ",".join(sorted(wanted.names))
        if part is not None and part.is_ending:
            raise RetryLater(f"the flavor {part.name} is being deleted")
        if part is not None and wanted.names.isdisjoint(part.allocations):
            raise RetryLater("its former run has not left")
        notes = {
            names.NODE: self._node,
            names.PLACES: places,
            names.ALLOCATIONS: allocations,
            names.RUN: str(wanted.first.starts),
        }
        if part is not None:
            if (part.places, set(part.allocations)) != (wanted.slots, set(wanted.names)):
                self._cluster.patch(FLAVORS, part.name, {"metadata": {"annotations": notes}})
            return
        name = flavor_name(queue, self._node)
        self._cluster.create(FLAVORS, flavor_body(name, queue, node, notes))

    def _queue_change(self, queue: SeenQueue, entries: Mapping[str, Quotas], *, begins: bool) -> None:
        change: Object = {}
        same = queue.entries.keys() == entries.keys()
        if not same or not all(is_same(queue.entries[name], each) for name, each in entries.items()):
            change["resourceGroups"] = resource_groups(entries)
        if begins and queue.stop != "None":
            change["stopPolicy"] = "None"
        if change:
            self._queue_patch(queue, change, {names.PAUSED: None} if queue.is_paused else {})
            log.info("%s: %s", queue.name, change)

    def _queue_patch(self, queue: SeenQueue, spec: Object, notes: Object) -> None:
        """Changes a queue that nobody has changed meanwhile."""
        meta: Object = {"resourceVersion": queue.version}
        if notes:
            meta["annotations"] = notes
        self._cluster.patch(CLUSTER_QUEUES, queue.name, {"metadata": meta, "spec": spec})

    def _local_ensure(self, found: QueueNames, namespace: str, local: SeenLocal | None, ends: int) -> None:
        notes = {names.ENDS: moment(ends)}
        if local is None:
            try:
                self._cluster.create(LOCAL_QUEUES, local_body(found, notes), namespace)
            except ApiError as error:
                if not error.is_conflict:
                    raise
                text = f"there is a LocalQueue {namespace}/{found.local} that is not the portal's"
                raise OSError(text) from error
        elif local.is_ending:
            raise RetryLater(f"the LocalQueue {local.name} is being deleted")
        elif local.queue != found.queue:
            raise OSError(f"the LocalQueue {namespace}/{local.name} belongs to {local.queue}")
        elif local.annotations.get(names.ENDS) != notes[names.ENDS]:
            self._cluster.patch(LOCAL_QUEUES, local.name, {"metadata": {"annotations": notes}}, namespace)

    def _active(self, wanted: WantedBooking) -> None:
        """Raises RetryLater until Kueue says that it admits work of the booking."""
        view, found = self._cluster.view(), queue_names_of(wanted.first)
        local = view.locals.get((self._namespace(wanted, view), found.local))
        for each in (view.queues.get(found.queue), local):
            if each is None or each.trouble is None:
                raise RetryLater("Kueue has not taken its queue yet")
            if each.trouble:
                raise RetryLater(f"Kueue: {each.trouble}")

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

    def _held(self, part: Part, view: View) -> bool:
        """Has the queue of a part admit nothing more and evict what runs; returns whether it was so."""
        queue = view.queues.get(part.queue)
        if queue is None or queue.is_ending or queue.stop == "HoldAndDrain":
            return True
        if part.name not in queue.entries:
            # A run that began elsewhere has taken the queue over.
            return True
        self._queue_patch(queue, {"stopPolicy": "HoldAndDrain"}, {})
        log.info("%s is held and drained", queue.name)
        return False

    def _part_leaves(self, part: Part) -> None:
        """Removes a part that no booking wants, once nothing of it is left on the node."""
        wanted = self._wants.bookings.get(part.queue)
        ending = [each for each in self._wants.ending if each.id in part.allocations]
        if not ending and wanted is not None and wanted.names.intersection(part.allocations):
            return
        self._turn.waits = True
        view = self._cluster.view()
        if not self._held(part, view):
            return
        pods = self.pods_of(part, view)
        if not ending:
            # No record has them: they were begun before the agent lost its state.
            self._pods_delete(pods, None)
        admitted = [each for each in view.workloads.values() if part.name in each.flavors]
        if admitted or pods or self._mine(part, view, self._cluster.pods_now(self._seen(view))):
            return
        self._entry_remove(part, view, pauses=any(each.notice is not None for each in ending))
        self._cluster.api.delete(FLAVORS, part.name, uid=part.uid)

    def _entry_remove(self, part: Part, view: View, *, pauses: bool) -> None:
        """Takes the quota of a part from its queue. The last one takes the queue along, unless the
        booking pauses and somebody's work waits there for its return."""
        queue = view.queues.get(part.queue)
        if queue is None or queue.is_ending or (queue.entries and part.name not in queue.entries):
            return
        rest = {name: quotas for name, quotas in queue.entries.items() if name != part.name}
        if rest or (pauses and view.has_work(queue)):
            notes = {} if rest else {names.PAUSED: moment(self._settings.now())}
            self._queue_patch(queue, {"resourceGroups": resource_groups(rest) or None}, notes)
        else:
            self._queue_remove(queue, view)

    def _kept_remove(self, queue: SeenQueue) -> None:
        """Removes the queue of a paused booking in which nothing waits any more, and one that was left
        without a part."""
        view = self._cluster.view()
        if queue.is_ending or queue.entries or (queue.is_paused and view.has_work(queue)):
            return
        if queue.name not in self._wants.bookings:
            self._queue_remove(queue, view)

    def _queue_remove(self, queue: SeenQueue, view: View) -> None:
        local = view.local_of(queue)
        if local is not None:
            self._cluster.api.delete(
                LOCAL_QUEUES, local.name, local.namespace, uid=local.uid, version=local.version
            )
        self._cluster.api.delete(CLUSTER_QUEUES, queue.name, uid=queue.uid, version=queue.version)
        log.info("%s is removed", queue.name)


@contextlib.contextmanager
def _unless(expected: Callable[[ApiError], bool]) -> Iterator[None]:
    """Takes an expected refusal for done."""
    try:
        yield
    except ApiError as error:
        if not expected(error):
            raise


def _queue_name(allocation: DesiredAllocation) -> str:
    return queue_names_of(allocation).queue


def _usable(queue: SeenQueue, view: View, flavor: str, run: str) -> tuple[dict[str, Quotas], list[str]]:
    """Returns the quotas of other nodes with which a run may begin, and the flavors of a former run on
    nodes that are lost. Raises RetryLater while another former part leaves."""
    if queue.is_ending:
        raise RetryLater(f"the ClusterQueue {queue.name} is being deleted")
    kept, lost = {}, []
    for name, quotas in queue.entries.items():
        part = view.parts.get(name)
        if name == flavor or part is None:
            continue
        if part.run == run:
            kept[name] = quotas
        elif view.is_lost(part.node):
            lost.append(name)
        else:
            raise RetryLater("its former run has not left its other nodes")
    if kept and queue.stop != "None":
        raise RetryLater("its other nodes are being drained")
    return kept, lost
