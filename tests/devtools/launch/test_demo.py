"""`make demo` as a user meets it: starts, stops, starts again, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.launch.processes import process_birth
from tests.servers.servers import ROOT
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]

# PostgreSQL, two Valkeys, web, operators, two workers, beat, reader, sender, four agents
PROGRAMS = 14


@pytest.fixture(scope="module")
def var(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("demo") / "var"
    yield folder
    command = [sys.executable, "-m", "devtools.local", "--var", str(folder), "--clean"]
    subprocess.run(command, cwd=ROOT, check=True)


@pytest.fixture
def demo(var: Path) -> Iterator["Demo"]:
    started = Demo(var)
    yield started
    started.process.kill()
    started.process.communicate()


class Demo:
    """A running demo, its port and how long it took to be ready."""

    def __init__(self, var: Path) -> None:
        began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "devtools.local", "--var", str(var)],
            cwd=ROOT,
            # The addresses of the tests' own servers would be taken for the demo's.
            env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = self._read_until("Ctrl-C stops everything")
        [port] = re.findall(r"The portal is ready: http://localhost:(\d+)", self.said)
        self.port = int(port)
        self.seconds_to_ready = time.monotonic() - began

    def _read_until(self, words: str) -> str:
        assert self.process.stdout is not None
        seen = ""
        for line in self.process.stdout:
            seen += line
            if words in line:
                return seen
        raise AssertionError(f"{words!r} was never said:\n{seen}")

    def family(self) -> dict[int, int]:
        """Numbers and births of all descendants."""
        found: dict[int, int] = {}
        waiting = [self.process.pid]
        while waiting:
            for child in children_of(waiting.pop()):
                born = process_birth(child)
                if born is not None:
                    found[child] = born
                    waiting.append(child)
        return found


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in path.read_text().split()]
    return found


def all_gone(family: dict[int, int]) -> bool:
    return all(process_birth(pid) != born for pid, born in family.items())


def test_ctrl_c_stops_everything_and_the_next_start_is_quick(var: Path) -> None:
    demo = Demo(var)
    with urllib.request.urlopen(f"http://localhost:{demo.port}/readyz", timeout=5) as answer:
        assert answer.status == 200
    family = demo.family()
    assert len(family) >= PROGRAMS
    demo.process.send_signal(signal.SIGINT)
    last_words, _ = demo.process.communicate(timeout=40)
    assert demo.process.returncode == 0, last_words
    assert "Traceback" not in demo.said + last_words
    # One line of progress, then how to begin, then nothing but the launcher's own words.
    assert len(demo.said.split("\n\n")[0].splitlines()) == 1, demo.said
    assert "type `2 h100 6h`" in demo.said
    said = [line for line in last_words.splitlines() if " | " in line]
    assert all(line.startswith("launcher") for line in said), said
    wait_until(lambda: all_gone(family), seconds=5)
    assert (var / "secrets.json").stat().st_mode & 0o077 == 0
    # Seconds depend on the machine; the second start has no past to live through.
    second = Demo(var)
    second.process.send_signal(signal.SIGINT)
    second.process.communicate(timeout=40)
    assert second.seconds_to_ready < demo.seconds_to_ready / 2


# A minute of processor time: it lives through the past of a second site.
@pytest.mark.long
def test_a_second_demo_runs_beside_the_first(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("second") / "var"
    second = Demo(folder)
    try:
        assert second.port != demo.port
        cookies = set()
        for port in (demo.port, second.port):
            with urllib.request.urlopen(f"http://localhost:{port}/sign-in", timeout=5) as answer:
                cookies.add(answer.headers["Set-Cookie"].partition("=")[0])
        # A browser sends the cookies of a host to each of its ports.
        assert len(cookies) == 2
    finally:
        second.process.send_signal(signal.SIGINT)
        second.process.communicate(timeout=40)
        command = [sys.executable, "-m", "devtools.local", "--var", str(folder), "--clean"]
        subprocess.run(command, cwd=ROOT, check=True)


def test_a_killed_launcher_leaves_no_process(demo: Demo) -> None:
    family = demo.family()
    assert len(family) >= PROGRAMS
    demo.process.kill()
    wait_until(lambda: all_gone(family), seconds=30)


def test_it_starts_again_after_a_kill(demo: Demo, var: Path) -> None:
    demo.process.kill()
    demo.process.wait()
    again = Demo(var)
    again.process.send_signal(signal.SIGINT)
    again.process.communicate(timeout=40)
    assert "Traceback" not in again.said
