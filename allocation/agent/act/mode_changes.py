"""Changes of a GPU's mode that do not work: tried again ever more seldom, and told when they last.

A change that fails at once fails again at once, and each try of a reset disturbs its node. So the
pauses between tries double, and after `STUCK_S` the portal is told that the GPU is stuck.
"""

import dataclasses
from collections.abc import Callable

from allocation.agent.ports.gpu import GpuError, GpuPort
from allocation.wire import Mode

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
STUCK_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """A change that does not work, since `since`; it is tried again at `next_try`."""

    mode: Mode
    text: str
    since: float
    next_try: float
    pause: float


class RetryLater(Exception):
    """The last try has failed, and the next one is not due yet. Its text says why it failed."""


class ModeChanges:
    """What is known of changes that failed, by GPU. `steady` never jumps."""

    def __init__(self, steady: Callable[[], float]) -> None:
        """No change has failed."""
        self._steady = steady
        self._failed: dict[str, Failed] = {}

    def make(self, gpu: str, mode: Mode, port: GpuPort) -> None:
        """Change the mode. Raises GpuError, and Waits while it is not to be tried again."""
        failed = self._failed.get(gpu)
        if failed is not None and failed.mode == mode and self._steady() < failed.next_try:
            raise RetryLater(failed.text)
        try:
            port.set_mode(gpu, mode)
        except GpuError as error:
            # A call that is late has not failed: what it does in the end, the next look finds.
            if error.fault != "hangs":
                self._note(gpu, mode, error)
            raise

    def _note(self, gpu: str, mode: Mode, error: GpuError) -> None:
        now, before = self._steady(), self._failed.get(gpu)
        if before is None or before.mode != mode:
            self._failed[gpu] = Failed(mode, str(error), now, now + FIRST_PAUSE_S, FIRST_PAUSE_S)
            return
        pause = min(2 * before.pause, LONGEST_PAUSE_S)
        self._failed[gpu] = Failed(mode, str(error), before.since, now + pause, pause)

    def blocked(self, gpu: str, mode: Mode, text: str) -> None:
        """Something on the GPU keeps it from being tried."""
        now, before = self._steady(), self._failed.get(gpu)
        since = now if before is None or before.mode != mode else before.since
        self._failed[gpu] = Failed(mode, text, since, now, FIRST_PAUSE_S)

    def done(self, gpu: str) -> None:
        """The GPU has the mode that it should have."""
        self._failed.pop(gpu, None)

    def stuck(self, gpu: str) -> bool:
        """Whether the GPU has been kept from its mode for long."""
        failed = self._failed.get(gpu)
        return failed is not None and self._steady() - failed.since >= STUCK_S
