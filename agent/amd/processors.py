"""The processors of amdsmi, by the GPU whose partitions they are.

There is one lock for all, because every change of a partition opens the library anew.
"""

import dataclasses
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from agent.amd.library import Handle, Smi, attempt, number, refused
from agent.ports.gpu import GpuError

WHOLE = "SPX"
"""The compute partition in which a GPU is one processor."""
COMMON = "/dev/kfd"
"""The file that every program with a GPU of AMD needs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Processor:
    """A GPU, or a partition of one. `render` is its device file, `rocm_name` its name in
    ROCR_VISIBLE_DEVICES, empty where it shares it with others."""

    handle: Handle
    render: str
    rocm_name: str


@dataclasses.dataclass(frozen=True, slots=True)
class FoundGpu:
    """A GPU with its processors, and the compute partition that it stands in."""

    index: int
    uuid: str
    pci: str
    partition: str
    parts: tuple[Processor, ...]

    @property
    def first(self) -> Handle:
        """The processor that answers for the whole GPU."""
        return self.parts[0].handle

    def device(self, part: int) -> str:
        """The id of a partition in messages."""
        return f"{self.uuid}-{self.partition.lower()}{part}"


class Processors:
    """All processors of this node, as of the last change of a partition."""

    def __init__(self, smi: Smi) -> None:
        """Opens the library. Raises GpuError."""
        self.smi = smi
        self.lock = threading.RLock()
        self._gpus: dict[str, FoundGpu] = {}
        self._devices: dict[str, Processor] = {}
        self._is_open = False
        self.scan()

    def close(self) -> None:
        """Closes the library."""
        with self.lock:
            if self._is_open:
                self._is_open = False
                attempt(self.smi, self.smi.amdsmi_shut_down)

    def scan(self) -> None:
        """Opens the library anew: it finds processors only then. Raises GpuError."""
        with self.lock:
            self.close()
            try:
                self.smi.amdsmi_init()
                self._is_open = True
                found = self._found()
            except self.smi.AmdSmiException as error:
                raise refused(error, "reading the GPUs of AMD's driver") from error
            self._gpus = {gpu.uuid: gpu for gpu in found}
            self._devices = _devices(found)

    def all(self) -> tuple[FoundGpu, ...]:
        """Returns all GPUs in the order of their addresses."""
        return tuple(self._gpus.values())

    def gpu(self, uuid: str) -> FoundGpu:
        """Returns one GPU. Raises GpuError."""
        found = self._gpus.get(uuid)
        if found is None:
            raise GpuError("lost", "the driver does not have it")
        return found

    def device(self, device: str) -> Processor:
        """Returns a whole GPU or a partition by its id. Raises GpuError. Asks no driver."""
        found = self._devices.get(device)
        if found is None:
            raise GpuError("lost", f"there is no device {device}")
        return found

    def _found(self) -> list[FoundGpu]:
        parts: dict[str, list[tuple[int, Handle]]] = defaultdict(list)
        for order, handle in enumerate(self.smi.amdsmi_get_processor_handles()):
            bdf = str(self.smi.amdsmi_get_gpu_device_bdf(handle)).lower()
            kfd = attempt(self.smi, self.smi.amdsmi_get_gpu_kfd_info, handle) or {}
            place = number(kfd.get("current_partition_id"))
            parts[bdf.rpartition(".")[0]].append((order if place is None else place, handle))
        infos = {
            id(handle): self.smi.amdsmi_get_gpu_enumeration_info(handle)
            for each in parts.values()
            for _, handle in each
        }
        named = Counter(info["hip_uuid"] for info in infos.values())
        return [
            self._gpu(index, slot, [handle for _, handle in sorted(parts[slot], key=_place)], infos, named)
            for index, slot in enumerate(sorted(parts))
        ]

    def _gpu(
        self,
        index: int,
        slot: str,
        handles: list[Handle],
        infos: Mapping[int, Mapping[str, Any]],
        named: Mapping[str, int],
    ) -> FoundGpu:
        processors = [_processor(handle, infos[id(handle)], named) for handle in handles]
        return FoundGpu(
            index=index,
            uuid=str(self.smi.amdsmi_get_gpu_device_uuid(handles[0])),
            pci=f"{slot}.0",
            partition=self._partition(handles[0]),
            parts=tuple(processors),
        )

    def _partition(self, handle: Handle) -> str:
        """GPUs without partitions refuse the question, and are whole."""
        text = str(attempt(self.smi, self.smi.amdsmi_get_gpu_compute_partition, handle) or "").upper()
        return text if text and text != "N/A" else WHOLE


def _place(part: tuple[int, Handle]) -> int:
    return part[0]


def _processor(handle: Handle, info: Mapping[str, Any], named: Mapping[str, int]) -> Processor:
    """Some drivers may give all partitions of a GPU one name."""
    name = str(info["hip_uuid"])
    return Processor(handle, f"/dev/dri/renderD{info['drm_render']}", name if named[name] == 1 else "")


def _devices(gpus: list[FoundGpu]) -> dict[str, Processor]:
    found: dict[str, Processor] = {}
    for gpu in gpus:
        if gpu.partition == WHOLE:
            found[gpu.uuid] = gpu.parts[0]
        else:
            found |= {gpu.device(number): part for number, part in enumerate(gpu.parts)}
    return found


class AmdDeviceNodes:
    """See cdi.DeviceNodes. Asks no driver."""

    def __init__(self, processors: Processors) -> None:
        self._processors = processors

    def common(self) -> tuple[str, ...]:
        """Returns the file of AMD's compute driver."""
        return (COMMON,)

    def of(self, device: str) -> tuple[str, ...]:
        """Returns the file of a GPU or partition."""
        return (self._processors.device(device).render,)
