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

from devtools.launch.processes import Program, leftovers_end, process_birth
from devtools.launch.supervisor import ProgramOutput, Supervisor
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
            [sys.executable, "-m", "tests.devtools.launch.small_launcher", str(tmp_path), *codes],
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


def test_a_full_disk_costs_lines_and_ends_no_program(tmp_path: Path) -> None:
    logs, pids = tmp_path / "logs", tmp_path / "pids"
    supervisor = Supervisor(pids, ProgramOutput(logs, is_quiet=True))
    for folder, name in ((logs, "child.log"), (pids, "child.pid")):
        folder.mkdir(exist_ok=True)
        (folder / name).symlink_to("/dev/full")
    command = (sys.executable, "-u", "-c", SPEAKS_ON_STOP)
    supervisor.start([Program(name="child", command=command, environment={}, folder=tmp_path)])
    ((child,),) = supervisor.phases

    def has_said() -> bool:
        supervisor.turn()
        return child.last_lines == ["here"]

    wait_until(has_said, seconds=20)
    assert child.process is not None
    assert child.process.poll() is None
    # There is space again.
    (logs / "child.log").unlink()
    supervisor.stop()
    assert (logs / "child.log").read_text().splitlines() == [
        "(1 lines are missing: the disk was full)",
        "stopped me",
    ]


def test_a_full_disk_below_its_own_output_does_not_end_the_launcher(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.devtools.launch.small_launcher", str(tmp_path)]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = subprocess.Popen([*command, *([PATIENT] * 2)], cwd=ROOT, stdout=full)
    wait_until(lambda: len(children_of(tmp_path)) == 2, seconds=20)
    assert process.poll() is None
    children = children_of(tmp_path)
    process.send_signal(signal.SIGINT)
    # Python ends with 120 when the last lines could not be written.
    assert process.wait(timeout=20) in (0, 120)
    assert all(map(is_gone, children))


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
def test_a_deaf_child_of_a_killed_launcher_is_ended_by_the_next_start(launch: Launch, tmp_path: Path) -> None:
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
