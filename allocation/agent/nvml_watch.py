"""Errors that the driver tells of, and whose processes are where, through pynvml.

NVML must be open already; `NvmlGpu` opens it.
"""

import ctypes
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from allocation.agent.gpu import FoundError, GpuError

_XID = pynvml.nvmlEventTypeXidCriticalError
# What an error of memory is told as: how many bits were wrong.
_ECC_BITS = {
    pynvml.nvmlEventTypeDoubleBitEccError: 2,
    pynvml.nvmlEventTypeSingleBitEccErrorStorm: 1,
}
_WANTED = _XID | pynvml.nvmlEventTypeDoubleBitEccError | pynvml.nvmlEventTypeSingleBitEccErrorStorm
_NO_INSTANCE = 0xFFFFFFFF
_MOST_AT_ONCE = 256


def process_user(pid: int) -> str | None:
    """Whose process it is, by name, or by number where the name is not known; None: it is gone."""
    try:
        number = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


class NvmlWatch:
    """See gpu.WatchPort. `process_user(pid)` names the user of a process."""

    def __init__(self, process_user: Callable[[int], str | None]) -> None:
        self._process_user = process_user
        self._uuids: dict[int | None, str] = {}
        try:
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            raise GpuError("driver", f"the driver tells of no errors: {error}") from error

    def close(self) -> None:
        pynvml.nvmlEventSetFree(self._set)

    def errors(self) -> tuple[FoundError, ...]:
        """What happened since the last call, without waiting."""
        self._listen()
        found: list[FoundError] = []
        while len(found) < _MOST_AT_ONCE:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, 0)
            except pynvml.NVMLError:
                # Nothing more; or a GPU is gone, which whoever reads it finds out.
                break
            found.append(self._found(event))
        return tuple(error for error in found if error.gpu)

    def users(self, gpu: str, instance: int | None) -> tuple[str, ...]:
        """Who has processes on an instance (None: on the whole GPU), by name."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except pynvml.NVMLError as error:
            raise GpuError("driver", f"looking for processes: {error}") from error
        pids = [each.pid for each in running if instance in (None, each.gpuInstanceId)]
        return tuple(sorted({user for pid in pids if (user := self._process_user(pid))}))

    def hanging(self) -> tuple[str, ...]:
        """Of a call that hangs nobody gets here to tell."""
        return ()

    def _listen(self) -> None:
        """A GPU that can't tell of errors is left alone."""
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                if _address(handle) in self._uuids:
                    continue
                uuid = pynvml.nvmlDeviceGetUUID(handle)
                wanted = _WANTED & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                pynvml.nvmlDeviceRegisterEvents(handle, wanted, self._set)
            except pynvml.NVMLError:
                continue
            self._uuids[_address(handle)] = uuid

    def _found(self, event: Any) -> FoundError:  # noqa: ANN401  pynvml has no types
        bits = _ECC_BITS.get(event.eventType)
        instance = int(event.gpuInstanceId)
        return FoundError(
            gpu=self._uuids.get(_address(event.device), ""),
            kind="xid" if bits is None else "ecc",
            code=int(event.eventData) if bits is None else bits,
            instance=None if instance == _NO_INSTANCE else instance,
        )


def _address(handle: Any) -> int | None:  # noqa: ANN401  an opaque pointer
    return ctypes.cast(handle, ctypes.c_void_p).value
