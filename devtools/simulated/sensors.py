"""Simulated error events, GPM samples, clocks and energy."""

import dataclasses

import pynvml

from devtools.simulated.calls import Calls, CData, Symbols, symbol, target
from devtools.simulated.hardware import Error, Gpu, gpu_load, power, utilisation
from devtools.simulated.models import HardwareFault
from devtools.simulated.processes import Load

_SUPPORTED = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeSingleBitEccErrorStorm
)
_NO_INSTANCE = 0xFFFFFFFF


class EventSymbols(Symbols):
    """Event sets. A set with a lost GPU returns only that error."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls)
        self._registered: dict[int, set[str]] = {}

    @symbol
    def nvmlEventSetCreate(self, ref: CData) -> None:
        number = self.calls.fresh()
        self._registered[number] = set()
        self.calls.give(ref, ("events", "", number))

    @symbol
    def nvmlEventSetFree(self, events: CData) -> None:
        key = self.calls.key(events, "events")
        del self._registered[key[2]]
        self.calls.forget(key)

    @symbol
    def nvmlDeviceGetSupportedEventTypes(self, handle: CData, ref: CData) -> None:
        self.calls.gpu(handle)
        target(ref).value = _SUPPORTED

    @symbol
    def nvmlDeviceRegisterEvents(self, handle: CData, types: CData, events: CData) -> None:
        registered = self._registered[self.calls.key(events, "events")[2]]
        if types.value & ~_SUPPORTED:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        if types.value:
            registered.add(self.calls.gpu(handle).uuid)

    @symbol
    def nvmlEventSetWait_v2(self, events: CData, ref: CData, timeout_ms: CData) -> None:
        registered = self._registered[self.calls.key(events, "events")[2]]
        errors = self.calls.hardware.errors
        # Errors of a GPU without a subscriber are dropped.
        every = set().union(*self._registered.values())
        waiting = [error for error in errors if error.gpu in every]
        errors.clear()
        errors.extend(waiting)
        lost = {gpu.uuid for gpu in self.calls.hardware.gpus if gpu.lost} & registered
        mine = [error for error in waiting if error.gpu in (lost or registered)]
        if mine:
            errors.remove(mine[0])
            self._tell(target(ref), mine[0])
            return
        raise HardwareFault("NVML_ERROR_GPU_IS_LOST" if lost else "NVML_ERROR_TIMEOUT")

    def _tell(self, data: CData, error: Error) -> None:
        self.calls.give(data, ("gpu", error.gpu, 0))
        data.eventType = {
            0: pynvml.nvmlEventTypeXidCriticalError,
            1: pynvml.nvmlEventTypeSingleBitEccErrorStorm,
            2: pynvml.nvmlEventTypeDoubleBitEccError,
        }[error.bits]
        data.eventData = error.xid
        data.gpuInstanceId = _NO_INSTANCE if error.instance is None else error.instance


_IDLE_MHZ, _BUSY_MHZ, _CAPPED_MHZ = 345, 1980, 1755
# From this load on the simulated power supply holds the clock down.
_CAPPED_FROM = 93


@dataclasses.dataclass(frozen=True, slots=True)
class _Sample:
    gpu: Gpu
    instance: int | None
    load: Load


class SensorSymbols(Symbols):
    """The symbols for measurements."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls)
        self._samples: dict[int, _Sample] = {}
        self._energy: dict[str, tuple[float, float]] = {}

    @symbol
    def nvmlGpmQueryDeviceSupport(self, handle: CData, ref: CData) -> None:
        target(ref).isSupportedDevice = int(self.calls.gpu(handle).model.gpm)

    @symbol
    def nvmlGpmSampleAlloc(self, ref: CData) -> None:
        self.calls.give(ref, ("sample", "", self.calls.fresh()))

    @symbol
    def nvmlGpmSampleFree(self, handle: CData) -> None:
        key = self.calls.key(handle, "sample")
        self.calls.forget(key)
        self._samples.pop(key[2], None)

    @symbol
    def nvmlGpmSampleGet(self, handle: CData, sample: CData) -> None:
        gpu = self.calls.gpu(handle)
        if not gpu.model.gpm or gpu.mig:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        self._sample(sample, gpu, None)

    @symbol
    def nvmlGpmMigSampleGet(self, handle: CData, instance: CData, sample: CData) -> None:
        gpu = self.calls.gpu(handle)
        if not gpu.model.gpm or instance not in gpu.instances:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        self._sample(sample, gpu, instance)

    def _sample(self, sample: CData, gpu: Gpu, instance: int | None) -> None:
        load = gpu_load(self.calls.hardware, gpu, instance)
        self._samples[self.calls.key(sample, "sample")[2]] = _Sample(gpu, instance, load)

    @symbol
    def nvmlGpmMetricsGet(self, ref: CData) -> None:
        asked = target(ref)
        first, second = (
            self._samples[self.calls.key(handle, "sample")[2]] for handle in (asked.sample1, asked.sample2)
        )
        if (first.gpu, first.instance) != (second.gpu, second.instance):
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        before, after = _metrics(first), _metrics(second)
        for metric in asked.metrics[: asked.numMetrics]:
            known = metric.metricId in after
            metric.nvmlReturn = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = (before[metric.metricId] + after[metric.metricId]) / 2 if known else float("nan")

    @symbol
    def nvmlDeviceGetClockInfo(self, handle: CData, kind: CData, ref: CData) -> None:
        busy = utilisation(self.calls.hardware, self.calls.gpu(handle))
        capped = busy >= _CAPPED_FROM
        target(ref).value = _CAPPED_MHZ if capped else _BUSY_MHZ if busy else _IDLE_MHZ

    @symbol
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: CData, ref: CData) -> None:
        """The older name."""
        self._reasons(handle, ref)

    @symbol
    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: CData, ref: CData) -> None:
        self._reasons(handle, ref)

    def _reasons(self, handle: CData, ref: CData) -> None:
        busy = utilisation(self.calls.hardware, self.calls.gpu(handle))
        reasons = 0 if busy else pynvml.nvmlClocksEventReasonGpuIdle
        if busy >= _CAPPED_FROM:
            reasons |= pynvml.nvmlClocksEventReasonSwPowerCap
        target(ref).value = reasons

    @symbol
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: CData, ref: CData) -> None:
        """Counts from when it is first asked, as a driver counts from when it is loaded."""
        gpu, now = self.calls.gpu(handle), self.calls.hardware.clock()
        at, used = self._energy.get(gpu.uuid, (now, 0.0))
        used += max(0.0, now - at) * power(self.calls.hardware, gpu)
        self._energy[gpu.uuid] = (now, used)
        target(ref).value = int(used)


def _metrics(sample: _Sample) -> dict[int, float]:
    """Returns the metrics of a GPU or slice; link metrics exist for a whole GPU only."""
    load = sample.load
    found: dict[int, float] = {
        pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: load.busy,
        # A kernel that runs keeps a part of the SMs waiting.
        pynvml.NVML_GPM_METRIC_SM_UTIL: load.busy * 4 // 5,
        pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: load.tensor,
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: load.bandwidth,
    }
    if sample.instance is None:
        found |= {
            pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: load.pcie_mb,
            pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: load.pcie_mb // 4,
            pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: load.nvlink_mb,
            pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: load.nvlink_mb,
        }
    return found
