"""The agent as a process of its own, and what stands where the portal would be."""

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import redis

import wire
from tests.agent.builders import KEY, KEYS, NODE


class Portal:
    """The portal's side: answers enrolments, writes documents, reads reports."""

    node = NODE

    def __init__(self, client: "redis.Redis", agents_url: str, digest: bytes) -> None:
        self.client = client
        self.digest = digest
        self.keys = KEYS
        self.enrolments: list[dict[str, Any]] = []
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.identity = {
            "node": self.node,
            "key": KEY.hex(),
            "key_version": 1,
            "epoch": 1,
            "redis_url": agents_url,
        }
        portal = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = portal.answer(self.path, json.loads(body))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Takes in what an agent sends by REST."""
        self.enrolments.append({"path": path, **body})
        return self.answers.pop(0) if self.answers else (201, self.identity)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def publish(self, desired: wire.Desired) -> None:
        raw = wire.seal(desired, key=KEY, key_version=1).to_json()
        self.client.set(wire.desired_key(self.node), raw)
        self.client.publish(wire.wake_channel(self.node), b"")

    def grant(self) -> None:
        """Answers the newest heartbeat."""
        beats = [m for m in self.messages() if isinstance(m, wire.Heartbeat)]
        lease = wire.Lease(node=self.node, epoch=1, seq=beats[-1].seq, ttl=20)
        raw = wire.seal(lease, key=KEY, key_version=1).to_json()
        self.client.set(wire.lease_key(self.node), raw)
        self.client.publish(wire.wake_channel(self.node), wire.LEASE_WAKE)

    def messages(self) -> list[wire.FromAgent]:
        entries: Any = self.client.xrange(wire.report_stream(self.node))
        return [wire.open_report(wire.Envelope.from_fields(f), self.keys) for _, f in entries]

    def reports(self) -> list[wire.Report]:
        return [m for m in self.messages() if isinstance(m, wire.Report)]

    def states(self) -> dict[str, str]:
        reports = self.reports()
        return {a.id: a.state for a in reports[-1].allocations} if reports else {}

    def all_ready(self, wanted: set[str]) -> bool:
        return {name for name, state in self.states().items() if state == "ready"} == wanted

    def gpus(self) -> list[str]:
        return [str(gpu["uuid"]) for gpu in self.enrolments[0]["inventory"]["gpus"]]

    def gpu(self) -> str:
        return self.gpus()[0]


class PortalOfEngine(Portal):
    """The portal's side of an engine with one host, which it has approved already."""

    node = "n1"
    account = {"engine": "main", "key": (b"e" * 32).hex(), "key_version": 1}

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if not path.endswith("/hosts"):
            return 201, {**self.identity, **self.account}
        key = bytes.fromhex(str(self.account["key"]))
        sealed = wire.Envelope(body["body"].encode(), body["key"], body["mac"])
        message = wire.open_engine_hosts(sealed, {1: key})
        for each in message.inventories:
            plain = json.loads(json.dumps(wire.inventory_to_plain(each)))
            self.enrolments.append({"path": path, "inventory": plain})
        hidden = wire.key_wrap(old=key, new=KEY, node=self.node, version=1)
        host = wire.HostKey(node=self.node, key_version=1, hidden=hidden)
        said = wire.EngineAnswer(engine="main", seq=message.seq, epoch=1, hosts=(host,))
        answer = wire.seal(said, key=key, key_version=1)
        return 200, {"body": answer.body.decode(), "key": 1, "mac": answer.mac}


class Process:
    """`python -m devtools.simulated`, restartable."""

    def __init__(self, portal: Portal, state: Path) -> None:
        self.portal = portal
        self.state = state
        self.running: subprocess.Popen[bytes] | None = None

    def start(
        self, *more: str, program: str = "devtools.simulated", **environment: str
    ) -> "subprocess.Popen[bytes]":
        options = {
            "PATH": os.environ["PATH"],
            "GPU_AGENT_PORTAL": self.portal.url,
            "GPU_AGENT_TOKEN": "one-time",
            "GPU_AGENT_STATE": str(self.state),
            "GPU_AGENT_NAME": "gpu-a",
            **environment,
        }
        with (self.state.parent / "agent.log").open("ab") as log:
            self.running = subprocess.Popen(
                [sys.executable, "-m", program, "--simulate", "h100:2", *more],
                env=options,
                stderr=log,
            )
        return self.running

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.running is not None
        self.running.send_signal(number)
        code = self.running.wait(10)
        self.running = None
        return code

    def log(self) -> str:
        return (self.state.parent / "agent.log").read_text()

    def close(self) -> None:
        if self.running is not None:
            self.stop(signal.SIGKILL)
