"""The programs that have device files of GPUs open, from the kernel.

NVML's lists leave out programs that hold a GPU without a context on it: monitoring, programs that
are just starting, and those whose context is gone while their file is not (DCGM issue 95). Some
drivers answer wrong process ids. The open files of /proc are the proof in both cases.
"""

import dataclasses
import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

_FILE = re.compile(r"/(nvidia\d+|nvidia-cap\d+)$")
AMD_FILE = re.compile(r"/dev/dri/(renderD\d+)$")
_SYSTEM_UIDS = 1000
# One scan serves all GPUs of a turn. On a node with very many programs scans take at most a fifth
# of the time.
FRESH_S = 0.2
_REST = 4

SERVICES = frozenset(
    {
        "nvidia-persiste",
        "nv-fabricmanage",
        "nv-hostengine",
        "dcgm-exporter",
        "nvidia_gpu_expo",
        "nvidia-smi",
        "nvidia-device-p",
        "gpu-feature-dis",
        "nvidia-mig-mana",
        "amd-smi",
        "rocm-smi",
        "gpuagent",
    }
)
"""Names, as the kernel cuts them to 15 bytes, of services that watch GPUs and compute nothing."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Opener:
    """A program with an open device file. A `service` monitors GPUs: it may stay at a hand-over,
    but prevents a reset."""

    pid: int
    name: str = ""
    service: bool = False

    def __str__(self) -> str:
        return f"{self.name or 'a process'} (pid {self.pid})"


@dataclasses.dataclass(frozen=True, slots=True)
class Openers:
    """The programs by open device file (`nvidia0`, `nvidia-cap12`, or a whole path). `hidden` are the
    programs whose open files can't be read."""

    by_file: Mapping[str, frozenset[Opener]] = dataclasses.field(default_factory=dict)
    hidden: frozenset[int] = frozenset()

    def of(self, path: str) -> frozenset[Opener]:
        """Returns the programs that have this device file open."""
        return self.by_file.get(path, self.by_file.get(path.rpartition("/")[2], frozenset()))


class OpenFiles(Protocol):
    """Looks at the open files of this node's programs."""

    def openers(self) -> Openers:
        """Returns who has device files open, but for the agent itself."""


class HostOpenFiles:
    """See OpenFiles; from /proc. `services` are names of further services of the site. To look for other
    files than NVIDIA's there are `paths`, and `pattern`, whose first group names a file."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        services: frozenset[str] = frozenset(),
        steady: Callable[[], float] = time.monotonic,
        paths: frozenset[str] = frozenset(),
        pattern: re.Pattern[str] = _FILE,
    ) -> None:
        self._proc = proc
        self._pattern = pattern
        self._paths = paths
        self._services = SERVICES | {_comm(name) for name in services}
        self._steady = steady
        self._seen: tuple[float, Openers] | None = None
        self._warned = False

    def openers(self) -> Openers:
        """Returns who has device files open, but for the agent itself."""
        began = self._steady()
        if self._seen is None or began >= self._seen[0]:
            found = self._look()
            now = self._steady()
            self._seen = (now + max(FRESH_S, _REST * (now - began)), found)
        return self._seen[1]

    def _look(self) -> Openers:
        found: dict[str, set[Opener]] = defaultdict(set)
        hidden: set[int] = set()
        own = os.getpid()
        for name in os.listdir(self._proc):
            if not name.isdecimal() or int(name) == own:
                continue
            try:
                files = self._files(name)
            except PermissionError:
                hidden.add(int(name))
                continue
            except OSError:
                continue  # it has ended meanwhile
            for file in files:
                found[file].add(self._opener(int(name)))
        if hidden and not self._warned:
            self._warned = True
            log.warning(
                "the open files of %d programs can't be read: who uses a GPU without a context is not seen",
                len(hidden),
            )
        return Openers({file: frozenset(those) for file, those in found.items()}, frozenset(hidden))

    def _files(self, pid: str) -> set[str]:
        folder = f"{self._proc}/{pid}/fd"
        found: set[str] = set()
        for descriptor in os.listdir(folder):
            try:
                # Only read the link: following it may wait for a file server.
                target = os.readlink(f"{folder}/{descriptor}")
            except FileNotFoundError:
                continue
            if self._paths:
                found |= self._paths & {target}
            elif match := self._pattern.search(target):
                found.add(match[1])
        return found

    def _opener(self, pid: int) -> Opener:
        folder = self._proc / str(pid)
        try:
            name = (folder / "comm").read_text(errors="replace").strip()
            # Users can choose program names, so only system accounts count.
            system = folder.stat().st_uid < _SYSTEM_UIDS
        except OSError:
            return Opener(pid)
        return Opener(pid, name, system and name in self._services)


def _comm(name: str) -> str:
    """Returns a program's name as the kernel keeps it."""
    return name.encode()[:15].decode(errors="ignore")
