"""Simulated GPUs behind the functions of `amdsmi`: the same names, the same answers, the same refusals.

AMD's Python library can't be loaded without its `libamd_smi.so`, so the module stands in for the whole of it.
The names and keys are those of amdsmi 7.0.2.
"""

import enum
import uuid
from collections import defaultdict
from typing import Any

from agent.host.open_files import Opener, Openers
from devtools.simulated.hardware import Gpu, Hardware, Instance, gpu_load, power, temperature, utilisation
from devtools.simulated.models import HardwareFault, Profile

_INVALID, _UNSUPPORTED, _NO_PERMISSION, _BUSY, _NOT_FOUND, _NOT_INIT = 1, 2, 10, 30, 31, 32
_MISSING = "N/A"
_FIRST_RENDER = 128
_PARTS = 8
_RESOLUTION_UJ = 15.259
_NAMESPACE = uuid.UUID("0e9fd9b1-5c7b-4b83-9be2-1de2d3a2f2c4")


class AmdSmiException(Exception):
    """A refusal of the library."""

    def __init__(self, err_code: int) -> None:
        super().__init__(f"Error code:\n\t{err_code}")
        self.err_code = err_code


class AmdSmiComputePartitionType(enum.IntEnum):
    """Partitions of the compute dies."""

    SPX = 1
    DPX = 2
    TPX = 3
    QPX = 4
    CPX = 5


class AmdSmiLinkType(enum.IntEnum):
    """How two processors are connected."""

    AMDSMI_LINK_TYPE_INTERNAL = 0
    AMDSMI_LINK_TYPE_PCIE = 1
    AMDSMI_LINK_TYPE_XGMI = 2


class AmdSmiMemoryType(enum.IntEnum):
    """Kinds of memory."""

    VRAM = 0


class AmdSmiTemperatureType(enum.IntEnum):
    """Sensors of temperature."""

    HOTSPOT = 1


class AmdSmiTemperatureMetric(enum.IntEnum):
    """What is asked of a sensor."""

    CURRENT = 0


class AmdSmiClkType(enum.IntEnum):
    """Clocks."""

    GFX = 0


class Processor:
    """What a handle of the library stands for: a GPU, or a partition of one, until the library is closed."""

    def __init__(self, gpu: Gpu, part: int, generation: int) -> None:
        self.gpu = gpu
        self.part = part
        self.generation = generation


def parts_of(gpu: Gpu) -> list[Instance]:
    """Returns the partitions of a GPU in their order; none of a whole one."""
    return sorted(gpu.instances.values(), key=lambda each: each.start)


def render_of(gpu: Gpu, part: int) -> str:
    """Returns the name of the device file of a partition, the first for a whole GPU."""
    return f"renderD{_FIRST_RENDER + _PARTS * gpu.index + part}"


