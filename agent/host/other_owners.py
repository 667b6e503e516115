"""Detects other schedulers of this node's GPUs, such as Slurm and Kubernetes.

While one runs here, a program without a booking may be its job.
"""

import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path

log = logging.getLogger(__name__)

OTHER_SCHEDULERS = (
    "slurmd",
    "slurmstepd",
    "kubelet",
    "pbs_mom",
    "k3s-server",
    "k3s-agent",
    "nomad",
)
FRESH_S = 10.0
_PROC = Path("/proc")


def running(proc: Path, names: Collection[str]) -> list[str]:
    """Returns which of these programs run, by the names that the kernel keeps."""
    there = set()
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            try:
                there.add((folder / "comm").read_text(errors="replace").strip())
            except OSError:
                continue  # it has ended meanwhile
    return sorted(there & set(names))


class OtherSchedulers:
    """Looks at most every FRESH_S: it is asked about every program of a full node."""

    def __init__(self, proc: Path = _PROC, steady: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._steady = steady
        self._fresh_until: float | None = None
        self._there: list[str] = []

    def none(self) -> bool:
        """Returns whether the GPUs have one owner. Where that can't be seen they have not."""
        now = self._steady()
        if self._fresh_until is None or now >= self._fresh_until:
            before = self._there
            try:
                self._there = running(self._proc, OTHER_SCHEDULERS)
            except OSError as error:
                self._there = [f"unknown ({error})"]
            self._fresh_until = now + FRESH_S
            if self._there and self._there != before:
                log.warning(
                    "no unbooked process is ended while other schedulers run here: %s", ", ".join(self._there)
                )
        return not self._there
