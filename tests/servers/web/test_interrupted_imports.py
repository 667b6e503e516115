"""A worker that is interrupted while it imports a module finishes the import first."""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from portal.web.serving.workers import _LENGTHS, Complete, _packed, worker_serve
from tests.servers.waiting import wait_until

# It ends when there is a file `go`; what it noted shows how often it began.
SLOW = """
import pathlib, time
here = pathlib.Path(__file__).parent
with (here / "begun").open("a") as file:
    file.write("x")
while not (here / "go").exists():
    time.sleep(0.001)
"""


def _answer(scope: dict[str, Any], body: IO[bytes]) -> Complete:
    """Imports, as a quote imports its solver, and computes until it is interrupted."""
    import slow_module  # type: ignore[import-not-found]  # noqa: F401, PLC0415

    while scope["path"] == "/long":
        pass
    return Complete(200, [], b"")


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, socket.socket]]:
    (tmp_path / "slow_module.py").write_text(SLOW, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        ours.close()
        worker_serve(theirs, _answer)
        os._exit(0)
    theirs.close()
    yield pid, ours
    ours.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sys.modules.pop("slow_module", None)


def _ask(line: socket.socket, path: str) -> None:
    line.sendall(_packed({"path": path, "headers": []}, b""))


def _status(line: socket.socket) -> int:
    with line.makefile("rb") as received:
        head, _ = _LENGTHS.unpack(received.read(_LENGTHS.size))
        status: int = json.loads(received.read(head))["status"]
    return status


def test_an_import_is_finished_before_a_request_is_given_up(
    worker: tuple[int, socket.socket], tmp_path: Path
) -> None:
    pid, line = worker
    line.settimeout(20)
    _ask(line, "/long")
    begun = tmp_path / "begun"
    wait_until(begun.exists, seconds=20)
    os.kill(pid, signal.SIGUSR1)
    (tmp_path / "go").touch()
    assert _status(line) == 0
    # The next request has the module, and the alarm of the last one does not reach it.
    _ask(line, "/short")
    assert _status(line) == 200
    assert begun.read_text(encoding="utf-8") == "x"
