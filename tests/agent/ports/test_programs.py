"""Real programs of this machine: whose they are, warning them, and freezing them by another one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.ports.checkpoint_tool import Answer, Call, CheckpointTool
from agent.ports.programs import HostPrograms, account_name
from agent.ports.suspender import LIMIT_S, CudaCheckpoint
from tests.agent.builders import FakeTime
from tests.servers.waiting import wait_until

HANDLES = "import os, signal; signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'signalled\\n'))\n"
WAITS = "print('here', flush=True)\nwhile True: signal.pause()"


@contextmanager
def a_program(text: str = "import signal\n", **values: str) -> Iterator["subprocess.Popen[str]"]:
    program = subprocess.Popen(
        [sys.executable, "-c", text + WAITS], stdout=subprocess.PIPE, text=True, env=values
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "here\n"
    try:
        yield program
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def test_a_program_that_handles_the_signal_gets_it() -> None:
    with a_program(HANDLES) as program:
        assert HostPrograms().warn(program.pid, signal.SIGUSR1)
        assert program.stdout is not None
        assert program.stdout.readline() == "signalled\n"


def test_a_program_that_would_end_by_the_signal_does_not_get_it() -> None:
    with a_program() as program:
        assert not HostPrograms().warn(program.pid, signal.SIGUSR1)
        assert program.poll() is None


def test_what_is_gone_is_no_error_and_we_never_signal_ourselves() -> None:
    with a_program() as program:
        pid = program.pid
    programs = HostPrograms()
    assert not programs.warn(pid, signal.SIGUSR1)
    assert programs.birth(pid) is None
    assert programs.owner_of(pid).names == frozenset()
    assert not programs.warn(os.getpid(), signal.SIGUSR1)
    assert not programs.warn(1, signal.SIGUSR1)


def test_a_program_says_of_which_booking_it_is_by_its_environment() -> None:
    values = {"GPU_BOOKING_TENANT": "helix", "GPU_BOOKING": "BK-12", "GPU_ALLOCATION": "a1"}
    with a_program(**values) as program:
        owner_of = HostPrograms().owner_of(program.pid)
    assert owner_of.names == {"helix.BK-12", "a1"}
    assert owner_of.account == account_name(os.getuid())
    with a_program() as program:
        assert HostPrograms().owner_of(program.pid).names == frozenset()


def test_only_the_program_that_was_meant_is_killed() -> None:
    programs = HostPrograms()
    with a_program() as program:
        birth = programs.birth(program.pid)
        assert birth is not None
        programs.kill(program.pid, "another birth")
        assert program.poll() is None
        programs.kill(program.pid, birth)
        assert program.wait(10) == -signal.SIGKILL
        assert programs.birth(program.pid) is None


# cuda-checkpoint.


def a_tool(folder: Path, text: str) -> CheckpointTool:
    path = folder / "cuda-checkpoint"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return CheckpointTool(path, folder / "locks")


def answer(call: Call) -> Answer:
    wait_until(lambda: call.poll() is not None, seconds=10)
    found = call.poll()
    assert found is not None
    return found


def test_a_call_has_the_id_and_tells_what_was_printed_last(tmp_path: Path) -> None:
    tool = a_tool(tmp_path, 'echo one; echo "$@"')
    found = answer(tool.start(123, ("--action", "lock", "--timeout", "30000")))
    assert (found.code, found.text) == (0, "--action lock --timeout 30000 --pid 123")
    assert not tool.is_running(123)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('echo "OS call failed" >&2; exit 3', "--toggle ended with 3: OS call failed"),
        ("kill -9 $$", "--toggle ended with -9"),
    ],
)
def test_a_call_that_fails_says_what_the_tool_said(tmp_path: Path, text: str, words: str) -> None:
    assert words in answer(a_tool(tmp_path, text).start(123, ("--toggle",))).failure


def test_a_tool_that_is_not_there_fails(tmp_path: Path) -> None:
    tool = CheckpointTool(tmp_path / "cuda-checkpoint", tmp_path / "locks")
    found = answer(tool.start(123, ("--get-state",)))
    assert "No such file" in found.failure
    assert found.state is None


def test_a_disk_that_takes_no_file_fails_the_call_and_not_the_agent(tmp_path: Path) -> None:
    tool = a_tool(tmp_path, "echo running")
    (tmp_path / "locks").rmdir()
    assert "No such file" in answer(tool.start(123, ("--get-state",))).failure
    assert not tool.is_running(123)


def test_a_call_that_hangs_is_killed_and_is_under_way_until_it_is_dead(tmp_path: Path) -> None:
    steady = FakeTime()
    suspender = CudaCheckpoint(a_tool(tmp_path, "exec sleep 300"), "580.95.05", steady)
    suspender.suspend(123)
    assert suspender.busy(123)
    steady.now += LIMIT_S
    wait_until(lambda: not suspender.busy(123), seconds=10)
    assert suspender.result(123) == "cuda-checkpoint --get-state took longer than 40 s"


def test_a_call_of_an_agent_that_was_killed_is_never_met_by_a_second_one(tmp_path: Path) -> None:
    """The second might undo the first."""
    tool = a_tool(tmp_path, f"echo $$ >> {tmp_path}/said; read x < {tmp_path}/go; echo done")
    os.mkfifo(tmp_path / "go")
    agent = (
        "from pathlib import Path\n"
        "from agent.ports.checkpoint_tool import CheckpointTool\n"
        f"here = Path({str(tmp_path)!r})\n"
        "CheckpointTool(here / 'cuda-checkpoint', here / 'locks').start(123, ['--toggle'])\n"
        "import os; os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", agent], check=False)
    wait_until((tmp_path / "said").exists, seconds=10)
    assert tool.is_running(123)
    assert answer(tool.start(123, ("--toggle",))).late
    assert not tool.is_running(124)
    (tmp_path / "go").write_text("\n")
    wait_until(lambda: not tool.is_running(123), seconds=10)
    assert len((tmp_path / "said").read_text().splitlines()) == 1


def test_the_hosts_memory_is_known(tmp_path: Path) -> None:
    room = CudaCheckpoint(a_tool(tmp_path, ""), "580.95.05").available_mb()
    assert room is not None
    assert room > 0
