"""Errors that the driver reports, and the users of processes, through pynvml.

NVML must be open already; `NvmlGpu` opens it.
"""

import ctypes
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pynvml

from agent.nvml.calls import REFUSALS, Handle, attempt, code_of, field_value
from agent.ports.gpu import FoundError
from wire import Recovery

log = logging.getLogger(__name__)

_XID = pynvml.nvmlEventTypeXidCriticalError
# Memory errors by the number of wrong bits.
_ECC_BITS = {
    pynvml.nvmlEventTypeDoubleBitEccError: 2,
    pynvml.nvmlEventTypeSingleBitEccErrorStorm: 1,
}
_WANTED = _XID | pynvml.nvmlEventTypeDoubleBitEccError | pynvml.nvmlEventTypeSingleBitEccErrorStorm
_NO_INSTANCE = 0xFFFFFFFF
_MOST_AT_ONCE = 256
_RECOVERY_CHANGED = 154
_RECOVERIES: dict[int | None, Recovery] = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "none",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "reboot",
}


def process_user(pid: int, name_of: Callable[[int], str | None]) -> str | None:
    """Returns the user of a process, its uid while the name is unknown; None if it ended."""
    try:
        number = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
    return name_of(number) or str(number)


class NvmlWatch:
    """See gpu.WatchPort. `process_user(pid)` names the user of a process.

    Each GPU has its own event set, because a lost GPU blocks its whole set.
    """

    def __init__(self, process_user: Callable[[int], str | None]) -> None:
        self._process_user = process_user
        self._sets: dict[str, Handle] = {}
        self._uuids: dict[int | None, str] = {}

    def close(self) -> None:
        for uuid in list(self._sets):
            self._close_set(uuid)

    def errors(self) -> tuple[FoundError, ...]:
        """Returns the errors since the last call, without waiting."""
        self._register()
        return tuple(error for uuid in list(self._sets) for error in self._of(uuid))

    def users(self, pids: Collection[int]) -> tuple[str, ...]:
        """Returns the users of these processes, by name."""
        return tuple(sorted({user for pid in pids if (user := self._process_user(pid))}))

    def hanging(self) -> tuple[str, ...]:
        """Returns nothing: a call that hangs does not return here. See TimeoutWatch."""
        return ()

    def _of(self, uuid: str) -> Iterator[FoundError]:
        for _ in range(_MOST_AT_ONCE):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._sets[uuid], 0)
            except REFUSALS as error:
                if code_of(error) != pynvml.NVML_ERROR_TIMEOUT:
                    # The GPU is lost, which other calls report; it is registered again later.
                    self._close_set(uuid)
                return
            yield _found(uuid, event)

    def _register(self) -> None:
        """Subscribes to the errors of each GPU that supports it."""
        for index in range(attempt(pynvml.nvmlDeviceGetCount) or 0):
            events = None
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                if self._uuids.get(_address(handle)) in self._sets:
                    continue
                uuid = pynvml.nvmlDeviceGetUUID(handle)
                wanted = _WANTED & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                events = pynvml.nvmlEventSetCreate()
                pynvml.nvmlDeviceRegisterEvents(handle, wanted, events)
            except REFUSALS:
                _free(events)
                continue
            self._close_set(uuid)
            self._sets[uuid], self._uuids[_address(handle)] = events, uuid

    def _close_set(self, uuid: str) -> None:
        _free(self._sets.pop(uuid, None))


def _free(events: Handle) -> None:
    if events is not None:
        attempt(pynvml.nvmlEventSetFree, events)


def _found(uuid: str, event: Handle) -> FoundError:
    bits = _ECC_BITS.get(event.eventType)
    instance = int(event.gpuInstanceId)
    recovery: Recovery | None = None
    if bits is None and event.eventData == _RECOVERY_CHANGED:
        field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        recovery = _RECOVERIES.get(field_value(event.device, field))
    return FoundError(
        gpu=uuid,
        kind="xid" if bits is None else "ecc",
        code=int(event.eventData) if bits is None else bits,
        instance=None if instance == _NO_INSTANCE else instance,
        recovery=recovery,
    )


def _address(handle: Handle) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
