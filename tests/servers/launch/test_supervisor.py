"""The launcher's children: in order, brought back, and never left behind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portal.launch.processes import leftovers_end, process_birth
from tests.servers.servers import ROOT
from tests.servers.waiting import wait_until

pytestmark = pytest.mark.turn

PATIENT = "import signal; print('here', flush=True); signal.pause()"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); " + PATIENT + "; signal.pause()"
SPEAKS_ON_STOP = (
    "import signal, sys\n"
    "def stop(*_):\n    print('stopped me', flush=True)\n    sys.exit(0)\n"
    "signal.signal(15, stop)\nprint('here', flush=True)\nwhile True: signal.pause()"
)
DIES_ONCE = (
    "import os, pathlib, signal\n"
    "mark = pathlib.Path(os.environ['FOLDER']) / 'died'\n"
    "if not mark.exists():\n    mark.touch()\n    raise SystemExit('no luck')\n" + PATIENT
)

Launch = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a launcher with the given children and returns when all are started."""
    started: list[subprocess.Popen[str]] = []

    def start(*codes: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.launch.small_launcher", str(tmp_path), *codes],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """The output up to the line with `words`; fails at its end."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"{words!r} was never said:\n{seen}")


def children_of(folder: Path) -> list[int]:
    return [json.loads(path.read_text())["pid"] for path in (folder / "pids").glob("*.pid")]


def is_gone(pid: int) -> bool:
    return process_birth(pid) is None


def test_children_are_stopped_in_the_opposite_order(launch: Launch) -> None:
    process = launch(SPEAKS_ON_STOP, SPEAKS_ON_STOP)
    # Both must have said that their handler is there.
    seen = read_until(process, "all started")
    while seen.count("here") < 2:
        seen += read_until(process, "here")
    process.send_signal(signal.SIGINT)
    last_words, _ = process.communicate(timeout=20)
    assert re.findall(r"child\d +\| stopped me", last_words) == [
        "child1     | stopped me",
        "child0     | stopped me",
    ]
    assert process.returncode == 0


def test_a_child_that_will_not_stop_is_ended_after_its_time(launch: Launch, tmp_path: Path) -> None:
    process = launch(DEAF)
    read_until(process, "here")
    (child,) = children_of(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert is_gone(child)


def test_a_child_that_dies_is_named_and_started_again(launch: Launch) -> None:
    process = launch(DIES_ONCE)
    seen = read_until(process, "again in")
    assert "no luck" in seen
    assert "child0 ended (status 1)" in seen
    assert "here" in read_until(process, "here")


@pytest.mark.faults
def test_children_die_with_a_launcher_that_is_killed(launch: Launch, tmp_path: Path) -> None:
    process = launch(PATIENT, PATIENT)
    seen = read_until(process, "all started")
    while seen.count("here") < 2:
        seen += read_until(process, "here")
    children = children_of(tmp_path)
    assert len(children) == 2
    process.kill()
    wait_until(lambda: all(is_gone(pid) for pid in children), seconds=10)


@pytest.mark.faults
def test_a_deaf_child_of_a_killed_launcher_is_ended_by_the_next_start(
    launch: Launch, tmp_path: Path
) -> None:
    process = launch(DEAF)
    read_until(process, "here")
    (child,) = children_of(tmp_path)
    process.kill()
    process.wait()
    assert leftovers_end(tmp_path / "pids") == ["child0"]
    assert is_gone(child)
    assert children_of(tmp_path) == []


def test_a_remembered_number_that_now_is_another_process_is_left_alone(tmp_path: Path) -> None:
    record = {"pid": os.getpid(), "born": 1}
    (tmp_path / "web.pid").write_text(json.dumps(record))
    (tmp_path / "torn.pid").write_text('{"pid": 1')
    assert leftovers_end(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