class SimulatedAmdFiles:
    """See open_files.OpenFiles. `hidden` are programs whose open files can't be read."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.hidden: set[int] = set()

    def openers(self) -> Openers:
        """Returns what /proc would show of a node whose programs open their own devices only."""
        found: dict[str, set[Opener]] = defaultdict(set)
        for gpu in self._hardware.gpus:
            numbers = [each.id for each in parts_of(gpu)]
            for each in self._hardware.holding(gpu):
                if each.pid not in self.hidden:
                    part = numbers.index(each.instance) if each.instance in numbers else 0
                    found[render_of(gpu, part)].add(Opener(each.pid, each.label, each.service))
        return Openers({file: frozenset(those) for file, those in found.items()}, frozenset(self.hidden))


class SimulatedAmdSmi:
    """See library.Smi. `is_root`: changes are allowed. `one_name`: all partitions of a GPU have one name."""

    AmdSmiException = AmdSmiException
    AmdSmiClkType = AmdSmiClkType
    AmdSmiComputePartitionType = AmdSmiComputePartitionType
    AmdSmiLinkType = AmdSmiLinkType
    AmdSmiMemoryType = AmdSmiMemoryType
    AmdSmiTemperatureMetric = AmdSmiTemperatureMetric
    AmdSmiTemperatureType = AmdSmiTemperatureType

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.is_root = True
        self.one_name = False
        self.memory_partition = "NPS1"
        self.uncorrectable: dict[str, int] = {}
        self._generation = 0
        self._is_open = False
        self._energy: dict[str, tuple[float, float]] = {}

    def amdsmi_init(self) -> None:
        self._generation += 1
        self._is_open = True

    def amdsmi_shut_down(self) -> None:
        self._is_open = False

    def amdsmi_get_processor_handles(self) -> list[Processor]:
        if not self._is_open:
            raise AmdSmiException(_NOT_INIT)
        return [
            Processor(gpu, part, self._generation)
            for gpu in self.hardware.gpus
            if not gpu.lost
            for part in range(max(1, len(gpu.instances)))
        ]

    def amdsmi_get_gpu_device_bdf(self, handle: Processor) -> str:
        return f"{self._gpu(handle).pci[4:].lower()[:-1]}{handle.part}"

    def amdsmi_get_gpu_device_uuid(self, handle: Processor) -> str:
        return self._gpu(handle).uuid

    def amdsmi_get_gpu_asic_info(self, handle: Processor) -> dict[str, Any]:
        model = self._gpu(handle).model
        return {"market_name": model.name, "device_id": f"0x{model.pci}"}

    def amdsmi_get_gpu_enumeration_info(self, handle: Processor) -> dict[str, Any]:
        gpu = self._gpu(handle)
        text = gpu.uuid if self.one_name else f"{gpu.uuid}/{handle.part}"
        return {
            "drm_render": int(render_of(gpu, handle.part).removeprefix("renderD")),
            "hip_id": gpu.index,
            "hip_uuid": f"GPU-{uuid.uuid5(_NAMESPACE, text).hex[:16]}",
        }

    def amdsmi_get_gpu_kfd_info(self, handle: Processor) -> dict[str, Any]:
        self._gpu(handle)
        return {"kfd_id": 1, "node_id": 1, "current_partition_id": handle.part}

    def amdsmi_get_gpu_driver_info(self, handle: Processor) -> dict[str, Any]:
        self._gpu(handle)
        return {"driver_name": "amdgpu", "driver_version": "6.14.14", "driver_date": _MISSING}

    # Partitions.

    def amdsmi_get_gpu_compute_partition(self, handle: Processor) -> str:
        gpu = self._gpu(handle)
        if not gpu.model.profiles:
            raise AmdSmiException(_UNSUPPORTED)
        there = parts_of(gpu)
        return _kind(there[0].profile) if there else "SPX"

    def amdsmi_set_gpu_compute_partition(self, handle: Processor, compute_partition: enum.IntEnum) -> None:
        gpu, kind = self._gpu(handle), compute_partition.name
        if not self.is_root:
            raise AmdSmiException(_NO_PERMISSION)
        profiles = {_kind(each): each for each in gpu.model.profiles}
        if not profiles or (kind != "SPX" and kind not in profiles):
            raise AmdSmiException(_UNSUPPORTED)
        if self.memory_partition != "NPS1" and kind == "SPX":
            raise AmdSmiException(_INVALID)
        try:
            self.hardware.partition_set(gpu, profiles.get(kind))
        except HardwareFault as fault:
            raise AmdSmiException(_BUSY) from fault

    def amdsmi_get_gpu_memory_partition(self, handle: Processor) -> str:
        if not self._gpu(handle).model.profiles:
            raise AmdSmiException(_UNSUPPORTED)
        return self.memory_partition

    def amdsmi_get_gpu_accelerator_partition_profile_config(self, handle: Processor) -> dict[str, Any]:
        profiles = self._gpu(handle).model.profiles
        if not profiles:
            raise AmdSmiException(_UNSUPPORTED)
        found = [{"profile_type": _kind(each), "num_partitions": each.max} for each in profiles]
        return {"profiles": [{"profile_type": "SPX", "num_partitions": 1}, *found]}

    # Programs and measurements.

    def amdsmi_get_gpu_process_list(self, handle: Processor) -> list[dict[str, Any]]:
        """Lists the programs of the whole GPU, whichever partition is asked."""
        found = self.hardware.running(self._gpu(handle))
        return [{"name": each.label, "pid": each.pid, "mem": 1} for each in found if each.kind == "compute"]

    def amdsmi_get_gpu_memory_total(self, handle: Processor, mem_type: enum.IntEnum) -> int:
        return self._gpu(handle).model.memory_mb << 20

    def amdsmi_get_gpu_memory_usage(self, handle: Processor, mem_type: enum.IntEnum) -> int:
        return self.hardware.memory_used(self._gpu(handle)) << 20

    def amdsmi_get_gpu_vram_usage(self, handle: Processor) -> dict[str, Any]:
        gpu = self._gpu(handle)
        there = parts_of(gpu)
        part = there[handle.part] if there else None
        total = gpu.model.memory_mb if part is None else part.profile.memory_mb
        return {"vram_total": total, "vram_used": self.hardware.memory_used(gpu, part)}

    def amdsmi_get_gpu_activity(self, handle: Processor) -> dict[str, Any]:
        gpu = self._gpu(handle)
        there = parts_of(gpu)
        load = gpu_load(self.hardware, gpu, there[handle.part].id if there else None)
        bandwidth: int | str = load.bandwidth if not there else _MISSING
        return {"gfx_activity": load.busy, "umc_activity": bandwidth, "mm_activity": _MISSING}

    def amdsmi_get_power_info(self, handle: Processor) -> dict[str, Any]:
        gpu = self._gpu(handle)
        if handle.part:
            raise AmdSmiException(_UNSUPPORTED)
        watts = power(self.hardware, gpu) // 1000
        return {"socket_power": watts, "current_socket_power": watts, "average_socket_power": _MISSING}

    def amdsmi_get_energy_count(self, handle: Processor) -> dict[str, Any]:
        """Counts from when it is first asked, as a driver counts from when it is loaded."""
        gpu, now = self._gpu(handle), self.hardware.clock()
        at, used = self._energy.get(gpu.uuid, (now, 0.0))
        used += max(0.0, now - at) * power(self.hardware, gpu) * 1000 / _RESOLUTION_UJ
        self._energy[gpu.uuid] = (now, used)
        return {"energy_accumulator": int(used), "counter_resolution": _RESOLUTION_UJ, "timestamp": int(now)}

    def amdsmi_get_temp_metric(
        self, handle: Processor, sensor_type: enum.IntEnum, metric: enum.IntEnum
    ) -> int:
        return temperature(self.hardware, self._gpu(handle))

    def amdsmi_get_clock_info(self, handle: Processor, clock_type: enum.IntEnum) -> dict[str, Any]:
        gpu = self._gpu(handle)
        return {"clk": 132 + 20 * utilisation(self.hardware, gpu), "min_clk": 132, "max_clk": 2100}

    def amdsmi_get_gpu_total_ecc_count(self, handle: Processor) -> dict[str, Any]:
        count = self.uncorrectable.get(self._gpu(handle).uuid, 0)
        return {"correctable_count": 0, "uncorrectable_count": count, "deferred_count": 0}

    def amdsmi_topo_get_link_type(
        self, processor_handle_src: Processor, processor_handle_dst: Processor
    ) -> dict[str, Any]:
        linked = all(self._gpu(each).model.nvlinks for each in (processor_handle_src, processor_handle_dst))
        kind = AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI if linked else AmdSmiLinkType.AMDSMI_LINK_TYPE_PCIE
        return {"hops": 1, "type": int(kind)}

    def _gpu(self, handle: Processor) -> Gpu:
        if not self._is_open:
            raise AmdSmiException(_NOT_INIT)
        if handle.generation != self._generation:
            raise AmdSmiException(_INVALID)
        if handle.gpu.lost:
            raise AmdSmiException(_NOT_FOUND)
        return handle.gpu


def _kind(profile: Profile) -> str:
    return profile.name.partition(".")[0].upper()
