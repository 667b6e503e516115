"""How hard GPUs and slices work, through pynvml. What a device does not offer is None.

Where the device has GPM, it tells bandwidth, tensor cores and links, and it alone tells anything
of a slice. Nothing here waits: NVML's older way to ask for PCIe traffic blocks for 20 ms a call.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import pynvml

from allocation.agent.gpu import FoundInstance, Reading

Handle: TypeAlias = Any
"""An opaque pointer of pynvml, which has no types."""

_METRICS = {
    "utilisation": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "tensor": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "bandwidth": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "pcie_tx_kb": pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "pcie_rx_kb": pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    "nvlink_rx_kb": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    "nvlink_tx_kb": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
}
_LINKS = frozenset(name for name in _METRICS if name.endswith("_kb"))


def optional(call: Callable[..., Any], *args: object) -> Handle:
    """The value, or None where this GPU or this driver does not have it."""
    try:
        return call(*args)
    except (
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLLibraryMismatchError,
        pynvml.NVMLError_NoPermission,
    ):
        return None


class Measures:
    """Remembers a sample per GPU and slice: rates are between two looks."""

    def __init__(self) -> None:
        self._samplers: dict[tuple[str, int | None], _Sampler] = {}

    def whole(self, gpu: str, handle: Handle, *, mode: str, processes: int | None) -> Reading:
        """A GPU as a whole. Cut into slices, it tells no utilisation. Raises NVMLError."""
        memory = optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
        rates = None
        found: dict[str, int | None] = {}
        if mode == "whole":
            rates = optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
            found = self._sampled(gpu, None, handle)
            found["utilisation"] = None if rates is None else int(rates.gpu)
        return Reading(
            gpu=gpu,
            place=None,
            memory_used_mb=None if memory is None else memory.used >> 20,
            memory_total_mb=None if memory is None else memory.total >> 20,
            power_mw=optional(pynvml.nvmlDeviceGetPowerUsage, handle),
            temperature_c=_temperature(handle),
            processes=processes,
            sm_mhz=optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            throttle=optional(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
            energy_mj=optional(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            **{"utilisation": None, **found},
        )

    def part(self, gpu: str, handle: Handle, found: FoundInstance, device: Handle) -> Reading:
        """One slice; `device` is its own handle, None while nobody can use it."""
        memory = None if device is None else optional(pynvml.nvmlDeviceGetMemoryInfo, device)
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
        """Before the slice goes."""
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
            support = optional(pynvml.nvmlGpmQueryDeviceSupport, handle)
            if support is None or not support.isSupportedDevice:
                return {}
            self._samplers[key] = _Sampler()
        return self._samplers[key].look(handle, instance)


class _Sampler:
    """What one GPU or slice did between two looks, from a pair of GPM samples."""

    def __init__(self) -> None:
        self._old = pynvml.nvmlGpmSampleAlloc()
        self._new = pynvml.nvmlGpmSampleAlloc()
        self._looks = 0

    def look(self, handle: Handle, instance: int | None) -> dict[str, int | None]:
        """Percent, and KiB a second; nothing at the first look."""
        self._old, self._new = self._new, self._old
        if instance is None:
            taken = optional(pynvml.nvmlGpmSampleGet, handle, self._new)
        else:
            taken = optional(pynvml.nvmlGpmMigSampleGet, handle, instance, self._new)
        self._looks = 0 if taken is None else self._looks + 1
        if self._looks < 2:
            return {}
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_METRICS)
        asked.sample1, asked.sample2 = self._old, self._new
        for place, metric in enumerate(_METRICS.values()):
            asked.metrics[place].metricId = metric
        got = optional(pynvml.nvmlGpmMetricsGet, asked)
        if got is None:
            return {}
        return {name: _value(name, got.metrics[place]) for place, name in enumerate(_METRICS)}

    def close(self) -> None:
        pynvml.nvmlGpmSampleFree(self._old)
        pynvml.nvmlGpmSampleFree(self._new)


def _value(name: str, metric: Handle) -> int | None:
    number = float(metric.value)
    if metric.nvmlReturn != pynvml.NVML_SUCCESS or not 0 <= number < 1e9:
        return None
    # Links are told in MiB.
    return round(number * 1024) if name in _LINKS else min(100, round(number))


def _temperature(handle: Handle) -> int | None:
    value = optional(pynvml.nvmlDeviceGetTemperatureV, handle, pynvml.NVML_TEMPERATURE_GPU)
    return None if value is None else int(value)
