"""The part of NVML that tells of errors: a set of GPUs that are listened to, and what they said."""

import pynvml

from allocation.agent.simulated_calls import Calls, CData, symbol, target
from allocation.agent.simulated_hardware import Error, Hardware, HardwareFault

_SUPPORTED = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeSingleBitEccErrorStorm
)
_NO_INSTANCE = 0xFFFFFFFF


class SimulatedEvents(Calls):
    """One event set is all that an agent makes."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        self._heard: set[str] = set()

    @symbol
    def nvmlEventSetCreate(self, ref: CData) -> None:
        self._give(ref, ("events", "", 0))

    @symbol
    def nvmlEventSetFree(self, events: CData) -> None:
        self._key(events, "events")
        self._heard.clear()

    @symbol
    def nvmlDeviceGetSupportedEventTypes(self, handle: CData, ref: CData) -> None:
        self._gpu(handle)
        target(ref).value = _SUPPORTED

    @symbol
    def nvmlDeviceRegisterEvents(self, handle: CData, types: CData, events: CData) -> None:
        self._key(events, "events")
        if types.value & ~_SUPPORTED:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        if types.value:
            self._heard.add(self._gpu(handle).uuid)

    @symbol
    def nvmlEventSetWait_v2(self, events: CData, ref: CData, timeout_ms: CData) -> None:
        self._key(events, "events")
        while self.hardware.errors:
            error = self.hardware.errors.popleft()
            if error.gpu in self._heard:
                self._tell(target(ref), error)
                return
        raise HardwareFault("NVML_ERROR_TIMEOUT")

    def _tell(self, data: CData, error: Error) -> None:
        self._give(data, ("gpu", error.gpu, 0))
        data.eventType = {
            0: pynvml.nvmlEventTypeXidCriticalError,
            1: pynvml.nvmlEventTypeSingleBitEccErrorStorm,
            2: pynvml.nvmlEventTypeDoubleBitEccError,
        }[error.bits]
        data.eventData = error.xid
        data.gpuInstanceId = _NO_INSTANCE if error.instance is None else error.instance
