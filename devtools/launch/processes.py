"""Child processes that end when the process that started them ends."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from portal.parent import end_with_parent

POLL_SECONDS = 0.05
# A process that has had a signal for this long gets SIGKILL.
GONE_WITHIN_SECONDS = 5


class StartFailed(Exception):
    """A program ended or did not become ready in time; the message names it."""


@dataclass(frozen=True)
class Program:
    """A program: its command, its user, its readiness check and its stop signal.

    `user` is an id used for both user and group; None keeps our own. The program also gets
    `stop_signal` when its parent dies.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    user: int | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10
    is_ready: Callable[[], bool] | None = None
    ready_seconds: float = 60


def spawn_options(program: Program) -> dict[str, Any]:
    """Keyword arguments for `subprocess.Popen` and asyncio's equivalent.

    Every program leads its own process group, so that Ctrl-C reaches only the launcher, which then
    stops the programs in order.
    """
    parent = os.getpid()
    return {
        "cwd": program.folder,
        "env": dict(program.environment),
        "stdin": subprocess.DEVNULL,
        "start_new_session": True,
        "preexec_fn": lambda: end_with_parent(parent, program.stop_signal),
        **identity_options(program.user),
    }


def identity_options(user: int | None) -> dict[str, Any]:
    """Keyword arguments for subprocess that switch to `user`; none for our own user."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def start(program: Program, output: IO[bytes] | int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start `program` and wait until it is ready. Raises DidNotStart, with nothing left running."""
    process = subprocess.Popen(  # noqa: S603 (our own programs, never a shell)
        program.command, stdout=output, stderr=subprocess.STDOUT, **spawn_options(program)
    )
    deadline = time.monotonic() + program.ready_seconds
    while program.is_ready is not None and not program.is_ready():
        if process.poll() is not None:
            raise StartFailed(f"{program.name} ended with status {process.returncode}.")
        if time.monotonic() > deadline:
            stop(process, program)
            raise StartFailed(f"{program.name} was not ready in {program.ready_seconds:.0f} s.")
        time.sleep(POLL_SECONDS)
    return process


def stop(process: subprocess.Popen[bytes], program: Program) -> None:
    """Sends the stop signal; kills the whole process group after `stop_seconds`."""
    if process.poll() is None:
        process.send_signal(program.stop_signal)
        try:
            process.wait(program.stop_seconds)
        except subprocess.TimeoutExpired:
            group_kill(process.pid)
            process.wait()


def group_kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signals the process group that `pid` leads, if it still exists."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def pid_write(folder: Path, name: str, pid: int) -> None:
    """Stores the process id of a program with its start time, because ids are reused."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"pid": pid, "born": process_birth(pid)}
    (folder / f"{name}.pid").write_text(json.dumps(record), encoding="utf-8")


def leftovers_end(folder: Path) -> list[str]:
    """Ends the programs that an earlier, killed launcher left running; returns their names.

    A process whose start time differs from the stored one is another program and is not ended.
    """
    found = {path: _pid_read(path) for path in sorted(folder.glob("*.pid"))}
    alive = {
        path.stem: (pid, born) for path, (pid, born) in found.items() if born and process_birth(pid) == born
    }
    for pid, _ in alive.values():
        group_kill(pid, signal.SIGTERM)
    for pid, born in alive.values():
        if not _wait_until_gone(pid, born):
            group_kill(pid)
            _wait_until_gone(pid, born)
    for path in found:
        path.unlink(missing_ok=True)
    return list(alive)


def process_birth(pid: int) -> int | None:
    """Clock ticks from boot to the start of process `pid`; None if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name, in brackets, may itself contain brackets and spaces.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _pid_read(path: Path) -> tuple[int, int]:
    """The process id and start time; zeros if the file can't be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return int(record["pid"]), int(record["born"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0


def _wait_until_gone(pid: int, born: int) -> bool:
    deadline = time.monotonic() + GONE_WITHIN_SECONDS
    while process_birth(pid) == born:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
