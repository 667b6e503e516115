"""The API server of Kubernetes over REST. Each call raises ApiError when it refuses or is silent."""

import dataclasses
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

Object = dict[str, Any]
"""An object of Kubernetes, as JSON."""

LIMIT_S = 5.0
PAGE = 500
_SECRETS = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LONGEST_PAUSE_S = 30.0
_MAX_ERROR = 4096


class ApiError(OSError):
    """`status` is that of HTTP, 0 without an answer. `retry_after` is what the server asks for, in
    seconds."""

    def __init__(self, status: int, text: str, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after

    @property
    def is_missing(self) -> bool:
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """Whether somebody else was first: the name is taken, or the object is newer."""
        return self.status == 409

    @property
    def is_gone(self) -> bool:
        """Whether a watch asked for changes that the server has forgotten."""
        return self.status == 410


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects, and where they are."""

    api: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def group(self) -> str:
        return self.api.split("/")[2] if self.api.startswith("/apis/") else ""

    @property
    def version(self) -> str:
        """Returns the `apiVersion` of its objects."""
        return self.api.removeprefix("/apis/").removeprefix("/api/")

    def path(self, name: str = "", namespace: str = "") -> str:
        parts = [self.api, *(("namespaces", namespace) if namespace else ()), self.plural]
        return "/".join((*parts, urllib.parse.quote(name))) if name else "/".join(parts)


KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
NODES = Resource("/api/v1", "nodes", "Node")
PODS = Resource("/api/v1", "pods", "Pod", namespaced=True)
NAMESPACES = Resource("/api/v1", "namespaces", "Namespace")
EVENTS = Resource("/api/v1", "events", "Event", namespaced=True)
FLAVORS = Resource(KUEUE, "resourceflavors", "ResourceFlavor")
CLUSTER_QUEUES = Resource(KUEUE, "clusterqueues", "ClusterQueue")
LOCAL_QUEUES = Resource(KUEUE, "localqueues", "LocalQueue", namespaced=True)
WORKLOADS = Resource(KUEUE, "workloads", "Workload", namespaced=True)
RANKS = Resource("/apis/scheduling.k8s.io/v1", "priorityclasses", "PriorityClass")
QUOTAS = Resource("/api/v1", "resourcequotas", "ResourceQuota", namespaced=True)
GANG_QUEUES = Resource(VOLCANO, "queues", "Queue")
GROUPS = Resource(VOLCANO, "podgroups", "PodGroup", namespaced=True)
COMMANDS = Resource("/apis/bus.volcano.sh/v1alpha1", "commands", "Command", namespaced=True)
CONFIG_MAPS = Resource("/api/v1", "configmaps", "ConfigMap", namespaced=True)
POLICIES = Resource(
    "/apis/admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
)
REVIEWS = Resource("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")


Way = Literal["queue", "volcano", "quota"]
"""What a booking is: a queue of Kueue; a quota with a queue of Volcano; a quota, and pods that hold its
devices."""
Rights = tuple[tuple[Resource, tuple[str, ...]], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WayRights:
    """What the engine needs to be allowed, as the roles in deploy/helm say: everywhere, in the namespaces of
    projects only, and in its own."""

    everywhere: Rights
    in_projects: Rights
    own: Rights = ()


_SEEN: Rights = (
    (NODES, ("list", "watch")),
    (NAMESPACES, ("get", "list", "watch")),
    (PODS, ("list", "watch")),
)
_ENDED: Rights = ((PODS, ("delete",)), (EVENTS, ("create",)))
_QUOTAS: Rights = (
    (QUOTAS, ("list", "watch")),
    (RANKS, ("create", "delete", "get", "list", "patch", "watch")),
    (POLICIES, ("get",)),
)
_OWN_QUOTAS: Rights = ((QUOTAS, ("create", "delete", "patch")),)
_MADE = ("create", "delete", "list", "patch", "watch")
RIGHTS: Mapping[Way, WayRights] = {
    "queue": WayRights(
        everywhere=(
            *_SEEN,
            (FLAVORS, _MADE),
            (CLUSTER_QUEUES, _MADE),
            (LOCAL_QUEUES, ("list", "watch")),
            (WORKLOADS, ("list", "watch")),
        ),
        in_projects=(
            *_ENDED,
            (LOCAL_QUEUES, ("create", "delete", "patch")),
            (WORKLOADS, ("patch",)),
        ),
    ),
    "volcano": WayRights(
        everywhere=(*_SEEN, *_QUOTAS, (GANG_QUEUES, _MADE), (GROUPS, ("list", "watch"))),
        in_projects=(*_ENDED, *_OWN_QUOTAS, (GROUPS, ("patch",))),
        own=((COMMANDS, ("create",)),),
    ),
    "quota": WayRights(
        everywhere=(*_SEEN, *_QUOTAS),
        in_projects=(*_ENDED, *_OWN_QUOTAS),
        own=((PODS, ("create", "delete")),),
    ),
}


OF_SCHEDULER: Rights = ((CONFIG_MAPS, ("get",)),)
"""What lets `doctor` see the settings of Volcano's scheduler, in its namespace. The engine needs it not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, and how the engine signs in. The token is read for each call: the
    kubelet replaces it every hour."""

    url: str
    token: Path | None = None
    ca: Path | None = None


def access_find(
    url: str | None, token: Path | None, ca: Path | None, environment: Mapping[str, str]
) -> Access:
    """Returns the access that the options name, else that of a pod. Raises ValueError."""
    if url:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{url} is no http or https address")
        return Access(url.rstrip("/"), token, ca)
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    if not host:
        raise ValueError("this is no pod of Kubernetes: give --kubernetes-api, as `kubectl proxy` prints it")
    host = f"[{host}]" if ":" in host else host
    address = f"https://{host}:{port or 443}"
    return Access(address, token or _SECRETS / "token", ca or _SECRETS / "ca.crt")


class KubernetesApi:
    """May be used by several threads. A server that asks for a pause gets it from all of them."""

    def __init__(self, access: Access, steady: Callable[[], float] = time.monotonic) -> None:
        """Raises OSError when the certificate of the cluster can't be read."""
        self._access = access
        self._steady = steady
        self._paused_until = 0.0
        self._tls = None
        if access.url.startswith("https:"):
            self._tls = ssl.create_default_context(cafile=str(access.ca) if access.ca else None)

    def version(self) -> str:
        """Returns for example `v1.31.2`."""
        return str(self._call("GET", "/version")["gitVersion"])

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return self._call("GET", resource.path(name, namespace))

    def served(self, api: str) -> bool:
        """Returns whether the server has a group and version of objects."""
        try:
            self._call("GET", api)
        except ApiError as error:
            if error.is_missing:
                return False
            raise
        return True

    def listed(self, resource: Resource, **query: str) -> tuple[list[Object], str]:
        """Returns all objects now, and the version of the list, from which a watch continues."""
        found: list[Object] = []
        query["limit"] = str(PAGE)
        while True:
            page = self._call("GET", resource.path(), query)
            found += page["items"]
            rest = page["metadata"].get("continue")
            if not rest:
                return found, str(page["metadata"]["resourceVersion"])
            query["continue"] = rest

    def watched(self, resource: Resource, version: str, seconds: int, **query: str) -> Iterator[Object]:
        """Yields the changes since a version for so many seconds, and bookmarks."""
        query |= {
            "watch": "1",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
        }
        with self._open("GET", resource.path(), query, limit_s=seconds + LIMIT_S) as answer:
            try:
                for line in answer:
                    yield json.loads(line)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ApiError(0, f"the watch of {resource.plural} broke: {error}") from error

    def create(self, resource: Resource, body: Object, namespace: str = "") -> Object:
        body = {"apiVersion": resource.version, "kind": resource.kind, **body}
        return self._call("POST", resource.path(namespace=namespace), body=body)

    def patch(self, resource: Resource, name: str, change: Object, namespace: str = "") -> Object:
        """Merges a change into an object (RFC 7386). With a `resourceVersion` in it, the object
        must still have that version."""
        kind = "application/merge-patch+json"
        return self._call("PATCH", resource.path(name, namespace), body=change, kind=kind)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        version: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Deletes the object with this `uid`, and this `version` if given; one that is gone is no
        error."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if version is not None:
            body["preconditions"]["resourceVersion"] = version
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            self._call("DELETE", resource.path(name, namespace), body=body)
        except ApiError as error:
            if not error.is_missing:
                raise

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:
        with self._open(method, path, query, body, kind) as answer:
            try:
                found: Object = json.load(answer)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ApiError(0, f"{method} {path}: {error}") from error
        return found

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        kind: str = "application/json",
        limit_s: float = LIMIT_S,
    ) -> http.client.HTTPResponse:
        left = self._paused_until - self._steady()
        if left > 0:
            raise ApiError(429, f"the API server asks for a pause of {left:.0f} s", left)
        address = f"{self._access.url}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "Content-Type": kind, "User-Agent": "gpu-agent"}
        data = None if body is None else json.dumps(body).encode()
        try:
            if self._access.token is not None:
                headers["Authorization"] = f"Bearer {self._access.token.read_text().strip()}"
            request = urllib.request.Request(address, data=data, headers=headers, method=method)  # noqa: S310 - the scheme was checked
            opened: http.client.HTTPResponse = urllib.request.urlopen(  # noqa: S310
                request, timeout=limit_s, context=self._tls
            )
        except urllib.error.HTTPError as error:
            raise self._refused(error, f"{method} {path}") from error
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, f"{method} {path}: {error}") from error
        return opened

    def _refused(self, error: urllib.error.HTTPError, what: str) -> ApiError:
        with error:
            try:
                text = error.read(_MAX_ERROR).decode(errors="replace")
            except (OSError, http.client.HTTPException):
                text = ""
        try:
            text = json.loads(text)["message"]
        except (ValueError, LookupError, TypeError):
            text = text.strip() or error.reason
        pause = 0.0
        if error.code in (429, 503):
            asked = error.headers.get("Retry-After", "1")
            pause = min(float(asked), _LONGEST_PAUSE_S) if asked.isdecimal() else 1.0
            self._paused_until = max(self._paused_until, self._steady() + pause)
        return ApiError(error.code, f"{what}: {error.code} {str(text)[:300]}", pause)
