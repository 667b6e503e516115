"""Runs the site's own programs around a change of a GPU's mode.

Services that watch GPUs (DCGM, exporters, nvidia-persistenced) have all device files open, and a
driver changes no GPU that anybody has open. The site's programs in `DIR/release` stop them, those
in `DIR/regain` start them again.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from allocation.agent.owner.hooks import LIMIT_S, HookPrograms

log = logging.getLogger(__name__)


class ModeHooks:
    """GPUs may change at the same time, each on a thread of its own: services are stopped before
    the first of them, and started after the last. An agent that is killed in between starts them
    in its next life."""

    def __init__(self, folder: Path, state: Path, *, limit_s: float = LIMIT_S) -> None:
        """`state` is the folder of the file that remembers that services are stopped."""
        self._programs = HookPrograms(folder, limit_s)
        self._mark = state / "released"
        self._lock = threading.Lock()
        self._changing = 0
        if self._mark.exists():
            self._regain("")

    @contextlib.contextmanager
    def __call__(self, gpu: str) -> Iterator[None]:
        """Within it nobody who watches has the GPU of this UUID open."""
        with self._lock:
            if self._changing == 0:
                self._release(gpu)
            self._changing += 1
        try:
            yield
        finally:
            with self._lock:
                self._changing -= 1
                if self._changing == 0:
                    self._regain(gpu)

    def _release(self, gpu: str) -> None:
        try:
            self._mark.touch()
        except OSError as error:
            log.warning("services may stay stopped if the agent is killed: %s", error)
        self._programs.run("release", gpu, {"GPU_UUID": gpu})

    def _regain(self, gpu: str) -> None:
        self._programs.run("regain", gpu, {"GPU_UUID": gpu})
        try:
            self._mark.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s can't be removed: %s", self._mark, error)
