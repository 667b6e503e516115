"""What runs next to an API server, as far as the tests need it: Kueue, the Job controller, the scheduler
and kubelets. Each pass does what the objects ask for; a thread makes one after every change."""

import contextlib
import copy
import threading
from collections import Counter
from collections.abc import Collection
from typing import Any

from agent.kubernetes import api
from agent.kubernetes.api import Object
from agent.kubernetes.objects import gpus_of, quantity
from tests.kubernetes.store import JOBS, Refusal, Store, seconds_since
from tests.kubernetes.volcano import SCHEDULER, Volcano

QUEUE = "kueue.x-k8s.io/queue-name"
IN_USE = "kueue.x-k8s.io/resource-in-use"
STUBBORN = "tests/stubborn"
"""Label of pods that ignore TERM."""
EVERY_S = 0.02


class Controllers:
    """`is_kueue_up`: without it nothing is admitted or evicted. `is_volcano_up`: it does its part."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_kueue_up = True
        self.is_volcano_up = False
        self.volcano = Volcano(store, self._suits)
        self.counts_quotas = True
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5)
        assert self.error is None, self.error

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self.store.news:
                    self._pass()
                    self.store.news.wait(EVERY_S)
            except Exception as error:
                self.error = error
                raise
            # Others need the lock, too.
            self._stopped.wait(EVERY_S / 4)

    def _pass(self) -> None:
        if self.is_kueue_up:
            self._flavors()
            self._cluster_queues()
            self._local_queues()
            self._workloads()
        if self.counts_quotas:
            self._quotas()
        self._jobs()
        if self.is_volcano_up:
            self.volcano.turn()
        self._schedule()
        self._kubelets()

    # Kueue.

    def _flavors(self) -> None:
        used = {name for queue in self.store.all(api.CLUSTER_QUEUES) for name in _flavors_of(queue)}
        for flavor in self.store.all(api.FLAVORS):
            self._finalizer(api.FLAVORS, flavor, held=flavor["metadata"]["name"] in used)

    def _cluster_queues(self) -> None:
        for queue in self.store.all(api.CLUSTER_QUEUES):
            name = queue["metadata"]["name"]
            held = any(_admitted_in(each) == name for each in self.store.all(api.WORKLOADS))
            if self._finalizer(api.CLUSTER_QUEUES, queue, held=held):
                continue
            missing = [each for each in _flavors_of(queue) if self.store.find(api.FLAVORS, each) is None]
            reason, text = "Ready", "Can admit new workloads"
            if queue["spec"].get("stopPolicy", "None") != "None":
                reason, text = "Stopped", "Can't admit new workloads: is stopped."
            elif missing:
                reason, text = "FlavorNotFound", f"Can't admit new workloads: references missing {missing}."
            self._active(api.CLUSTER_QUEUES, queue, reason, text)

    def _local_queues(self) -> None:
        for local in self.store.all(api.LOCAL_QUEUES):
            queue = self.store.find(api.CLUSTER_QUEUES, local["spec"]["clusterQueue"])
            reason, text = "Ready", "Can submit new workloads to localQueue"
            if queue is None:
                reason, text = "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
            elif not _is(queue, "Active"):
                reason, text = "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"
            self._active(api.LOCAL_QUEUES, local, reason, text)

    def _finalizer(self, resource: api.Resource, data: Object, *, held: bool) -> bool:
        """Keeps an object that is in use; returns whether it is to be deleted."""
        meta = data["metadata"]
        if "deletionTimestamp" not in meta:
            if not meta.get("finalizers"):
                self.store.patch(resource, meta["name"], {"metadata": {"finalizers": [IN_USE]}})
            return False
        if not held:
            self.store.patch(resource, meta["name"], {"metadata": {"finalizers": None}})
        return True

    def _active(self, resource: api.Resource, data: Object, reason: str, text: str) -> None:
        status = "True" if reason == "Ready" else "False"
        self._condition(resource, data, "Active", status, reason, text)

    def _condition(
        self,
        resource: api.Resource,
        data: Object,
        kind: str,
        status: str,
        reason: str,
        text: str,
        **fields: Any,  # noqa: ANN401 (JSON)
    ) -> None:
        meta = data["metadata"]
        found = self.store.find(resource, meta["name"], meta.get("namespace", ""))
        if found is None:
            return
        old = [each for each in found.get("status", {}).get("conditions", []) if each["type"] != kind]
        new = {"type": kind, "status": status, "reason": reason, "message": text}
        new["lastTransitionTime"] = meta["creationTimestamp"]
        change = {"status": {"conditions": [*old, new], **fields}}
        self.store.patch(resource, meta["name"], change, meta.get("namespace", ""))

    def _workloads(self) -> None:
        for job in self.store.all(JOBS):
            queue = job["metadata"].get("labels", {}).get(QUEUE)
            if queue and self.store.find(api.WORKLOADS, *_place(job)) is None and not _is(job, "Complete"):
                self._workload_create(job, queue)
        for workload in self.store.all(api.WORKLOADS):
            self._workload(workload)

    def _workload_create(self, job: Object, queue: str) -> None:
        name, namespace = _place(job)
        template = copy.deepcopy(job["spec"]["template"])
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        count = job["spec"].get("parallelism", 1)
        spec = {"queueName": queue, "podSets": [{"name": "main", "count": count, "template": template}]}
        body = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
        self.store.create(api.WORKLOADS, body, namespace)

    def _workload(self, workload: Object) -> None:
        name, namespace = _place(workload)
        job = self.store.find(JOBS, name, namespace)
        if job is None:
            self.store.remove(api.WORKLOADS, name, namespace)
            return
        if _is(job, "Complete"):
            if not _is(workload, "Finished"):
                self._condition(
                    api.WORKLOADS, workload, "Finished", "True", "JobFinished", "done", admission=None
                )
            return
        local = self.store.find(api.LOCAL_QUEUES, workload["spec"]["queueName"], namespace)
        queue = local and self.store.find(api.CLUSTER_QUEUES, local["spec"]["clusterQueue"])
        if _admitted_in(workload):
            holds = self.store.find(api.CLUSTER_QUEUES, _admitted_in(workload))
            if holds is not None and holds["spec"].get("stopPolicy") == "HoldAndDrain":
                self._evict(workload, job)
        elif queue and _is(queue, "Active") and self._may_use(queue, namespace):
            self._admit(workload, queue)

    def _may_use(self, queue: Object, namespace: str) -> bool:
        labels = self.store.get(api.NAMESPACES, namespace)["metadata"]["labels"]
        wanted = queue["spec"].get("namespaceSelector", {}).get("matchLabels", {})
        return all(labels.get(key) == value for key, value in wanted.items())

    def _admit(self, workload: Object, queue: Object) -> None:
        """Gives the one pod set the first flavor that has room for all that it requests."""
        (pods,) = workload["spec"]["podSets"]
        needs = {name: count * pods["count"] for name, count in _needs(pods["template"]["spec"]).items()}
        used: Counter[tuple[str, str]] = Counter()
        for other in self.store.all(api.WORKLOADS):
            for each in other.get("status", {}).get("admission", {}).get("podSetAssignments", ()):
                for name, flavor in each["flavors"].items():
                    used[flavor, name] += quantity(each["resourceUsage"][name])  # type: ignore[assignment]
        for flavor, quotas in _flavors_of(queue).items():
            if all(
                name in quotas and need <= quotas[name] - used[flavor, name] for name, need in needs.items()
            ):
                assigned = {
                    "name": "main",
                    "count": pods["count"],
                    "flavors": dict.fromkeys(needs, flavor),
                    "resourceUsage": {name: str(need) for name, need in needs.items()},
                }
                admission = {"clusterQueue": queue["metadata"]["name"], "podSetAssignments": [assigned]}
                self._condition(
                    *(api.WORKLOADS, workload, "Admitted", "True", "Admitted", "admitted"),
                    admission=admission,
                )
                return

    def _evict(self, workload: Object, job: Object) -> None:
        """Suspends the job; its quota is free when its pods are asked to end, though they may hang."""
        name, namespace = _place(job)
        if not job["spec"].get("suspend"):
            self.store.patch(JOBS, name, {"spec": {"suspend": True}}, namespace)
        elif all("deletionTimestamp" in pod["metadata"] for pod in self._pods_of(job)):
            self._condition(
                *(api.WORKLOADS, workload, "Admitted", "False", "Evicted", "The ClusterQueue is stopped"),
                admission=None,
            )

    # Quotas, jobs, the scheduler, kubelets.

    def _quotas(self) -> None:
        for quota in self.store.all(api.QUOTAS):
            name, namespace = _place(quota)
            change = {"hard": dict.fromkeys(quota.get("status", {}).get("hard", ())) | quota["spec"]["hard"]}
            self.store.patch(api.QUOTAS, name, {"status": change}, namespace)

    def _jobs(self) -> None:
        for job in self.store.all(JOBS):
            name, namespace = _place(job)
            pods = self._pods_of(job)
            workload = self.store.find(api.WORKLOADS, name, namespace)
            is_queued = QUEUE in job["metadata"].get("labels", {})
            admitted = _admitted_in(workload) if workload else ""
            if job["spec"].get("suspend"):
                for pod in pods:
                    if "deletionTimestamp" not in pod["metadata"]:
                        self.store.delete(api.PODS, *_place(pod), {})
                if is_queued and admitted and workload and not pods and self._resumes(admitted):
                    self.store.patch(JOBS, name, {"spec": {"suspend": False}}, namespace)
            elif is_queued and not admitted:
                self.store.patch(JOBS, name, {"spec": {"suspend": True}}, namespace)
            elif not _is(job, "Complete"):
                self._pods_create(job, pods, workload)

    def _resumes(self, queue: str) -> bool:
        found = self.store.find(api.CLUSTER_QUEUES, queue)
        return found is not None and found["spec"].get("stopPolicy", "None") == "None"

    def _pods_of(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        return [each for each in self.store.all(api.PODS) if _owner(each) == uid]

    def _pods_create(self, job: Object, pods: list[Object], workload: Object | None) -> None:
        name, namespace = _place(job)
        spec = copy.deepcopy(job["spec"]["template"]["spec"])
        meta = job["spec"]["template"].get("metadata", {})
        sets = workload["status"]["admission"]["podSetAssignments"] if workload else ()
        for flavor in {flavor for each in sets for flavor in each["flavors"].values()}:
            found = self.store.get(api.FLAVORS, flavor)["spec"]
            spec.setdefault("nodeSelector", {}).update(found.get("nodeLabels", {}))
            spec["tolerations"] = [*spec.get("tolerations", []), *found.get("tolerations", [])]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        for _ in range(job["spec"].get("parallelism", 1) - len(pods)):
            made = {"generateName": f"{name}-", "ownerReferences": [owner], **copy.deepcopy(meta)}
            with contextlib.suppress(Refusal):  # It tries again.
                self.store.create(api.PODS, {"metadata": made, "spec": spec}, namespace)

    def _schedule(self) -> None:
        there = (each for each in self.store.all(api.PODS) if "nodeName" not in each["spec"])
        waiting = [each for each in there if each["spec"].get("schedulerName") != SCHEDULER]
        for pod in sorted(waiting, key=lambda each: -_priority(each)):
            if "deletionTimestamp" not in pod["metadata"]:
                self._place_find(pod)

    def _place_find(self, pod: Object) -> None:
        name, namespace = _place(pod)
        nodes = [node for node in self.store.all(api.NODES) if self._suits(node, pod)]
        for node in nodes:
            if self._fits(node, pod):
                bound = {"nodeName": node["metadata"]["name"]}
                status = {"phase": "Running", "conditions": None, "nominatedNodeName": None}
                self.store.patch(api.PODS, name, {"spec": bound, "status": status}, namespace)
                return
        chosen = next((node for node in nodes if self._preempts(node, pod)), None)
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        said["message"] = f"0/{len(nodes)} nodes have what it requests"
        change: Object = {"phase": "Pending", "conditions": [said]}
        if chosen is not None:
            change["nominatedNodeName"] = chosen["metadata"]["name"]
        self.store.patch(api.PODS, name, {"status": change}, namespace)

    def _preempts(self, node: Object, pod: Object) -> bool:
        """Ends pods of less priority if that makes room: those with most of it are kept first."""
        if pod["spec"].get("preemptionPolicy") == "Never":
            return False
        there = [each for each in self.store.all(api.PODS) if _is_on(each, node) and not is_over(each)]
        less = sorted((each for each in there if _priority(each) < _priority(pod)), key=_importance)
        gone = {each["metadata"]["uid"] for each in less}
        if not gone or not self._fits(node, pod, gone):
            return False
        for each in less:
            if self._fits(node, pod, gone - {each["metadata"]["uid"]}):
                gone.discard(each["metadata"]["uid"])
        for each in less:
            if each["metadata"]["uid"] in gone and "deletionTimestamp" not in each["metadata"]:
                self.store.delete(api.PODS, *_place(each), {})
        return True

    def _suits(self, node: Object, pod: Object) -> bool:
        labels = node["metadata"]["labels"]
        selector = pod["spec"].get("nodeSelector", {})
        if node["spec"].get("unschedulable") or not _is(node, "Ready"):
            return False
        if any(labels.get(key) != value for key, value in selector.items()):
            return False
        tolerated = {each["key"] for each in pod["spec"].get("tolerations", ())}
        return all(each["key"] in tolerated for each in node["spec"].get("taints", ()))

    def _fits(self, node: Object, pod: Object, gone: Collection[str] = ()) -> bool:
        """Whether a node has room, without pods that are `gone`, and with those that were promised it."""
        used: Counter[str] = Counter()
        for other in self.store.all(api.PODS):
            meta, promised = other["metadata"], other.get("status", {}).get("nominatedNodeName")
            comes = promised == node["metadata"]["name"] and _priority(other) >= _priority(pod)
            counts = _is_on(other, node) or ("nodeName" not in other["spec"] and comes)
            if counts and not is_over(other) and meta["uid"] not in {*gone, pod["metadata"]["uid"]}:
                used.update(_gpus(other))
        room = gpus_of(node["status"]["allocatable"])
        return all(count <= room.get(kind, 0) - used[kind] for kind, count in _gpus(pod).items())

    def _kubelets(self) -> None:
        ready = {node["metadata"]["name"] for node in self.store.all(api.NODES) if _is(node, "Ready")}
        for pod in self.store.all(api.PODS):
            meta, node = pod["metadata"], pod["spec"].get("nodeName")
            if "deletionTimestamp" not in meta or (node is not None and node not in ready):
                continue
            stubborn = STUBBORN in meta.get("labels", {})
            if node is None or not stubborn or seconds_since(meta["deletionTimestamp"]) >= 0:
                self.store.remove(api.PODS, *_place(pod))


def _priority(pod: Object) -> int:
    return int(pod["spec"].get("priority", 0))


def _importance(pod: Object) -> tuple[int, int]:
    """Sorts those first that are ended last."""
    return -_priority(pod), int(pod["metadata"]["resourceVersion"])


def _is_on(pod: Object, node: Object) -> bool:
    return bool(pod["spec"].get("nodeName") == node["metadata"]["name"])


def _needs(spec: Object) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for each in spec["containers"]:
        for name, count in each["resources"]["requests"].items():
            total[name] += quantity(count)  # type: ignore[assignment]
    return dict(total)


def _gpus(pod: Object) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in pod["spec"]["containers"]:
        total.update(gpus_of(each["resources"]["limits"]))
    return dict(total)


def _flavors_of(queue: Object) -> dict[str, dict[str, Any]]:
    return {
        flavor["name"]: {each["name"]: quantity(each["nominalQuota"]) for each in flavor["resources"]}
        for group in queue["spec"].get("resourceGroups", ())
        for flavor in group["flavors"]
    }


def _admitted_in(workload: Object) -> str:
    return str(workload.get("status", {}).get("admission", {}).get("clusterQueue", ""))


def _is(data: Object, kind: str) -> bool:
    conditions = data.get("status", {}).get("conditions", ())
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def is_over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _owner(data: Object) -> str:
    return next((str(each["uid"]) for each in data["metadata"].get("ownerReferences", ())), "")


def _place(data: Object) -> tuple[str, str]:
    """Returns name and namespace."""
    return data["metadata"]["name"], data["metadata"].get("namespace", "")
