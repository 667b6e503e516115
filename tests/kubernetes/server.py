"""An API server over HTTP on this machine: real paths, list and watch, and the faults of real ones."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from agent.kubernetes import api
from agent.kubernetes.api import Object, Resource
from tests.kubernetes.admission import Admission
from tests.kubernetes.store import RESOURCES, VOLCANO_JOBS, Refusal, Store
from tests.kubernetes.volcano import review

VERSION = "v1.32.4"
VOLCANO = (api.VOLCANO, api.COMMANDS.api, VOLCANO_JOBS.api)
ENGINE_TOKEN = "engine"
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass
class Fault:
    """The next `count` requests that fit get this answer instead."""

    fits: Callable[[str, str], bool]
    status: int
    count: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """What a path names."""

    resource: Resource
    namespace: str = ""
    name: str = ""


class ApiServer:
    """Keeps what the engine asked for: (verb, group, resource), for its rights."""

    def __init__(self) -> None:
        self.store = Store()
        self.store.admit = Admission(self.store).admit
        self.asked: set[tuple[str, str, str]] = set()
        self.denied: set[tuple[str, str, str]] = set()
        self.writes: list[str] = []
        self.faults: list[Fault] = []
        self.is_away = False
        self.way: api.Way = "queue"
        """What bookings are, which says the rights of the engine."""
        self.lacks = set(VOLCANO)
        """Groups and versions that are not served."""
        self._watches: set[_Handler] = set()
        server = self

        class Handler(_Handler):
            api_server = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def stop(self) -> None:
        self.away()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    # Faults.

    def fail(self, fits: Callable[[str, str], bool], status: int, count: int = 1, **headers: str) -> None:
        """Answers the next requests that fit (method, path) with an error."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.faults.append(Fault(fits, status, count, named))

    def break_watches(self) -> None:
        """Cuts all connections of watches in the middle."""
        with self.store.news:
            for each in list(self._watches):
                each.cut()

    def away(self) -> None:
        """Answers nothing, until `back`."""
        self.is_away = True
        self.break_watches()

    def back(self) -> None:
        self.is_away = False

    def fault_of(self, method: str, path: str) -> Fault | None:
        with self.store.news:
            for each in self.faults:
                if each.fits(method, path):
                    each.count -= 1
                    if each.count <= 0:
                        self.faults.remove(each)
                    return each
        return None

    @contextlib.contextmanager
    def watching(self, handler: "_Handler") -> Iterator[None]:
        with self.store.news:
            self._watches.add(handler)
        try:
            yield
        finally:
            with self.store.news:
                self._watches.discard(handler)


