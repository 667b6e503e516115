"""The objects of the API server of the tests, with versions, finalizers and what changed."""

import copy
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from agent.kubernetes import api
from agent.kubernetes.api import Object, Resource
from tests.kubernetes.validation import problem_of

JOBS = Resource("/apis/batch/v1", "jobs", "Job", namespaced=True)
VOLCANO_JOBS = Resource("/apis/batch.volcano.sh/v1alpha1", "jobs", "Job", namespaced=True)
RESOURCES = (
    *(api.NODES, api.PODS, api.NAMESPACES, api.EVENTS, JOBS),
    *(api.FLAVORS, api.CLUSTER_QUEUES, api.LOCAL_QUEUES, api.WORKLOADS),
    *(api.RANKS, api.QUOTAS, api.POLICIES, api.CONFIG_MAPS),
    *(api.GANG_QUEUES, api.GROUPS, api.COMMANDS, VOLCANO_JOBS),
)
Key = tuple[str, str]


class Refusal(Exception):
    """An answer other than 2xx."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "code": status,
            "reason": reason,
            "message": message,
        }


@dataclass
class Kind:
    """The objects of a resource, and the changes that watches may still ask for."""

    resource: Resource
    objects: dict[Key, Object] = field(default_factory=dict)
    changes: list[tuple[int, str, Object]] = field(default_factory=list)
    oldest: int = 0
    """Changes up to this version are forgotten."""


class Store:
    """All methods hold the lock `news`, and notify it of each change."""

    def __init__(self) -> None:
        self.news = threading.Condition(threading.RLock())
        self.version = 1
        self.kinds = {each: Kind(each) for each in RESOURCES}
        self.problems: list[str] = []
        """What the schemas refused."""
        self.admit: Callable[[Resource, Object], None] = lambda resource, data: None
        """Raises Refusal for an object that may not be made."""

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        with self.news:
            found = self.kinds[resource].objects.get((namespace, name))
            if found is None:
                raise Refusal(404, "NotFound", f'{resource.plural} "{name}" not found')
            return copy.deepcopy(found)

    def find(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        with self.news:
            return copy.deepcopy(self.kinds[resource].objects.get((namespace, name)))

    def all(self, resource: Resource) -> list[Object]:
        with self.news:
            return copy.deepcopy([each for _, each in sorted(self.kinds[resource].objects.items())])

    def create(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        with self.news:
            data = copy.deepcopy({"apiVersion": resource.version, "kind": resource.kind, **body})
            meta = data.setdefault("metadata", {})
            self._check(resource, data)
            if "name" not in meta:
                meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
            if resource.namespaced:
                self.get(api.NAMESPACES, namespace)
                meta["namespace"] = namespace
            key = (meta.get("namespace", ""), meta["name"])
            if key in self.kinds[resource].objects:
                raise Refusal(409, "AlreadyExists", f'{resource.plural} "{meta["name"]}" already exists')
            self.admit(resource, data)
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": _moment(), "generation": 1}
            if resource is api.NAMESPACES:
                meta["labels"] = {**meta.get("labels", {}), "kubernetes.io/metadata.name": meta["name"]}
            return self._put(resource, key, data, "ADDED")

    def patch(self, resource: Resource, name: str, change: Object, namespace: str = "") -> Object:
        """Merges a change (RFC 7386)."""
        with self.news:
            found = self.get(resource, name, namespace)
            version = change.get("metadata", {}).get("resourceVersion")
            return self.replace(resource, _merged(found, change), version)

    def replace(self, resource: Resource, data: Object, version: str | None) -> Object:
        with self.news:
            meta = data["metadata"]
            old = self.get(resource, meta["name"], meta.get("namespace", ""))
            if version not in (None, old["metadata"]["resourceVersion"]):
                text = f'{resource.plural} "{meta["name"]}": the object has been modified'
                raise Refusal(409, "Conflict", text)
            for mine in ("uid", "creationTimestamp", "deletionTimestamp", "resourceVersion"):
                if mine in old["metadata"]:
                    meta[mine] = old["metadata"][mine]
            self._check(resource, data)
            key = (meta.get("namespace", ""), meta["name"])
            if data == old:
                return data
            if data.get("spec") != old.get("spec"):
                meta["generation"] = old["metadata"].get("generation", 1) + 1
            if "deletionTimestamp" in meta and not meta.get("finalizers") and resource is not api.PODS:
                return self._remove(resource, key)
            return self._put(resource, key, data, "MODIFIED")

    def delete(self, resource: Resource, name: str, namespace: str, options: Object) -> Object:
        with self.news:
            data = self.get(resource, name, namespace)
            meta, asked = data["metadata"], options.get("preconditions", {})
            for mine in ("uid", "resourceVersion"):
                if asked.get(mine) not in (None, meta[mine]):
                    raise Refusal(409, "Conflict", f"{mine} in the precondition is not that of the object")
            key = (meta.get("namespace", ""), name)
            grace = options.get("gracePeriodSeconds")
            if resource is api.PODS and grace != 0:
                return self._pod_leaves(key, data, grace)
            if meta.get("finalizers"):
                meta.setdefault("deletionTimestamp", _moment())
                return self._put(resource, key, data, "MODIFIED")
            return self._remove(resource, key)

    def _pod_leaves(self, key: Key, data: Object, grace: int | None) -> Object:
        """A pod leaves when its kubelet says so; a later request may only shorten its grace."""
        meta = data["metadata"]
        if grace is None:
            grace = data["spec"].get("terminationGracePeriodSeconds", 30)
        if "deletionTimestamp" in meta:
            grace = min(grace, meta["deletionGracePeriodSeconds"])
        meta["deletionTimestamp"] = _moment(grace)
        meta["deletionGracePeriodSeconds"] = grace
        return self._put(api.PODS, key, data, "MODIFIED")

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Removes an object whatever holds it."""
        with self.news:
            if (namespace, name) in self.kinds[resource].objects:
                self._remove(resource, (namespace, name))

    def compact(self) -> None:
        """Forgets all changes: a watch from an older version gets 410."""
        with self.news:
            self.version += 1
            for kind in self.kinds.values():
                kind.changes.clear()
                kind.oldest = self.version
            self.news.notify_all()

    def since(self, resource: Resource, version: int) -> Iterator[tuple[int, str, Object]]:
        """Yields the changes after a version. Raises Refusal where they are forgotten."""
        kind = self.kinds[resource]
        if version < kind.oldest:
            raise Refusal(410, "Expired", f"too old resource version: {version} ({kind.oldest})")
        return (change for change in list(kind.changes) if change[0] > version)

    def _check(self, resource: Resource, data: Object) -> None:
        problem = problem_of("VolcanoJob" if resource is VOLCANO_JOBS else resource.kind, data)
        if problem is not None:
            self.problems.append(problem)
            raise Refusal(422, "Invalid", problem)

    def _put(self, resource: Resource, key: Key, data: Object, change: str) -> Object:
        self.version += 1
        data["metadata"]["resourceVersion"] = str(self.version)
        kind = self.kinds[resource]
        kind.objects[key] = data
        kind.changes.append((self.version, change, copy.deepcopy(data)))
        self.news.notify_all()
        return copy.deepcopy(data)

    def _remove(self, resource: Resource, key: Key) -> Object:
        self.version += 1
        kind = self.kinds[resource]
        data = kind.objects.pop(key)
        data["metadata"]["resourceVersion"] = str(self.version)
        kind.changes.append((self.version, "DELETED", copy.deepcopy(data)))
        self.news.notify_all()
        return data


def _merged(old: Any, change: Any) -> Any:  # noqa: ANN401 (JSON)
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    found = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


def _moment(later_s: float = 0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=later_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(moment: str) -> float:
    """Returns how long ago a time of an object was."""
    return time.time() - datetime.fromisoformat(moment).timestamp()
