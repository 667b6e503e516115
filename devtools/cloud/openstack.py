"""The API of the simulated cloud: sign-in of Keystone, and servers of Nova, as their documents have them."""

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from uuid import uuid4

from devtools.cloud.machines import Machine, Machines

_METADATA = re.compile(r"/compute/servers/([0-9a-f-]{36})/metadata")
_SERVER = re.compile(r"/compute/servers/([0-9a-f-]{36})")
TOKEN_SECONDS = 3600


class OpenStack:
    """One account of the cloud. `faults` are answered once instead of the next requests."""

    def __init__(self, machines: Machines, user: str, password: str, clock: Callable[[], float]) -> None:
        """Knows one user."""
        self.machines, self._user, self._password, self._clock = machines, user, password, clock
        self._tokens: set[str] = set()
        self._lock = Lock()
        self.base = ""
        self.faults: list[int] = []

    def answer(
        self,
        method: str,
        path: str,
        token: str,
        body: Any,  # noqa: ANN401 (JSON)
    ) -> tuple[int, Any, dict[str, str]]:
        """The status, the document and further headers of an answer."""
        with self._lock:
            if path == "/v3/auth/tokens" and method == "POST":
                return self._sign_in(body)
            if token not in self._tokens:
                return HTTPStatus.UNAUTHORIZED, _error("Sign in first."), {}
            if self.faults:
                return self.faults.pop(0), _error("The cloud has a fault."), {}
            return self._compute(method, path, body)

    def turn(self) -> None:
        """Boots machines that are due."""
        with self._lock:
            self.machines.turn()

    def _compute(self, method: str, path: str, body: Any) -> tuple[int, Any, dict[str, str]]:  # noqa: ANN401
        one = _SERVER.fullmatch(path)
        if path == "/compute/servers/detail" and method == "GET":
            return HTTPStatus.OK, {"servers": [self._shown(each) for each in self.machines.all.values()]}, {}
        if path == "/compute/servers" and method == "POST":
            return self._create(body["server"])
        about = _METADATA.fullmatch(path)
        if about and method == "POST" and about[1] in self.machines.all:
            self.machines.notify(about[1], body["metadata"])
            return HTTPStatus.OK, {"metadata": self.machines.all[about[1]].metadata}, {}
        if one and method == "DELETE":
            is_there = self.machines.remove(one[1])
            return HTTPStatus.NO_CONTENT if is_there else HTTPStatus.NOT_FOUND, None, {}
        if one and method == "GET" and one[1] in self.machines.all:
            return HTTPStatus.OK, {"server": self._shown(self.machines.all[one[1]])}, {}
        return HTTPStatus.NOT_FOUND, _error("There is no such thing."), {}

    def _sign_in(self, body: Any) -> tuple[int, Any, dict[str, str]]:  # noqa: ANN401 (JSON)
        user = body["auth"]["identity"]["password"]["user"]
        if (user["name"], user["password"]) != (self._user, self._password):
            return HTTPStatus.UNAUTHORIZED, _error("Wrong name or password."), {}
        token = uuid4().hex
        self._tokens.add(token)
        endpoint = {
            "id": "1",
            "interface": "public",
            "region": "RegionOne",
            "region_id": "RegionOne",
            "url": f"{self.base}/compute",
        }
        document = {
            "token": {
                "methods": ["password"],
                "issued_at": _moment(self._clock()),
                "expires_at": _moment(self._clock() + TOKEN_SECONDS),
                "user": {"id": "1", "name": self._user, "domain": {"id": "default", "name": "Default"}},
                "project": {"id": "1", "name": "demo", "domain": {"id": "default", "name": "Default"}},
                "roles": [{"id": "1", "name": "member"}],
                "catalog": [{"id": "1", "type": "compute", "name": "nova", "endpoints": [endpoint]}],
            }
        }
        return HTTPStatus.CREATED, document, {"X-Subject-Token": token}

    def _create(self, server: Any) -> tuple[int, Any, dict[str, str]]:  # noqa: ANN401 (JSON)
        boot = base64.b64decode(server.get("user_data", "")).decode("utf-8")
        machine = Machine(str(uuid4()), server["name"], str(server["flavorRef"]), boot, self._clock())
        self.machines.add(machine)
        return HTTPStatus.ACCEPTED, {"server": {"id": machine.id, "adminPass": "-"}}, {}

    def _shown(self, machine: Machine) -> dict[str, Any]:
        at = _moment(machine.created)
        return {
            "id": machine.id,
            "name": machine.name,
            "status": machine.state,
            "created": at,
            "updated": at,
            "tenant_id": "1",
            "user_id": "1",
            "hostId": "",
            "metadata": machine.metadata,
            "addresses": {},
            "image": {"id": "agent"},
            "flavor": {"id": machine.fleet},
            "links": [{"rel": "self", "href": f"{self.base}/compute/servers/{machine.id}"}],
        }


def _error(text: str) -> dict[str, Any]:
    return {"error": {"message": text}}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def server_open(cloud: OpenStack, host: str, port: int) -> ThreadingHTTPServer:
    """A server that answers for the cloud; the caller runs it."""

    class Handler(BaseHTTPRequestHandler):
        """Reads a request as JSON."""

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            token = self.headers.get("X-Auth-Token", "")
            status, document, headers = cloud.answer(self.command, self.path.split("?")[0], token, body)
            sent = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_DELETE = _do

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer((host, port), Handler)
    cloud.base = f"http://{host}:{server.server_address[1]}"
    return server
