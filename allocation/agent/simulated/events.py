"""The part of NVML that tells of errors: a set of GPUs that are listened to, and what they said."""

import pynvml

from allocation.agent.simulated.calls import Calls, CData, symbol, target
from allocation.agent.simulated.hardware import Error, Hardware
from allocation.agent.simulated.models import HardwareFault

_SUPPORTED = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeSingleBitEccErrorStorm
)
_NO_INSTANCE = 0xFFFFFFFF


class SimulatedEvents(Calls):
    """Event sets. One with a GPU that is lost says that, and nothing of the others in it."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        self._registered: dict[int, set[str]] = {}

    @symbol
    def nvmlEventSetCreate(self, ref: CData) -> None:
        number = next(self._fresh)
        self._registered[number] = set()
        self._give(ref, ("events", "", number))

    @symbol
    def nvmlEventSetFree(self, events: CData) -> None:
        key = self._key(events, "events")
        del self._registered[key[2]], self._keys[self._handles.pop(key)]

    @symbol
    def nvmlDeviceGetSupportedEventTypes(self, handle: CData, ref: CData) -> None:
        self._gpu(handle)
        target(ref).value = _SUPPORTED

    @symbol
    def nvmlDeviceRegisterEvents(self, handle: CData, types: CData, events: CData) -> None:
        registered = self._registered[self._key(events, "events")[2]]
        if types.value & ~_SUPPORTED:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        if types.value:
            registered.add(self._gpu(handle).uuid)

    @symbol
    def nvmlEventSetWait_v2(self, events: CData, ref: CData, timeout_ms: CData) -> None:
        registered = self._registered[self._key(events, "events")[2]]
        errors = self.hardware.errors
        # What happens to a GPU that nobody listens to is told to nobody.
        every = set().union(*self._registered.values())
        waiting = [error for error in errors if error.gpu in every]
        errors.clear()
        errors.extend(waiting)
        lost = {gpu.uuid for gpu in self.hardware.gpus if gpu.lost} & registered
        mine = [error for error in waiting if error.gpu in (lost or registered)]
        if mine:
            errors.remove(mine[0])
            self._tell(target(ref), mine[0])
            return
        raise HardwareFault("NVML_ERROR_GPU_IS_LOST" if lost else "NVML_ERROR_TIMEOUT")

    def _tell(self, data: CData, error: Error) -> None:
        self._give(data, ("gpu", error.gpu, 0))
        data.eventType = {
            0: pynvml.nvmlEventTypeXidCriticalError,
            1: pynvml.nvmlEventTypeSingleBitEccErrorStorm,
            2: pynvml.nvmlEventTypeDoubleBitEccError,
        }[error.bits]
        data.eventData = error.xid
        data.gpuInstanceId = _NO_INSTANCE if error.instance is None else error.instance
