"""Programs that live and die with the process that started them."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

POLL_SECONDS = 0.05
PR_SET_PDEATHSIG = 1


class StartFailed(Exception):
    """A program ended, or gave no sign of life, before it was ready; the message names it."""


@dataclass(frozen=True)
class Program:
    """What to start, as whom, how to see that it is ready and how to stop it.

    `user` is a number used for both user and group; None keeps the own one.
    `stop_signal` is also what the program gets when its parent dies without a word.
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
    """Keyword arguments that `subprocess.Popen` and asyncio's equivalent both take.

    Every program leads its own process group, so that a Ctrl-C reaches only the launcher, which
    then stops the programs in order.
    """
    parent = os.getpid()
    return {
        "cwd": program.folder,
        "env": dict(program.environment),
        "stdin": subprocess.DEVNULL,
        "start_new_session": True,
        "preexec_fn": lambda: _end_with_parent(parent, program.stop_signal),
        **identity_options(program.user),
    }


def identity_options(user: int | None) -> dict[str, Any]:
    """Keyword arguments for subprocess that drop to `user`, or none of them."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def start(
    program: Program, output: IO[bytes] | int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
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
    """Ask the program to end; after its time, end its whole process group."""
    if process.poll() is None:
        process.send_signal(program.stop_signal)
        try:
            process.wait(program.stop_seconds)
        except subprocess.TimeoutExpired:
            group_kill(process.pid)
            process.wait()


def group_kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal the process group that `pid` leads, if it is still there."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def pid_write(folder: Path, name: str, pid: int) -> None:
    """Remember a started program, together with its birth, as numbers of the dead are reused."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"pid": pid, "born": process_birth(pid)}
    (folder / f"{name}.pid").write_text(json.dumps(record), encoding="utf-8")


def leftovers_end(folder: Path) -> list[str]:
    """End what an earlier, killed launcher left behind; returns the names.

    A process whose birth differs from the remembered one is somebody else's and stays.
    """
    found = {path: _pid_read(path) for path in sorted(folder.glob("*.pid"))}
    alive = {
        path.stem: (pid, born)
        for path, (pid, born) in found.items()
        if born and process_birth(pid) == born
    }
    for pid, _ in alive.values():
        group_kill(pid, signal.SIGTERM)
    for pid, born in alive.values():
        if not _wait_until_gone(pid, born, seconds=5):
            group_kill(pid)
            _wait_until_gone(pid, born, seconds=5)
    for path in found:
        path.unlink(missing_ok=True)
    return list(alive)


def process_birth(pid: int) -> int | None:
    """Clock ticks from boot to the start of process `pid`; None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name, in brackets, may itself contain brackets and spaces.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _pid_read(path: Path) -> tuple[int, int]:
    """Number and birth; zeros from a file that can't be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return int(record["pid"]), int(record["born"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0


def _wait_until_gone(pid: int, born: int, *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process_birth(pid) == born:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _end_with_parent(parent: int, number: signal.Signals) -> None:
    """Between fork and exec: let the kernel signal us when `parent` dies, even by SIGKILL."""
    if sys.platform != "linux":
        return
    _LIBC.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


# Loaded here and not after the fork, where taking the loader's lock could hang.
_LIBC = ctypes.CDLL(None)
