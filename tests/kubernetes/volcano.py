"""Volcano next to an API server, as far as the tests need it: its webhooks, controllers and scheduler."""

import contextlib
import copy
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from agent.kubernetes import api
from agent.kubernetes.api import Object, Resource
from agent.kubernetes.names import NODE_GROUP
from agent.kubernetes.objects import quantity
from tests.kubernetes.store import JOBS, VOLCANO_JOBS, Refusal, Store

SCHEDULER = "volcano"
GROUP = "scheduling.k8s.io/group-name"
GANG_QUEUE = "scheduling.volcano.sh/queue-name"
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"


def review(store: Store, method: str, resource: Resource, name: str) -> None:
    """What its webhook says to a change of a queue: none while it is being closed, and no deletion of one
    whose pods have places."""
    queue = store.find(api.GANG_QUEUES, name) if resource is api.GANG_QUEUES else None
    if queue is None:
        return
    status = queue.get("status", {})
    if method in ("PATCH", "PUT") and status.get("state") not in (None, "Open", "Closed"):
        raise _denied(f"queue state must be in [Open Closed], not {status['state']}")
    if method == "DELETE" and status.get("allocated", {}).get("pods", "0") != "0":
        raise _denied(f"queue {name} cannot be deleted because it has allocated Pods")


def group_review(store: Store, group: Object) -> None:
    """What its webhook says to a new PodGroup."""
    name = group["spec"].get("queue", "default")
    queue = store.find(api.GANG_QUEUES, name)
    if name != "default" and _state(queue) != "Open":
        raise _denied(f"can only submit PodGroup to queue with state `Open`, not {name}")


def _denied(text: str) -> Refusal:
    return Refusal(400, "BadRequest", f'admission webhook "volcano.sh" denied the request: {text}')


def _state(queue: Object | None) -> str:
    return "" if queue is None else str(queue.get("status", {}).get("state", ""))


