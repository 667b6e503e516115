"""Steps of CI and workflow engines: what they send over HTTP, and what becomes of the booking."""

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
import yaml

from tests.servers.servers import ROOT

FOLDER = ROOT / "integrations"
WINDOW = dict.fromkeys(("starts", "ends", "planned_starts", "planned_ends"))
BOOKING = {
    "id": "bk_1", "number": "BK-1", "state": "queued", "name": "", "project": "folding",
    "tier": "standard", "request": "1 h100 1h", "window": WINDOW, "waiting": None, "ready_at": None,
    "ended_at": None, "price": {"held": "4.80", "currency": "EUR"},
    "allocations": [{"node": "gpu-a1-01", "gpu_index": 0}],
}  # fmt: skip


@dataclass
class Portal:
    """Answers the calls of one job: the booking starts when its events are followed."""

    folder: Path
    port: int = 0
    refusal: dict[str, object] | None = None
    state: str = "queued"
    calls: list[str] = field(default_factory=list)
    bodies: list[dict[str, object]] = field(default_factory=list)

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
            "PYTHONPATH": str(ROOT), "GPU_URL": f"http://127.0.0.1:{self.port}",
            "GPU_TOKEN": "secret", "GPU_PROJECT": "folding", "GPU_JOB_SSH": "node",
            "HOME": str(self.folder),
        }  # fmt: skip

    def run(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, env={**self.environment(), **more}, cwd=self.folder, capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[Portal]:
    found = Portal(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.calls.append(f"GET {self.path}")
            if self.path == "/api/v1/events":
                found.state = "active"
                data = {"booking": {"id": "bk_1", "state": "active"}, "message": "Ready."}
                event = {"id": "evt_1", "type": "booking.started", "data": data}
                event["timestamp"] = "2026-11-23T09:00:00+00:00"
                self.said(200, f"data: {json.dumps(event)}\n\n".encode())
            else:
                self.said(200, json.dumps({**BOOKING, "state": found.state}).encode())

        def do_POST(self) -> None:
            found.calls.append(f"POST {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.bodies.append(json.loads(body or b"{}"))
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


def test_the_github_step_books_runs_and_releases(portal: Portal) -> None:
    action = yaml.safe_load((FOLDER / "github" / "action.yml").read_text(encoding="utf-8"))
    step = action["runs"]["steps"][-1]
    words = "echo $GPU_BOOKING 'two  words' \"$PWD\"; exit 7"
    done = portal.run(
        "bash", "-e", "-c", step["run"], GITHUB_ACTION_PATH=str(FOLDER / "github"),
        GPU_REQUEST="1 h100 1h", GPU_COMMAND=words, GPU_JOB_NAME="a job",
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"BK-1 two  words {portal.folder}\n"
    assert "BK-1 runs on gpu-a1-01." in done.stderr
    assert portal.bodies[0] == {"project": "folding", "request": "1 h100 1h", "name": "a job"}
    assert portal.calls[0] == "POST /api/v1/bookings"
    assert portal.calls[-1] == "POST /api/v1/bookings/BK-1/release"
    given = {"url", "token", "project", "request", "run", "wait"}
    assert set(action["inputs"]) == given
    assert all(f"inputs.{name} " in str(step["env"].values()) for name in given)


def test_a_refused_booking_ends_the_step_with_the_api_s_words(portal: Portal) -> None:
    portal.refusal = {"status": 409, "code": "budget_exceeded", "detail": "Nothing is left."}
    done = portal.run(str(FOLDER / "gpu-job"), "1 h100 1h", "true")
    assert (done.returncode, done.stderr) == (3, "Nothing is left.\n")
    assert portal.calls == ["POST /api/v1/bookings"]


def test_snakemake_submits_asks_and_learns_the_end(portal: Portal) -> None:
    # A refusal is the shortest job; the GitHub step above goes all the way.
    portal.refusal = {"status": 409, "code": "budget_exceeded", "detail": "Nothing is left."}
    tool = str(FOLDER / "snakemake" / "gpu-snakemake")
    name = portal.run(tool, "submit", "1 h100 1h", "job.sh").stdout.strip()
    jobs = portal.folder / ".snakemake" / "gpu-jobs"
    process = int((jobs / f"{name}.pid").read_text())
    assert portal.run(tool, "status", name).stdout in ("running\n", "failed\n")
    # Not a child of this process, so it can't be waited for by its id.
    subprocess.run(["tail", f"--pid={process}", "-s", "0.05", "-f", "/dev/null"], check=True)
    assert portal.run(tool, "status", name).stdout == "failed\n"
    assert (jobs / f"{name}.log").read_text() == "Nothing is left.\n"
    (jobs / f"{name}.exit").write_text("0")
    assert portal.run(tool, "status", name).stdout == "success\n"


def test_every_integration_is_short_and_names_what_is_there() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert len(files) >= 6
    assert {path.name for path in files if len(path.read_text().splitlines()) > 150} == set()
    job = yaml.safe_load((FOLDER / "gitlab" / "gpu.yml").read_text(encoding="utf-8"))[".gpu"]
    assert 'integrations/gpu-job" "$GPU_REQUEST" bash -c "$GPU_COMMAND"' in job["script"][0]
    profile = yaml.safe_load((FOLDER / "snakemake" / "config.yaml").read_text(encoding="utf-8"))
    for name in ("submit", "status", "cancel"):
        command = profile[f"cluster-generic-{name}-cmd"].split()
        assert (ROOT / command[0]).is_file()
        assert command[1] == name
