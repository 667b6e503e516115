"""The port to what freezes programs: device memory goes to the host's, the device is let go."""

import contextlib
import dataclasses
import fcntl
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from allocation.agent.handover import full_name
from allocation.wire import DesiredAllocation

log = logging.getLogger(__name__)

LIMIT_S = 120.0
_MEMORY = Path("/proc/meminfo")


Program = tuple[int, str]
"""Process id and birth: see programs.Programs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Suspended:
    """Our record of programs that were frozen on a GPU, or are about to be, for an allocation;
    and the one for which they are woken."""

    allocation: str
    booking: str
    gpu: str
    programs: tuple[Program, ...]
    resumed_by: str | None = None

    @classmethod
    def of(
        cls, allocation: DesiredAllocation, gpu: str, programs: tuple[Program, ...]
    ) -> "Suspended":
        return cls(allocation.id, full_name(allocation), gpu, programs)

    def woken_by(self, allocation: str) -> "Suspended":
        return dataclasses.replace(self, resumed_by=allocation)


class Suspender(Protocol):
    """By process id; every call returns at once.

    A toggle freezes what runs and wakes what is frozen, so whoever calls must know which it is:
    what a driver names on a device runs.
    """

    def room_mb(self) -> int | None:
        """What the host has to take device memory, in MiB; None if that is not known."""

    def toggle(self, pid: int) -> None:
        """Begins. While one is under way for this program nothing else is begun."""

    def busy(self, pid: int) -> bool:
        """Whether one is under way, begun by this life of the agent or by an earlier one."""

    def result(self, pid: int) -> str | None:
        """Of the last one of this life: "" when it was done, else why not; None while there is
        none or it is under way."""


@dataclasses.dataclass(slots=True)
class _Run:
    child: "subprocess.Popen[bytes]"
    until: float
    killed: bool = False


class CudaCheckpoint:
    """NVIDIA's `cuda-checkpoint --toggle`, as a program of its own with a limited time.

    A child outlives an agent that is killed, and must not meet a second one for the same program,
    which would undo its work: each holds a lock while it runs.
    """

    def __init__(
        self, program: Path, folder: Path, steady: Callable[[], float] = time.monotonic
    ) -> None:
        """`folder` is for the locks. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        self._program = program
        self._folder = folder
        self._steady = steady
        self._runs: dict[int, _Run] = {}
        self._results: dict[int, str] = {}
        for path in folder.glob("*.lock"):
            if not self.busy(int(path.stem)):
                path.unlink()

    def room_mb(self) -> int | None:
        for line in _MEMORY.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) >> 10
        return None

    def toggle(self, pid: int) -> None:
        if self.busy(pid):
            return
        self._results.pop(pid, None)
        with self._locked(pid) as lock:
            if lock is None:
                return
            try:
                child = subprocess.Popen(  # noqa: S603 (the site's own program, no shell)
                    [self._program, "--toggle", "--pid", str(pid)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=[lock],
                )
            except OSError as error:
                self._results[pid] = f"{self._program.name}: {error.strerror}"
                return
        self._runs[pid] = _Run(child, self._steady() + LIMIT_S)

    def busy(self, pid: int) -> bool:
        self._reap(pid)
        if pid in self._runs:
            return True
        with self._locked(pid) as lock:
            return lock is None

    def result(self, pid: int) -> str | None:
        self._reap(pid)
        return None if pid in self._runs else self._results.get(pid)

    def _reap(self, pid: int) -> None:
        run = self._runs.get(pid)
        if run is None:
            return
        code = run.child.poll()
        if code is None:
            # A child that the driver holds may take its time to die: until then it is under way.
            if self._steady() >= run.until and not run.killed:
                run.child.kill()
                run.killed = True
            return
        if run.killed:
            self._results[pid] = f"it took longer than {LIMIT_S:g} s"
        else:
            self._results[pid] = f"{self._program.name} ended with {code}" if code else ""
        del self._runs[pid]

    @contextlib.contextmanager
    def _locked(self, pid: int) -> Iterator[int | None]:
        """The lock's descriptor, which a child keeps; None while another one has it."""
        path = self._folder / f"{pid}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        except BlockingIOError:
            yield None
        finally:
            os.close(descriptor)


def suspender_find(folder: Path) -> CudaCheckpoint | None:
    """`cuda-checkpoint` of this node, if there is one. Raises OSError."""
    program = shutil.which("cuda-checkpoint")
    if program is None:
        log.info("no cuda-checkpoint here: what shall be suspended is stopped")
        return None
    return CudaCheckpoint(Path(program), folder)
