"""Bookings on a node of a cluster with Volcano: quotas, and a queue of Volcano for each booking.

The quota is what binds: the API server counts it, for pods of one class, in one namespace, on one node.
The queue lets pods of all nodes of the booking begin together, and nobody else's take their turn. The agents
of several nodes share it: each sums up the quotas that there are, and changes it only if nobody else was
first. It is closed when a part of the booking ends, and what Volcano does then proves nothing.
"""

import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import partial

from agent.kubernetes import names
from agent.kubernetes.api import COMMANDS, GANG_QUEUES, GROUPS, ApiError, Object
from agent.kubernetes.bodies import (
    command_body,
    event_body,
    gang_queue_body,
    gang_queue_spec,
    is_equal,
    moment,
    notice_notes,
)
from agent.kubernetes.cluster import KubernetesCluster, View
from agent.kubernetes.objects import Part, SeenGangQueue, SeenGroup, SeenNode, SeenPod, quantity
from agent.kubernetes.parts import PartSettings
from agent.kubernetes.quotas import BookingQuotas
from agent.plan.bookings import WantedBooking
from agent.ports.gpu import RetryLater
from wire import Notice
from wire.kubernetes_names import gang_queue_name

log = logging.getLogger(__name__)

_REQUESTS = "requests."
OPEN, CLOSE = "OpenQueue", "CloseQueue"


