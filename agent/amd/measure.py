"""Utilisation of GPUs and partitions, and memory errors, through amdsmi. An unavailable value is None."""

from collections.abc import Callable, Collection
from typing import Any

from agent.amd.library import Handle, Smi, attempt, number
from agent.amd.processors import FoundGpu, Processors
from agent.ports.gpu import FoundError, FoundInstance, Reading, Truth

_MICRO_IN_MILLI = 1000
_UNCORRECTABLE_BITS = 2
_POWERS = ("current_socket_power", "average_socket_power", "socket_power")


def memory_total_mb(smi: Smi, gpu: FoundGpu) -> int:
    """Returns the memory of the whole GPU, also while it stands in partitions."""
    found = attempt(smi, smi.amdsmi_get_gpu_memory_total, gpu.first, smi.AmdSmiMemoryType.VRAM)
    return (number(found) or 0) >> 20


def memory_used_mb(smi: Smi, gpu: FoundGpu) -> int:
    """Returns what of it is in use, by all programs and the driver. Raises AmdSmiException."""
    return int(smi.amdsmi_get_gpu_memory_usage(gpu.first, smi.AmdSmiMemoryType.VRAM)) >> 20


def whole_reading(smi: Smi, gpu: FoundGpu, truth: Truth) -> Reading:
    """Returns the reading of a GPU. In partitions it has no utilisation of its own."""
    whole = truth.mode == "whole"
    activity = _asked(smi, smi.amdsmi_get_gpu_activity, gpu.first) if whole else {}
    kinds, current = smi.AmdSmiTemperatureType, smi.AmdSmiTemperatureMetric.CURRENT
    clock = _asked(smi, smi.amdsmi_get_clock_info, gpu.first, smi.AmdSmiClkType.GFX)
    return Reading(
        gpu=gpu.uuid,
        place=None,
        utilisation=number(activity.get("gfx_activity")),
        memory_used_mb=memory_used_mb(smi, gpu),
        memory_total_mb=memory_total_mb(smi, gpu) or None,
        power_mw=_power_mw(_asked(smi, smi.amdsmi_get_power_info, gpu.first)),
        temperature_c=number(attempt(smi, smi.amdsmi_get_temp_metric, gpu.first, kinds.HOTSPOT, current)),
        processes=truth.processes if whole else None,
        bandwidth=number(activity.get("umc_activity")),
        sm_mhz=number(clock.get("clk")),
        energy_mj=_energy_mj(_asked(smi, smi.amdsmi_get_energy_count, gpu.first)),
    )


def part_reading(smi: Smi, gpu: FoundGpu, found: FoundInstance) -> Reading:
    """Returns the reading of a partition. More memory than it has is that of the whole GPU, and left out."""
    handle = gpu.parts[found.id].handle
    total = memory_total_mb(smi, gpu) // len(gpu.parts)
    used = number(_asked(smi, smi.amdsmi_get_gpu_vram_usage, handle).get("vram_used"))
    activity = _asked(smi, smi.amdsmi_get_gpu_activity, handle)
    return Reading(
        gpu=gpu.uuid,
        place=found.place,
        utilisation=number(activity.get("gfx_activity")),
        memory_used_mb=used if used is not None and used <= total else None,
        memory_total_mb=total or None,
        power_mw=None,
        temperature_c=None,
        processes=found.processes,
    )


def _asked(smi: Smi, call: Callable[..., Any], handle: Handle, *more: object) -> dict[str, Any]:
    return attempt(smi, call, handle, *more) or {}


def _power_mw(found: dict[str, Any]) -> int | None:
    """Which of the three a GPU has depends on its generation; 0 stands for none."""
    watts = (number(found.get(name)) for name in _POWERS)
    return next((1000 * each for each in watts if each), None)


def _energy_mj(found: dict[str, Any]) -> int | None:
    count, microjoules = found.get("energy_accumulator"), found.get("counter_resolution")
    if not isinstance(count, int) or not isinstance(microjoules, int | float):
        return None
    return int(count * microjoules) // _MICRO_IN_MILLI


class AmdWatch:
    """See gpu.WatchPort. The driver reports no events, so its counts of errors are compared."""

    def __init__(self, processors: Processors, process_user: Callable[[int], str | None]) -> None:
        self._processors = processors
        self._process_user = process_user
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        """Does nothing: the port closes the library."""

    def errors(self) -> tuple[FoundError, ...]:
        """Returns an error for each GPU whose uncorrectable errors have become more."""
        smi = self._processors.smi
        found = []
        with self._processors.lock:
            for gpu in self._processors.all():
                counts = attempt(smi, smi.amdsmi_get_gpu_total_ecc_count, gpu.first) or {}
                count = number(counts.get("uncorrectable_count"))
                if count is None:
                    continue
                if count > self._counts.get(gpu.uuid, count):
                    found.append(FoundError(gpu.uuid, "ecc", _UNCORRECTABLE_BITS, None))
                self._counts[gpu.uuid] = count
        return tuple(found)

    def users(self, pids: Collection[int]) -> tuple[str, ...]:
        """Returns the users of these processes, by name."""
        return tuple(sorted({user for pid in pids if (user := self._process_user(pid))}))

    def hanging(self) -> tuple[str, ...]:
        """Returns nothing: a call that hangs does not return here. See TimeoutWatch."""
        return ()
