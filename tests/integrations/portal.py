"""A portal for the integrations' tests: it answers their calls over HTTP and remembers them."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.servers.servers import ROOT

FOLDER = ROOT / "integrations"
WINDOW = dict.fromkeys(("starts", "ends", "planned_starts", "planned_ends"))
BOOKING = {
    "id": "bk_1",
    "number": "BK-1",
    "state": "queued",
    "name": "",
    "project": "folding",
    "tier": "standard",
    "request": "1 h100 1h",
    "window": WINDOW,
    "waiting": None,
    "ready_at": None,
    "ended_at": None,
    "price": {"held": "4.80", "currency": "EUR"},
    "allocations": [{"node": "gpu-a1-01", "gpu_index": 0}],
}


@dataclass
class Portal:
    """Answers the calls of one job: the booking starts when its events are followed.

    With `active_after` it starts when it was read so often.
    """

    folder: Path
    active_after: int | None = None
    port: int = 0
    refusal: dict[str, object] | None = None
    state: str = "queued"
    calls: list[str] = field(default_factory=list)
    bodies: list[dict[str, object]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """With `gpu`, and a node that is this machine."""
        binaries = self.folder / "bin"
        binaries.mkdir(exist_ok=True)
        for name, line in {
            "gpu": f'exec "{sys.executable}" -m gpu_client "$@"',
            "node": 'shift; exec bash -c "$1"',
            "gpu-agent": 'shift 3; GPU_BOOKING=BK-1 exec "$@"',
        }.items():
            (binaries / name).write_text(f"#!/usr/bin/env bash\n{line}\n")
            (binaries / name).chmod(0o755)
        return {
            "PATH": f"{binaries}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GPU_URL": f"http://127.0.0.1:{self.port}",
            "GPU_TOKEN": "secret",
            "GPU_PROJECT": "folding",
            "GPU_JOB_SSH": "node",
            "HOME": str(self.folder),
        }

    def run(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words,
            env={**self.environment(), **more},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[Portal]:
    found = Portal(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/api/v1/me":
                # Asked when times are printed, whatever was done before.
                self.said(200, b'{"time_zone": "UTC"}')
                return
            found.calls.append(f"GET {self.path}")
            if self.path == "/api/v1/events":
                found.state = "active"
                data = {"booking": {"id": "bk_1", "state": "active"}, "message": "Ready."}
                event = {"id": "evt_1", "type": "booking.started", "data": data}
                event["timestamp"] = "2026-11-23T09:00:00+00:00"
                self.said(200, f"data: {json.dumps(event)}\n\n".encode())
            else:
                if found.active_after is not None and found.state == "queued":
                    found.active_after -= 1
                    found.state = "queued" if found.active_after > 0 else "active"
                self.said(200, json.dumps({**BOOKING, "state": found.state}).encode())

        def do_POST(self) -> None:
            found.calls.append(f"POST {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.bodies.append(json.loads(body or b"{}"))
            found.keys.append(self.headers.get("Idempotency-Key", ""))
            document = found.refusal or {**BOOKING, "state": found.state}
            self.said(int(str(document.get("status", 200))), json.dumps(document).encode())

        def said(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()