class GangQueues(BookingQuotas):
    """`namespace` is that of the commands by which Volcano opens and closes queues."""

    preempts = False

    def __init__(self, cluster: KubernetesCluster, settings: PartSettings, *, namespace: str) -> None:
        super().__init__(cluster, settings)
        self._own = namespace

    def withheld(self, view: View) -> str | None:
        return None

    # What runs.

    def _devices_keep(
        self, wanted: WantedBooking, part: Part, node: SeenNode, hard: Mapping[str, str], *, begins: bool
    ) -> None:
        view = self._cluster.view()
        name = gang_queue_name(part.queue)
        queue = view.gang_queues.get(name)
        limits, groups = self._limits(part, view, hard), self._groups(part, view)
        ends = moment(wanted.ends)
        if queue is None:
            self._queue_create(name, part, gang_queue_spec(limits, groups), ends)
            return
        self._others_say(queue, view)
        if queue.is_ending:
            raise RetryLater(f"the queue {name} is being deleted")
        continues = begins or not self._is_held(part, view)
        if not queue.is_closed:
            notes: dict[str, str | None] = {names.ENDS: ends}
            notes |= {names.NAMESPACE: part.namespace} if queue.namespace != part.namespace else {}
            notes |= {names.PAUSED: None} if names.PAUSED in queue.annotations and continues else {}
            self._queue_change(queue, limits, groups, notes)
        elif continues:
            self._command(queue, OPEN)

    def _queue_change(
        self,
        queue: SeenGangQueue,
        limits: Mapping[str, str],
        groups: tuple[str, ...],
        notes: Mapping[str, str | None],
    ) -> None:
        """Changes what differs. Volcano takes no change of a queue that is being closed."""
        change: Object = {}
        if not is_equal(queue.limits, limits) or queue.groups != groups:
            change["spec"] = gang_queue_spec(limits, groups, before=queue.limits)
        if any(queue.annotations.get(key) != value for key, value in notes.items()):
            change["metadata"] = {"annotations": dict(notes)}
        if change:
            self._queue_patch(queue, change)

    def _others_say(self, queue: SeenGangQueue, view: View) -> None:
        """Work of other namespaces takes turns of the booking. Its pods can't have the class."""
        others = (each for each in self._in(queue, view) if each.namespace != queue.namespace)
        found = sorted(f"{each.namespace}/{each.name}" for each in others)
        if found:
            self._turn.problems.append(f"{queue.name} has work of other namespaces: {', '.join(found)}")

    def _limits(self, part: Part, view: View, hard: Mapping[str, str]) -> dict[str, str]:
        """Returns what the booking's quotas on all of its nodes sum up to."""
        there = {each.name for each in _of_run(part, view)}
        total: dict[str, Decimal] = {}
        others = (
            each.hard
            for each in view.quotas.values()
            if each.part in there and each.part != part.name and not each.is_held
        )
        for each in (hard, *others):
            for key, count in each.items():
                name = key.removeprefix(_REQUESTS)
                total[name] = total.get(name, Decimal(0)) + quantity(count)
        return {name: _count(count) for name, count in sorted(total.items())}

    def _groups(self, part: Part, view: View) -> tuple[str, ...]:
        """Returns the node groups of the booking's nodes, which matter to a plugin of Volcano."""
        nodes = {part.node, *(each.node for each in _of_run(part, view))}
        labels = (view.nodes[name].labels for name in nodes if name in view.nodes)
        return tuple(sorted({each[names.NODE_GROUP] for each in labels if names.NODE_GROUP in each}))

    def _is_held(self, part: Part, view: View) -> bool:
        """Whether some of the run is ending, here or on another node."""
        there = {each.name for each in _of_run(part, view)}
        return any(each.is_held for each in view.quotas.values() if each.part in there)

    def _queue_create(self, name: str, part: Part, spec: Object, ends: str) -> None:
        notes = {names.ENDS: ends, names.NAMESPACE: part.namespace}
        body = gang_queue_body(name, part.queue, spec, notes)
        try:
            self._cluster.create(GANG_QUEUES, body)
        except ApiError as error:
            if not error.is_conflict:
                raise
            raise OSError(f"there is a queue {name} of Volcano that is not the portal's") from error
        log.info("%s is made", name)

    def _queue_patch(self, queue: SeenGangQueue, change: Object) -> None:
        """Changes a queue that nobody has changed meanwhile."""
        meta = {**change.get("metadata", {}), "resourceVersion": queue.version}
        self._cluster.patch(GANG_QUEUES, queue.name, {**change, "metadata": meta})
        log.info("%s: %s", queue.name, change)

    def _command(self, queue: SeenGangQueue, action: str) -> None:
        """Asks Volcano to open or close a queue: one command at a time, which Volcano removes."""
        try:
            self._cluster.create(COMMANDS, command_body(queue.name, action, queue), self._own)
        except ApiError as error:
            if not error.is_conflict:
                raise
        else:
            log.info("%s: %s", queue.name, action)
        self._turn.waits = True

    def _devices_kept(self, part: Part, view: View) -> None:
        queue = view.gang_queues.get(gang_queue_name(part.queue))
        if queue is None or queue.state != "Open" or names.PAUSED in queue.annotations:
            raise RetryLater("Volcano has not opened its queue yet")

    def _notice_pass(self, part: Part, view: View, notice: Notice | None) -> None:
        """The queue comes last, so that what was interrupted is done again."""
        queue = view.gang_queues.get(gang_queue_name(part.queue))
        if queue is None:
            return
        wanted = "" if notice is None else notice.id
        change: Object = {"metadata": {"annotations": notice_notes(notice)}}
        for each in self._groups_in(queue, view):
            if each.pause != wanted:
                if notice is not None:
                    self._event(event_body(GROUPS, each, notice), each.namespace)
                self._group_patch(each, change)
        if queue.annotations.get(names.PAUSE, "") != wanted and not queue.is_closed:
            self._queue_patch(queue, change)

    def _group_patch(self, group: SeenGroup, change: Object) -> None:
        try:
            self._cluster.patch(GROUPS, group.name, change, group.namespace)
        except ApiError as error:
            if not error.is_missing:
                raise

    def _groups_in(self, queue: SeenGangQueue, view: View) -> list[SeenGroup]:
        """Returns the groups of the booking whose pods run or wait in its queue."""
        return [each for each in self._in(queue, view) if each.namespace == queue.namespace]

    def _in(self, queue: SeenGangQueue, view: View) -> Iterable[SeenGroup]:
        return (each for each in view.groups.values() if each.queue == queue.name and not each.is_over)

    # Ending.

    def _devices_close(self, part: Part, view: View) -> None:
        """A failure does not keep the part from ending, which its quota proves."""
        queue = view.gang_queues.get(gang_queue_name(part.queue))
        if queue is None or queue.is_closed or queue.is_ending:
            return
        if any(each.queue == part.queue and each.run != part.run for each in view.parts.values()):
            # A run that began elsewhere has taken the queue over.
            return
        pauses = any(each.notice is not None for each in self._leaving_of(part))
        self._try(queue.name, partial(self._queue_close, queue, pauses=pauses))

    def _queue_close(self, queue: SeenGangQueue, *, pauses: bool) -> None:
        if pauses is not (names.PAUSED in queue.annotations):
            # Before it is being closed: Volcano takes no change of it then.
            notes = {names.PAUSED: moment(self._settings.now()) if pauses else None}
            self._queue_patch(queue, {"metadata": {"annotations": notes}})
        self._command(queue, CLOSE)

    def _devices_left(self, part: Part, view: View, now: Iterable[SeenPod]) -> bool:
        return True

    def _rest_remove(self, view: View) -> None:
        super()._rest_remove(view)
        begun = {*self._wants.bookings, *(each.queue for each in view.parts.values())}
        for queue in view.gang_queues.values():
            if queue.booking not in begun and not queue.is_ending:
                self._try(queue.name, partial(self._queue_remove, queue, view))

    def _queue_remove(self, queue: SeenGangQueue, view: View) -> None:
        """Removes a queue that no booking has. That of a pause stays while somebody's work waits in it:
        Volcano ends a job of its own whose queue is not there."""
        if names.PAUSED in queue.annotations and self._groups_in(queue, view):
            return
        if not queue.is_closed:
            self._command(queue, CLOSE)
        elif queue.pods:
            self._turn.waits = True
        else:
            self._cluster.api.delete(GANG_QUEUES, queue.name, uid=queue.uid)
            log.info("%s is removed", queue.name)


def _of_run(part: Part, view: View) -> list[Part]:
    """Returns what a run of a booking has on all nodes."""
    there = view.parts.values()
    return [each for each in there if (each.queue, each.run) == (part.queue, part.run)]


def _count(amount: Decimal) -> str:
    """Returns a quantity as Kubernetes writes it: whole, or in thousandths."""
    return str(int(amount)) if amount == amount.to_integral_value() else f"{int(amount * 1000)}m"
