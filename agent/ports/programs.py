"""The programs of this node, their owners, and signals to them."""

import dataclasses
import os
import pwd
import signal
import stat
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

LAST_PID = 2**22
"""The kernel gives no higher process ids."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessOwner:
    """The owner of a program. `names` are the bookings and allocations in its environment, as `run`
    and `env` set them; a false name harms only its owner. `account` is the name of its account, its
    number if it has none, None when unknown; `late`: because the directory has not answered."""

    names: frozenset[str] = frozenset()
    account: str | None = None
    late: bool = False


class Programs(Protocol):
    """By process id. One that is gone is no error."""

    def birth(self, pid: int) -> str | None:
        """Returns what distinguishes a program from a later one with the same id; None if it
        ended."""

    def owner_of(self, pid: int) -> ProcessOwner: ...

    def warn(self, pid: int, number: int) -> bool:
        """Sends a signal, unless the program has no handler for it: it would end by it. Returns
        whether it was sent."""

    def named(self, names: Collection[str]) -> tuple[int, ...]:
        """All whose environment names one of these bookings or allocations."""

    def write(self, pid: int, text: str) -> int:
        """Writes a line to the terminals of the program's account; returns to how many."""

    def ask(self, pid: int, birth: str) -> None:
        """Asks the program that was born so, and no other, to end. Raises PermissionError."""

    def kill(self, pid: int, birth: str) -> None:
        """Ends the program that was born so, and no other. Raises PermissionError."""


class HostPrograms:
    """See Programs; from /proc."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        terminals: Path = Path("/dev/pts"),
        name_of: Callable[[int], str | None] = lambda uid: account_name(uid) or str(uid),
    ) -> None:
        """`name_of` gives an account's name by its number, None where it is not known yet."""
        self._proc = proc
        self._name_of = name_of
        self._terminals = terminals
        self._boot = (proc / "sys/kernel/random/boot_id").read_text().strip()

    def birth(self, pid: int) -> str | None:
        try:
            text = (self._proc / str(pid) / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The name stands in brackets and may hold anything; what follows are plain fields.
        state, *fields = text.rpartition(")")[2].split()
        return None if state in "ZX" else f"{self._boot}/{fields[18]}"

    def owner_of(self, pid: int) -> ProcessOwner:
        folder = self._proc / str(pid)
        try:
            account = folder.stat().st_uid
            raw = (folder / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return ProcessOwner()
        pairs = (line.partition("=") for line in raw.decode(errors="replace").split("\0"))
        values = {name: value for name, _, value in pairs}
        booking = f"{values.get('GPU_BOOKING_TENANT')}.{values.get('GPU_BOOKING')}"
        names = {booking, values.get("GPU_ALLOCATION", "")} - {"None.None", ""}
        name = self._name_of(account)
        return ProcessOwner(frozenset(names), name, late=name is None)

    def warn(self, pid: int, number: int) -> bool:
        return signal_send(pid, number, lambda: self._handles(pid, number))

    def named(self, names: Collection[str]) -> tuple[int, ...]:
        pids = (int(path.name) for path in self._proc.iterdir() if path.name.isdecimal())
        return tuple(pid for pid in sorted(pids) if not self.owner_of(pid).names.isdisjoint(names))

    def write(self, pid: int, text: str) -> int:
        try:
            account = (self._proc / str(pid)).stat().st_uid
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return sum(terminal_write(path, account, text) for path in terminals(self._terminals))

    def ask(self, pid: int, birth: str) -> None:
        self._send(pid, birth, signal.SIGTERM)

    def kill(self, pid: int, birth: str) -> None:
        self._send(pid, birth, signal.SIGKILL)

    def _send(self, pid: int, birth: str, number: int) -> None:
        signal_send(pid, number, lambda: self.birth(pid) == birth)

    def _handles(self, pid: int, number: int) -> bool:
        for line in (self._proc / str(pid) / "status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name == "SigCgt":
                return bool(int(mask, 16) >> (number - 1) & 1)
        return False


def is_signalled(pid: int) -> bool:
    """Returns whether a signal may go to this number: not to all, to init or to the agent, and not
    to what the kernel can't have given."""
    return 1 < pid <= LAST_PID and pid != os.getpid()


def signal_send(pid: int, number: int, check: Callable[[], bool] = lambda: True) -> bool:
    """Sends a signal to a process if `check` confirms it. Returns whether it was sent.

    A process that has ended is no error. Raises PermissionError.
    """
    if not is_signalled(pid):
        return False
    try:
        # A pid file descriptor can't refer to another process in between.
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not check():
            return False
        signal.pidfd_send_signal(descriptor, number)
    except (FileNotFoundError, ProcessLookupError):
        return False
    finally:
        os.close(descriptor)
    return True


def terminals(folder: Path) -> list[Path]:
    """Those that are open now."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if path.name.isdecimal())


def terminal_write(path: Path, account: int, text: str) -> bool:
    """Writes a line to a terminal, if it is that account's; a full or closed one is passed over."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISCHR(found.st_mode) or found.st_uid != account:
            return False
        os.write(descriptor, f"\r\n*** {text}\r\n".encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def account_uid(name: str) -> int | None:
    """The account on this node that a member of the portal has: the one of the same name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def account_same(member: str) -> str | None:
    """The name of that account."""
    return None if account_uid(member) is None else member


def account_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