class _Handler(BaseHTTPRequestHandler):
    api_server: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def cut(self) -> None:
        """Ends the connection as a broken network does."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)

    def _answer(self) -> None:
        server = self.api_server
        if server.is_away:
            self.close_connection = True
            self.cut()
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        fault = server.fault_of(self.command, url.path)
        try:
            if fault is not None:
                self._send(fault.status, Refusal(fault.status, "Fault", "drawn").body, fault.headers)
            else:
                self._serve(unquote(url.path), query, body)
        except Refusal as refusal:
            self._send(refusal.status, refusal.body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _serve(self, path: str, query: dict[str, str], body: Object) -> None:
        plain = discovery(path, self.api_server.lacks)
        if plain is not None:
            self._send(200, plain)
            return
        if path == api.REVIEWS.path():
            self._send(201, self._review(body))
            return
        target = target_of(path, self.api_server.lacks)
        self._note(target, query)
        if query.get("watch") in ("1", "true"):
            self._watch(target, query)
        else:
            status = 201 if self.command == "POST" else 200
            self._send(status, self._done(target, query, body))

    def _note(self, target: Target, query: dict[str, str]) -> None:
        if self.headers.get("Authorization") != f"Bearer {ENGINE_TOKEN}":
            return
        verb = _VERBS[self.command]
        if verb == "get" and not target.name:
            verb = "watch" if query.get("watch") else "list"
        asked = (verb, target.resource.group, target.resource.plural)
        self.api_server.asked.add(asked)
        if asked in self.api_server.denied:
            raise Refusal(403, "Forbidden", f"may not {verb} {target.resource.plural}")
        if verb not in ("get", "list", "watch"):
            self.api_server.writes.append(f"{verb} {target.resource.plural} {target.namespace}/{target.name}")

    def _review(self, body: Object) -> Object:
        asked = body["spec"]["resourceAttributes"]
        key = (asked["verb"], asked.get("group", ""), asked["resource"])
        return {**body, "status": {"allowed": key not in self.api_server.denied}}

    def _done(self, target: Target, query: dict[str, str], body: Object) -> Object:
        store, resource = self.api_server.store, target.resource
        review(store, self.command, resource, target.name)
        match self.command:
            case "GET" if target.name:
                return store.get(resource, target.name, target.namespace)
            case "GET":
                return self._list(target, query)
            case "POST":
                return store.create(resource, body, target.namespace)
            case "PUT":
                return store.replace(resource, body, body["metadata"].get("resourceVersion"))
            case "PATCH":
                return store.patch(resource, target.name, body, target.namespace)
            case _:
                return store.delete(resource, target.name, target.namespace, body)

    def _list(self, target: Target, query: dict[str, str]) -> Object:
        store = self.api_server.store
        with store.news:
            rows = [each for each in store.all(target.resource) if _fits(each, target, query)]
            version = str(store.version)
        first, size = int(query.get("continue") or 0), int(query.get("limit") or 0) or len(rows)
        meta = {"resourceVersion": version}
        if first + size < len(rows):
            meta["continue"] = str(first + size)
        kind = f"{target.resource.kind}List"
        page = rows[first : first + size]
        return {"apiVersion": target.resource.version, "kind": kind, "metadata": meta, "items": page}

    def _watch(self, target: Target, query: dict[str, str]) -> None:
        store = self.api_server.store
        at = int(query.get("resourceVersion") or store.version)
        until = time.monotonic() + int(query.get("timeoutSeconds") or 3600)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with self.api_server.watching(self):
            while time.monotonic() < until and not self.api_server.is_away:
                try:
                    with store.news:
                        found = list(store.since(target.resource, at))
                        if not found:
                            store.news.wait(min(0.5, max(0.0, until - time.monotonic())))
                            continue
                except Refusal as gone:
                    self._chunk({"type": "ERROR", "object": gone.body})
                    break
                at = found[-1][0]
                for _, change, data in found:
                    if _fits(data, target, query):
                        self._chunk({"type": change, "object": data})
            bookmark = {"metadata": {"resourceVersion": str(at)}}
            self._chunk({"type": "BOOKMARK", "object": {"kind": target.resource.kind, **bookmark}})
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: Object) -> None:
        line = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def _send(self, status: int, body: Object, headers: dict[str, str] | None = None) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def target_of(path: str, lacks: Collection[str]) -> Target:
    """Raises Refusal."""
    for resource in RESOURCES:
        if not path.startswith(f"{resource.api}/") or resource.api in lacks:
            continue
        parts = path.removeprefix(f"{resource.api}/").split("/")
        namespace = ""
        if resource.namespaced and len(parts) > 2 and parts[0] == "namespaces":
            _, namespace, *parts = parts
        if parts[0] == resource.plural and len(parts) <= 2:
            return Target(resource, namespace, (*parts, "")[1])
    raise Refusal(404, "NotFound", f"the server could not find {path}")


def discovery(path: str, lacks: Collection[str]) -> Object | None:
    """Returns what clients ask to learn which resources there are."""
    groups = sorted({each.api for each in RESOURCES if each.group and each.api not in lacks})
    if path == "/version":
        return {"major": "1", "minor": "32", "gitVersion": VERSION}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(each) for each in groups]}
    if path in ("/api/v1", *groups):
        rows = [_resource(each) for each in RESOURCES if each.api == path]
        version = path.removeprefix("/apis/").removeprefix("/api/")
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}
    return None


def _group(path: str) -> Object:
    _, _, name, version = path.split("/")
    known = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [known], "preferredVersion": known}


def _resource(each: Resource) -> Object:
    return {
        "name": each.plural,
        "singularName": each.kind.lower(),
        "namespaced": each.namespaced,
        "kind": each.kind,
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    }


def _fits(data: Object, target: Target, query: dict[str, str]) -> bool:
    meta: dict[str, Any] = data["metadata"]
    if target.namespace and meta.get("namespace") != target.namespace:
        return False
    for part in filter(None, query.get("labelSelector", "").split(",")):
        key, mark, value = part.partition("=")
        labels = meta.get("labels", {})
        if key not in labels or (mark and labels[key] != value.removeprefix("=")):
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        key, _, value = part.partition("=")
        found: Any = data
        for step in key.split("."):
            found = found.get(step, "") if isinstance(found, dict) else ""
        if found != value.removeprefix("="):
            return False
    return True
