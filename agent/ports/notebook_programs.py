"""The programs of notebooks on this node: how they are started, found and ended.

All that a notebook starts has its id in the environment, so that another agent finds it again.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from agent.ports.commands import command_run
from agent.ports.programs import signal_send

MARK = "GPU_NOTEBOOK"
# The files in the folder of a notebook.
SECRET, SOCKET, STATUS, LOG = "secret", "s", "status.json", "log"
_PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_LIMIT_S = 3.0


@dataclass(frozen=True, slots=True)
class NotebookStart:
    """What is to be started: as which account, in which systemd slice (empty: none)."""

    id: str
    owner: str
    account: str
    uid: int
    unit: str
    command: Sequence[str]
    folder: Path

    @property
    def mark(self) -> dict[str, str]:
        """The variable by which its programs are found."""
        return {MARK: self.id}


class NotebookStarter(Protocol):
    """Starts programs of notebooks."""

    def uid(self, account: str) -> int | None:
        """Returns the number of an account, None where it is not known."""

    def start(self, wanted: NotebookStart) -> None:
        """Starts it, and does not wait for it. Raises OSError."""

    def reap(self) -> int:
        """Takes leave of children that have ended; returns how many run."""


class Children:
    """Children that run next to this process and are not waited for."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Raises OSError."""
        child = subprocess.Popen(  # noqa: S603 (a command of the site, no shell)
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._running.append(child)

    def reap(self) -> int:
        """Takes leave of those that have ended; returns how many run."""
        self._running = [child for child in self._running if child.poll() is None]
        return len(self._running)


class AccountStarter:
    """Starts them as the owner's account: by systemd, else as root by `runuser`, else only as the
    account of the agent itself."""

    def __init__(
        self,
        uid_of: Callable[[str], int | None],
        *,
        has_systemd: bool | None = None,
        run: Callable[[Sequence[str], float], str] = command_run,
    ) -> None:
        self._uid_of = uid_of
        self._run = run
        found = Path("/run/systemd/system").is_dir() if has_systemd is None else has_systemd
        self._has_systemd = found and os.geteuid() == 0
        self._children = Children()

    def uid(self, account: str) -> int | None:
        return self._uid_of(account)

    def start(self, wanted: NotebookStart) -> None:
        if self._has_systemd:
            self._run(_systemd_command(wanted), _LIMIT_S)
            return
        command = list(wanted.command)
        if os.geteuid() == 0:
            command = ["runuser", "-u", wanted.account, "--", *command]
        elif wanted.uid != os.geteuid():
            raise PermissionError(f"the agent is not root and can't start programs as {wanted.account}")
        self._children.start(command, _PLAIN | wanted.mark, wanted.folder)

    def reap(self) -> int:
        return self._children.reap()


def _systemd_command(wanted: NotebookStart) -> list[str]:
    """As a service of its own: the agent's has rights that no program of a person may have."""
    values = _PLAIN | wanted.mark
    return [
        *("systemd-run", "--quiet", "--collect", "--no-block", f"--unit=gpu-notebook-{wanted.id}"),
        *(f"--uid={wanted.account}", f"--working-directory={wanted.folder}"),
        *([f"--slice={wanted.unit}"] if wanted.unit else []),
        *(f"--setenv={name}={value}" for name, value in values.items()),
        *("--", *wanted.command),
    ]


def notebook_pids(notebook: str, uid: int, proc: Path = Path("/proc")) -> list[int]:
    """Returns the programs of an account that belong to a notebook. Others' are never named."""
    pids = (int(path.name) for path in proc.iterdir() if path.name.isdecimal())
    return [pid for pid in pids if _belongs(pid, notebook, uid, proc)]


def notebook_signal(notebook: str, uid: int, number: int) -> bool:
    """Signals its programs; returns whether there are any."""
    pids = notebook_pids(notebook, uid)
    for pid in pids:
        signal_send(pid, number, partial(_belongs, pid, notebook, uid))
    return bool(pids)


def _belongs(pid: int, notebook: str, uid: int, proc: Path = Path("/proc")) -> bool:
    program = proc / str(pid)
    try:
        if program.stat().st_uid != uid or "Z" in _state(program):
            return False
        return f"{MARK}={notebook}".encode() in (program / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def _state(program: Path) -> str:
    # The name stands in brackets and may hold anything; the state follows.
    return (program / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
