"""The queues of bookings on one node: a LocalQueue in the project's namespace, whose ClusterQueue has
the booked quota of each node in a flavor of its own.

A flavor is the record of what a booking has on a node. The agents of several nodes of a booking share
its queue: each changes its own flavor's quota, and only if nobody else was first.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from agent.kubernetes import names
from agent.kubernetes.api import (
    CLUSTER_QUEUES,
    EVENTS,
    FLAVORS,
    LOCAL_QUEUES,
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
from agent.kubernetes.cluster import View
from agent.kubernetes.names import flavor_name, queue_names_of
from agent.kubernetes.objects import (
    Part,
    SeenLocal,
    SeenNode,
    SeenPod,
    SeenQueue,
)
from agent.kubernetes.parts import BookingParts, queue_name
from agent.plan.bookings import WantedBooking
from agent.ports.gpu import RetryLater
from wire import Notice
from wire.kubernetes_names import QueueNames

log = logging.getLogger(__name__)


class BookingQueues(BookingParts):
    """The parts of queues of Kueue."""

    def withheld(self, view: View) -> str | None:
        return None

    def _place_of(self, wanted: WantedBooking, view: View) -> str:
        queue = view.queues.get(queue_name(wanted.first))
        return "" if queue is None else queue.namespace

    def _owned(self, part: Part, view: View, pods: Iterable[SeenPod]) -> list[SeenPod]:
        """Those of another namespace are not its own, whatever they say."""
        queue = view.queues.get(part.queue)
        there = (pod for pod in pods if pod.booking == part.queue)
        return [pod for pod in there if queue is None or pod.namespace == queue.namespace]

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
                self._cluster.create(EVENTS, event_body(LOCAL_QUEUES, local, notice), local.namespace)
        for each in view.workloads.values():
            mine = (each.namespace, each.local) == (local.namespace, local.name)
            if mine and not each.is_over and each.pause != wanted:
                with _unless(lambda error: error.is_missing):
                    self._cluster.patch(WORKLOADS, each.name, change, each.namespace)
        if is_new:
            self._cluster.patch(LOCAL_QUEUES, local.name, change, local.namespace)

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
        ending = self._leaving_of(part)
        if not ending and self._is_running(part):
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
        if admitted or pods or self._owned(part, view, self._cluster.pods_now(self._seen(view))):
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

    def _rest_remove(self, view: View) -> None:
        for queue in view.queues.values():
            self._try(queue.name, partial(self._kept_remove, queue))

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
