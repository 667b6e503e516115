"""Bookings on a node of a cluster without Kueue: a ResourceQuota of what is booked for pods of the
booking's PriorityClass.

The PriorityClass is the part: the quota is for pods that name it, and the chart's policy keeps it to its
namespace and node. What keeps the devices for the booking's pods is another module's: pods that hold
them (`holders`), or a queue of Volcano (`volcano`).
"""

import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial

from agent.kubernetes import names
from agent.kubernetes.api import EVENTS, PODS, QUOTAS, RANKS, ApiError, Object
from agent.kubernetes.bodies import (
    event_body,
    hard_of,
    is_equal,
    moment,
    notice_notes,
    quota_body,
    rank_body,
)
from agent.kubernetes.cluster import View
from agent.kubernetes.names import queue_names_of, quota_name
from agent.kubernetes.objects import Part, SeenNode, SeenPod, SeenQuota
from agent.kubernetes.parts import BookingParts, queue_name
from agent.plan.bookings import WantedBooking
from agent.ports.gpu import RetryLater
from wire import Notice
from wire.kubernetes_names import rank_name

log = logging.getLogger(__name__)


class BookingQuotas(BookingParts):
    """`preempts`: whether the scheduler ends pods of less priority for pods of bookings."""

    preempts: bool

    # What there is.

    def _place_of(self, wanted: WantedBooking, view: View) -> str:
        part = view.parts.get(self._rank(wanted))
        return "" if part is None else part.namespace

    def _rank(self, wanted: WantedBooking) -> str:
        return rank_name(queue_name(wanted.first), self._node)

    def _part(self, wanted: WantedBooking, view: View) -> Part:
        found = view.parts.get(self._rank(wanted))
        if found is None:
            raise RetryLater("its PriorityClass was deleted")
        return found

    def _owned(self, part: Part, view: View, pods: Iterable[SeenPod]) -> list[SeenPod]:
        return [pod for pod in pods if (pod.rank, pod.namespace) == (part.name, part.namespace)]

    def _quota_of(self, part: Part, view: View) -> SeenQuota | None:
        mine = (each for each in view.quotas.values() if each.part == part.name)
        return next((each for each in mine if each.namespace == part.namespace), None)

    # What runs.

    def _running_follow(self, wanted: WantedBooking) -> None:
        self._ensure(wanted, begins=False)
        view = self._cluster.view()
        part = self._part(wanted, view)
        quota = self._quota_of(part, view)
        self._notice_pass(part, view, wanted.first.notice)
        if quota is not None:
            self._notice_follow(view, part, quota, wanted.first.notice)

    def _notice_follow(self, view: View, part: Part, quota: SeenQuota, notice: Notice | None) -> None:
        """Gives a notice to who works there, or takes it back. The quota comes last, so that what was
        interrupted is done again."""
        wanted = "" if notice is None else notice.id
        if quota.annotations.get(names.PAUSE, "") == wanted:
            return
        if notice is not None:
            seen: list[SeenPod | SeenQuota] = [quota, *self.pods_of(part, view)]
            for each in seen:
                resource = PODS if isinstance(each, SeenPod) else QUOTAS
                self._event(event_body(resource, each, notice), each.namespace)
        change: Object = {"metadata": {"annotations": notice_notes(notice)}}
        self._cluster.patch(QUOTAS, quota.name, change, quota.namespace)

    def _event(self, body: Object, namespace: str) -> None:
        try:
            self._cluster.create(EVENTS, body, namespace)
        except ApiError as error:
            if not error.is_conflict:
                raise

    def _ensure(self, wanted: WantedBooking, *, begins: bool) -> None:
        """The quota comes first: without one, pods of the class would have no limit."""
        view = self._cluster.view()
        node, old = self._seen(view), view.parts.get(self._rank(wanted))
        if old is not None and wanted.names.isdisjoint(old.allocations):
            raise RetryLater("its former run has not left")
        part = self._part_of(wanted, self._namespace(wanted, view))
        hard = hard_of(((each, self._settings.resource_of(slot)) for each, slot in wanted.parts), node)
        self._quota_ensure(wanted, part, hard, begins=begins)
        if old is None:
            self._quota_known(part)
        self._part_ensure(part, old, node)
        self._devices_keep(wanted, part, node, hard, begins=begins)

    def _part_of(self, wanted: WantedBooking, namespace: str) -> Part:
        return Part(
            name=self._rank(wanted),
            uid="",
            queue=queue_name(wanted.first),
            node=self._node,
            places=wanted.slots,
            allocations=tuple(sorted(wanted.names)),
            run=str(wanted.first.starts),
            is_ending=False,
            namespace=namespace,
        )

    def _part_ensure(self, part: Part, old: Part | None, node: SeenNode) -> None:
        notes = {
            names.NODE: part.node,
            names.NAMESPACE: part.namespace,
            names.HOST: node.hostname,
            names.PLACES: ",".join(map(str, part.places)),
            names.ALLOCATIONS: ",".join(part.allocations),
            names.RUN: part.run,
        }
        if old is None:
            self._cluster.create(RANKS, rank_body(part.name, part.queue, notes, preempts=self.preempts))
            log.info("%s is made for %s", part.name, part.namespace)
        elif (part.places, set(part.allocations)) != (old.places, set(old.allocations)):
            self._cluster.patch(RANKS, part.name, {"metadata": {"annotations": notes}})

    def _quota_known(self, part: Part) -> None:
        quota = self._quota_of(part, self._cluster.view())
        if quota is None or not quota.is_known:
            raise RetryLater("Kubernetes has not taken its quota yet")

    def _quota_ensure(
        self, wanted: WantedBooking, part: Part, hard: Mapping[str, str], *, begins: bool
    ) -> None:
        """Only a booking that `begins` opens a quota that was held."""
        name = quota_name(queue_names_of(wanted.first).local, self._node)
        notes = {names.ENDS: moment(wanted.ends), names.NODE: self._node}
        quota = self._quota_of(part, self._cluster.view())
        if quota is None:
            self._quota_create(part, name, hard, notes)
            return
        if quota.is_ending:
            raise RetryLater(f"the ResourceQuota {quota.name} is being deleted")
        change: Object = {}
        if not is_equal(quota.hard, hard) and (begins or not quota.is_held):
            change["spec"] = {"hard": dict.fromkeys(quota.hard) | dict(hard)}
        if quota.annotations.get(names.ENDS) != notes[names.ENDS]:
            change["metadata"] = {"annotations": notes}
        if change:
            change.setdefault("metadata", {})["resourceVersion"] = quota.version
            self._cluster.patch(QUOTAS, quota.name, change, quota.namespace)
            log.info("%s: %s", quota.name, change)

    def _quota_create(self, part: Part, name: str, hard: Mapping[str, str], notes: Mapping[str, str]) -> None:
        try:
            self._cluster.create(QUOTAS, quota_body(name, part, hard, notes), part.namespace)
        except ApiError as error:
            if not error.is_conflict or self._quota_of(part, self._cluster.view()) is not None:
                raise
            text = f"there is a ResourceQuota {part.namespace}/{name} that is not the portal's"
            raise OSError(text) from error

    def _active(self, wanted: WantedBooking) -> None:
        """Raises RetryLater until the quota is in force, and its devices are kept."""
        view = self._cluster.view()
        part = self._part(wanted, view)
        self._quota_known(part)
        self._devices_kept(part, view)

    # Ending.

    def _held(self, part: Part, view: View) -> bool:
        quota = self._quota_of(part, view)
        if view.is_ending(part.namespace):
            # No pod can be made there any more.
            self._pods_delete(self.pods_of(part, view), None)
            return True
        if quota is None:
            name = quota_name(part.queue.rpartition(".")[2], self._node)
            self._quota_create(part, name, {"pods": "0"}, {names.NODE: self._node})
            return False
        if not quota.is_held:
            meta = {"resourceVersion": quota.version}
            change = {"metadata": meta, "spec": {"hard": {"pods": "0"}}}
            self._cluster.patch(QUOTAS, quota.name, change, quota.namespace)
            log.info("%s is held", quota.name)
        # From here on what there is can only become less.
        self._pods_delete(self.pods_of(part, view), None)
        self._devices_close(part, view)
        return quota.is_held and quota.is_known

    def _part_leaves(self, part: Part) -> None:
        if not self._leaving_of(part) and self._is_running(part):
            return
        self._turn.waits = True
        view = self._cluster.view()
        if not self._held(part, view) or self.pods_of(part, view):
            return
        now = self._cluster.pods_now(self._seen(view))
        if self._owned(part, view, now) or not self._devices_left(part, view, now):
            return
        self._cluster.api.delete(RANKS, part.name, uid=part.uid)
        quota = self._quota_of(part, view)
        if quota is not None:
            self._quota_delete(quota)
        log.info("%s has left", part.name)

    def _rest_remove(self, view: View) -> None:
        """Quotas whose booking has no part here: the agent was killed."""
        begun = {*view.parts, *map(self._rank, self._wants.bookings.values())}
        for quota in view.quotas.values():
            if quota.node == self._node and quota.part not in begun and not quota.is_ending:
                self._try(quota.name, partial(self._quota_delete, quota))

    def _quota_delete(self, quota: SeenQuota) -> None:
        self._cluster.api.delete(QUOTAS, quota.name, quota.namespace, uid=quota.uid)

    # What keeps the devices for a booking's pods.

    @abstractmethod
    def _devices_keep(
        self, wanted: WantedBooking, part: Part, node: SeenNode, hard: Mapping[str, str], *, begins: bool
    ) -> None:
        """Has the devices of a part kept; `hard` is what its pods may request."""

    @abstractmethod
    def _devices_kept(self, part: Part, view: View) -> None:
        """Raises RetryLater until they are."""

    @abstractmethod
    def _devices_left(self, part: Part, view: View, now: Iterable[SeenPod]) -> bool:
        """Keeps them no more; returns whether nothing holds one. `now` are the pods of bookings."""

    def _devices_close(self, part: Part, view: View) -> None:
        """Has nothing more begin on them."""

    def _notice_pass(self, part: Part, view: View, notice: Notice | None) -> None:
        """Gives a notice to more than pods, or takes it back."""
