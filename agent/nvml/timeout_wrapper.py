"""The ports of a driver that may hang: each call has a time limit.

A late call raises GpuError("hangs"). Until it returns, no other call about that GPU is made; a
later turn sees its effect.
"""

import contextlib
from collections.abc import Callable, Collection

from agent.nvml.reset import RESET_S
from agent.owner.cdi import DeviceNodes
from agent.ports.gpu import (
    FoundError,
    GpuError,
    GpuPort,
    Place,
    Reading,
    Truth,
    WatchPort,
)
from agent.ports.worker_threads import (
    BRIEF_LIMIT_S,
    CHANGE_LIMIT_S,
    OPEN_LIMIT_S,
    WorkerThreads,
)
from wire import InventoryGpu, Mode

ALL_GPUS = "all GPUs"
_FILES = "device files"


class TimeoutGpu:
    """See gpu.GpuPort."""

    def __init__(self, port: GpuPort, threads: WorkerThreads) -> None:
        self._port = port
        self._threads = threads
        # Without persistence mode the first look wakes each GPU, which takes seconds.
        self._first_s = OPEN_LIMIT_S

    def driver(self) -> str:
        return self._threads.ask(ALL_GPUS, self._port.driver)

    def inventory(self) -> tuple[InventoryGpu, ...]:
        found = self._threads.change(ALL_GPUS, self._port.inventory, max(self._first_s, CHANGE_LIMIT_S))
        self._first_s = 0.0
        return found

    def truth(self, gpu: str) -> Truth:
        return self._threads.ask(gpu, lambda: self._port.truth(gpu))

    def set_mode(self, gpu: str, mode: Mode) -> None:
        """Waits briefly, because leases can't wait for a reset; a later turn sees the result."""
        self._threads.change(
            gpu, lambda: self._port.set_mode(gpu, mode), limit_s=BRIEF_LIMIT_S, hangs_s=2 * RESET_S
        )

    def create(self, gpu: str, place: Place) -> None:
        self._threads.change(gpu, lambda: self._port.create(gpu, place))

    def destroy(self, gpu: str, instance: int) -> None:
        self._threads.change(gpu, lambda: self._port.destroy(gpu, instance))

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        return self._threads.ask(gpu, lambda: self._port.pids(gpu, instance))

    def end_processes(
        self, gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        self._threads.ask(gpu, lambda: self._port.end_processes(gpu, instance, force=force, only=only))

    def readings(self, gpu: str) -> tuple[Reading, ...]:
        return self._threads.ask(gpu, lambda: self._port.readings(gpu))

    def close(self) -> None:
        """Closes the driver unless it hangs: the process can end without it."""
        _close(self._threads, self._port.close)


class TimeoutWatch:
    """See gpu.WatchPort."""

    def __init__(self, watch: WatchPort, threads: WorkerThreads) -> None:
        self._watch = watch
        self._threads = threads

    def errors(self) -> tuple[FoundError, ...]:
        return self._threads.ask(ALL_GPUS, self._watch.errors)

    def users(self, pids: Collection[int]) -> tuple[str, ...]:
        """Returns the users without a call of the driver."""
        return self._watch.users(pids)

    def hanging(self) -> tuple[str, ...]:
        return tuple(name for name in self._threads.hanging() if name not in (ALL_GPUS, _FILES))

    def close(self) -> None:
        _close(self._threads, self._watch.close)


class TimeoutDeviceNodes:
    """See cdi.DeviceNodes."""

    def __init__(self, nodes: DeviceNodes, threads: WorkerThreads) -> None:
        self._nodes = nodes
        self._threads = threads

    def common(self) -> tuple[str, ...]:
        return self._nodes.common()

    def of(self, device: str) -> tuple[str, ...]:
        return self._threads.ask(_FILES, lambda: self._nodes.of(device))


def _close(threads: WorkerThreads, close: Callable[[], None]) -> None:
    if not threads.idle:
        return
    with contextlib.suppress(GpuError):  # the process ends anyway
        threads.change(ALL_GPUS, close)


def driver_open(
    threads: WorkerThreads,
    gpu: Callable[[], GpuPort],
    watch: Callable[[], WatchPort],
    stack: contextlib.ExitStack,
) -> tuple[GpuPort, WatchPort]:
    """Opens the driver on its threads; `stack` closes it. Raises GpuError, also when it hangs."""
    port = TimeoutGpu(threads.change(ALL_GPUS, gpu, OPEN_LIMIT_S), threads)
    stack.callback(port.close)
    watching = TimeoutWatch(threads.change(ALL_GPUS, watch, OPEN_LIMIT_S), threads)
    stack.callback(watching.close)
    return port, watching