class Volcano:
    """`suits` says whether a node takes a pod, without regard to its room. `has_groups`: its scheduler has
    the plugin `nodegroup`."""

    def __init__(self, store: Store, suits: Callable[[Object, Object], bool]) -> None:
        self.store = store
        self.has_groups = False
        self._suits = suits

    def turn(self) -> None:
        self._commands()
        self._queues()
        self._jobs()
        self._groups()
        for group in sorted(self.store.all(api.GROUPS), key=_version):
            self._begin(group)

    # Its controllers.

    def _commands(self) -> None:
        for command in self.store.all(api.COMMANDS):
            meta, name = command["metadata"], command["target"]["name"]
            self.store.remove(api.COMMANDS, meta["name"], meta["namespace"])
            queue = self.store.find(api.GANG_QUEUES, name)
            if queue is not None:
                closed = "Closing" if self._in(name) else "Closed"
                self._status(queue, state="Open" if command["action"] == "OpenQueue" else closed)

    def _queues(self) -> None:
        for queue in self.store.all(api.GANG_QUEUES):
            name, state = queue["metadata"]["name"], _state(queue)
            if not state:
                self.store.patch(api.GANG_QUEUES, name, {"spec": {"parent": "root"}})
                self._status(queue, state="Open")
            elif state == "Closing" and not self._in(name):
                self._status(queue, state="Closed")
            placed = sum(len(self._placed(group)) for group in self._in(name))
            self._status(queue, allocated={"pods": str(placed)})

    def _status(self, data: Object, **change: Any) -> None:  # noqa: ANN401 (JSON)
        meta = data["metadata"]
        resource = api.GANG_QUEUES if data["kind"] == "Queue" else api.GROUPS
        self.store.patch(resource, meta["name"], {"status": change}, meta.get("namespace", ""))

    def _in(self, queue: str) -> list[Object]:
        return [each for each in self.store.all(api.GROUPS) if each["spec"].get("queue") == queue]

    def _jobs(self) -> None:
        """A job of Volcano's own has its pods made when its group may begin."""
        for job in self.store.all(VOLCANO_JOBS):
            meta, spec = job["metadata"], job["spec"]
            name = f"{meta['name']}-{meta['uid']}"
            group = self.store.find(api.GROUPS, name, meta["namespace"])
            if group is None:
                self._group_create(name, job, spec["queue"], spec["minAvailable"])
                continue
            if group["status"]["phase"] == "Pending":
                continue
            for task in spec["tasks"]:
                for index in range(task.get("replicas", 1)):
                    self._pod_create(f"{meta['name']}-{task['name']}-{index}", job, task["template"], name)

    def _pod_create(self, name: str, job: Object, template: Object, group: str) -> None:
        namespace = job["metadata"]["namespace"]
        if self.store.find(api.PODS, name, namespace) is not None:
            return
        meta = {"name": name, "annotations": {GROUP: group}, "ownerReferences": [_owner_of(job)]}
        spec = {**copy.deepcopy(template["spec"]), "schedulerName": SCHEDULER}
        with contextlib.suppress(Refusal):  # It tries again.
            self.store.create(api.PODS, {"metadata": meta, "spec": spec}, namespace)

    def _groups(self) -> None:
        there = {
            each["metadata"]["uid"]
            for kind in (JOBS, VOLCANO_JOBS, api.PODS)
            for each in self.store.all(kind)
        }
        for pod in self.store.all(api.PODS):
            notes = pod["metadata"].get("annotations", {})
            if pod["spec"].get("schedulerName") == SCHEDULER and GROUP not in notes:
                self._group_of(pod, notes.get(GANG_QUEUE, "default"))
        for group in self.store.all(api.GROUPS):
            meta = group["metadata"]
            owners = {each["uid"] for each in meta.get("ownerReferences", ())}
            if owners and not owners & there:
                self.store.remove(api.GROUPS, meta["name"], meta["namespace"])
            else:
                self._status(group, phase=self._phase(group))

    def _phase(self, group: Object) -> str:
        pods = self._pods(group)
        if pods and all(_is_over(each) for each in pods):
            return "Completed"
        if len(self._placed(group)) >= group["spec"].get("minMember", 1):
            return "Running"
        is_open = _state(self.store.find(api.GANG_QUEUES, group["spec"]["queue"])) == "Open"
        has_begun = group.get("status", {}).get("phase", "Pending") != "Pending"
        return "Inqueue" if is_open or has_begun else "Pending"

    def _group_of(self, pod: Object, queue: str) -> None:
        """Makes the group of an ordinary pod: one for all pods of its Job."""
        meta = pod["metadata"]
        owners = {each["uid"] for each in meta.get("ownerReferences", ())}
        job = next((each for each in self.store.all(JOBS) if each["metadata"]["uid"] in owners), None)
        owner = pod if job is None else job
        least = int(owner["metadata"].get("annotations", {}).get(MIN_MEMBER, 1))
        name = f"podgroup-{owner['metadata']['uid']}"
        if self.store.find(api.GROUPS, name, meta["namespace"]) is None:
            self._group_create(name, owner, queue, least)
        if self.store.find(api.GROUPS, name, meta["namespace"]) is not None:
            change = {"metadata": {"annotations": {GROUP: name}}}
            self.store.patch(api.PODS, meta["name"], change, meta["namespace"])

    def _group_create(self, name: str, owner: Object, queue: str, least: int) -> None:
        body = {
            "metadata": {"name": name, "ownerReferences": [_owner_of(owner)]},
            "spec": {"queue": queue, "minMember": least},
            "status": {"phase": "Pending"},
        }
        with contextlib.suppress(Refusal):  # It tries again.
            self.store.create(api.GROUPS, body, owner["metadata"]["namespace"])

    # Its scheduler.

    def _pods(self, group: Object) -> list[Object]:
        meta = group["metadata"]
        there = (
            each for each in self.store.all(api.PODS) if each["metadata"]["namespace"] == meta["namespace"]
        )
        return [each for each in there if each["metadata"].get("annotations", {}).get(GROUP) == meta["name"]]

    def _placed(self, group: Object) -> list[Object]:
        return [each for each in self._pods(group) if "nodeName" in each["spec"] and not _is_over(each)]

    def _begin(self, group: Object) -> None:
        """Gives places to the pods of a group: to as many as begin together, or to none."""
        queue = self.store.find(api.GANG_QUEUES, group["spec"]["queue"])
        if queue is None or _state(queue) != "Open":
            return
        waiting = [
            each
            for each in self._pods(group)
            if "nodeName" not in each["spec"] and "deletionTimestamp" not in each["metadata"]
        ]
        used: Counter[str] = Counter()
        for each in self._in(queue["metadata"]["name"]):
            for pod in self._placed(each):
                used.update(_requests(pod))
        chosen: dict[str, str] = {}
        taken: Counter[tuple[str, str]] = Counter()
        for pod in waiting:
            node = self._node_for(pod, queue, used, taken)
            if node is not None:
                chosen[pod["metadata"]["name"]] = node
                used.update(_requests(pod))
                taken.update({(node, name): count for name, count in _requests(pod).items()})
        if len(self._placed(group)) + len(chosen) < group["spec"].get("minMember", 1):
            return
        for name, node in chosen.items():
            change = {"spec": {"nodeName": node}, "status": {"phase": "Running"}}
            self.store.patch(api.PODS, name, change, group["metadata"]["namespace"])

    def _node_for(
        self, pod: Object, queue: Object, used: Counter[str], taken: Counter[tuple[str, str]]
    ) -> str | None:
        asks, most = _requests(pod), queue["spec"].get("capability", {})
        if any(used[name] + count > quantity(most[name]) for name, count in asks.items() if name in most):
            return None
        for node in self.store.all(api.NODES):
            name = node["metadata"]["name"]
            if not self._suits(node, pod) or not self._is_in_group(node, queue):
                continue
            there: Counter[str] = Counter()
            for other in self.store.all(api.PODS):
                if other["spec"].get("nodeName") == name and not _is_over(other):
                    there.update(_requests(other))
            room = node["status"]["allocatable"]
            if all(
                there[kind] + taken[name, kind] + count <= quantity(room.get(kind, "0"))
                for kind, count in asks.items()
            ):
                return str(name)
        return None

    def _is_in_group(self, node: Object, queue: Object) -> bool:
        wanted = queue["spec"].get("affinity", {}).get("nodeGroupAffinity", {})
        groups = wanted.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        return not self.has_groups or node["metadata"]["labels"].get(NODE_GROUP) in groups


def _requests(pod: Object) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for each in pod["spec"]["containers"]:
        for name, count in each["resources"].get("requests", {}).items():
            total[name] += Decimal(quantity(count))  # type: ignore[assignment]
    return dict(total)


def _owner_of(data: Object) -> Object:
    meta = data["metadata"]
    about = {"apiVersion": data["apiVersion"], "kind": data["kind"]}
    return {**about, "name": meta["name"], "uid": meta["uid"], "controller": True}


def _is_over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _version(data: Object) -> str:
    return str(data["metadata"]["creationTimestamp"])
