"""Utilisation of GPUs and slices, through pynvml. An unavailable value is None.

Where the device has GPM, it reports bandwidth, SMs, tensor cores and links, and only GPM reports
anything of a slice. Nothing here waits: NVML's older way to ask for PCIe traffic blocks for 20 ms a
call.
"""

import pynvml

from agent.nvml.calls import REFUSALS, Handle, attempt, reading
from agent.nvml.exporter import Exporter
from agent.ports.gpu import FoundInstance, Reading

_METRICS = {
    "utilisation": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "tensor": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "bandwidth": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "pcie_tx_kb": pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "pcie_rx_kb": pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    "nvlink_rx_kb": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    "nvlink_tx_kb": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
}
_LINKS = frozenset(name for name in _METRICS if name.endswith("_kb"))


class Measures:
    """Keeps a sample per GPU and slice: rates are between two readings. What a whole GPU without GPM does
    is read from DCGM's exporter, if there is one."""

    def __init__(self, exporter: Exporter | None = None) -> None:
        self._exporter = exporter
        self._samplers: dict[tuple[str, int | None], _Sampler] = {}

    def whole(self, gpu: str, handle: Handle, *, mode: str, processes: int | None) -> Reading:
        """A GPU as a whole. A sliced GPU reports no utilisation. Raises NVMLError."""
        memory = reading(pynvml.nvmlDeviceGetMemoryInfo, handle)
        rates = None
        found: dict[str, int | None] = {}
        if mode == "whole":
            rates = reading(pynvml.nvmlDeviceGetUtilizationRates, handle)
            found = self._sampled(gpu, None, handle)
            found["utilisation"] = None if rates is None else int(rates.gpu)
        return Reading(
            gpu=gpu,
            place=None,
            memory_used_mb=None if memory is None else memory.used >> 20,
            memory_total_mb=None if memory is None else memory.total >> 20,
            power_mw=reading(pynvml.nvmlDeviceGetPowerUsage, handle),
            temperature_c=_temperature(handle),
            processes=processes,
            sm_mhz=reading(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            throttle=_throttle(handle),
            energy_mj=reading(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            **{"utilisation": None, **found},
        )

    def part(self, gpu: str, handle: Handle, found: FoundInstance, device: Handle) -> Reading:
        """Returns the reading of a slice; `device` is its handle, None while it is unusable."""
        memory = None if device is None else reading(pynvml.nvmlDeviceGetMemoryInfo, device)
        return Reading(
            gpu=gpu,
            place=found.place,
            memory_used_mb=None if memory is None else memory.used >> 20,
            memory_total_mb=None if memory is None else memory.total >> 20,
            power_mw=None,
            temperature_c=None,
            processes=found.processes,
            **{"utilisation": None, **self._sampled(gpu, found.id, handle)},
        )

    def forget(self, gpu: str, instance: int) -> None:
        """Drops the samples of a slice that is about to be removed."""
        sampler = self._samplers.pop((gpu, instance), None)
        if sampler is not None:
            sampler.close()

    def close(self) -> None:
        for sampler in self._samplers.values():
            sampler.close()
        self._samplers.clear()

    def _sampled(self, gpu: str, instance: int | None, handle: Handle) -> dict[str, int | None]:
        key = (gpu, instance)
        if key not in self._samplers:
            support = reading(pynvml.nvmlGpmQueryDeviceSupport, handle)
            if support is None or not support.isSupportedDevice:
                return self._exporter.whole(gpu) if self._exporter and instance is None else {}
            try:
                self._samplers[key] = _Sampler()
            except REFUSALS:
                return {}
        return self._samplers[key].look(handle, instance)


class _Sampler:
    """Measures one GPU or slice between two readings, from a pair of GPM samples."""

    def __init__(self) -> None:
        self._old = pynvml.nvmlGpmSampleAlloc()
        self._new = pynvml.nvmlGpmSampleAlloc()
        self._looks = 0

    def look(self, handle: Handle, instance: int | None) -> dict[str, int | None]:
        """Returns percent and KiB per second; nothing at the first reading."""
        self._old, self._new = self._new, self._old
        # A GPU that is lost in between leaves a buffer that says nothing.
        looks, self._looks = self._looks, 0
        if instance is None:
            taken = reading(pynvml.nvmlGpmSampleGet, handle, self._new)
        else:
            taken = reading(pynvml.nvmlGpmMigSampleGet, handle, instance, self._new)
        self._looks = 0 if taken is None else looks + 1
        if self._looks < 2:
            return {}
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_METRICS)
        asked.sample1, asked.sample2 = self._old, self._new
        for place, metric in enumerate(_METRICS.values()):
            asked.metrics[place].metricId = metric
        got = reading(pynvml.nvmlGpmMetricsGet, asked)
        if got is None:
            return {}
        return {name: _value(name, got.metrics[place]) for place, name in enumerate(_METRICS)}

    def close(self) -> None:
        for sample in (self._old, self._new):
            attempt(pynvml.nvmlGpmSampleFree, sample)


def _value(name: str, metric: Handle) -> int | None:
    number = float(metric.value)
    if metric.nvmlReturn != pynvml.NVML_SUCCESS or not 0 <= number < 1e9:
        return None
    # Links are in MiB.
    return round(number * 1024) if name in _LINKS else min(100, round(number))


def _temperature(handle: Handle) -> int | None:
    """The newer function where the driver has it (570 and later), else the older one."""
    value = reading(pynvml.nvmlDeviceGetTemperatureV, handle, pynvml.NVML_TEMPERATURE_GPU)
    if value is None:
        value = reading(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    return None if value is None else int(value)


def _throttle(handle: Handle) -> int | None:
    """Under its new name (535 and later), else under the old one, which later drivers may drop."""
    value = reading(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if value is None:
        value = reading(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return None if value is None else int(value)
