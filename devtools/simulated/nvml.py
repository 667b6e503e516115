"""Simulated GPUs behind the real pynvml.

pynvml looks up every C symbol by name on its global `nvmlLib` and loads the driver's library only
while that is None. An object that gives the same names takes its place, so the real wrapper, structs
and exceptions stay in use and the agent runs unchanged. The symbols of each subject are a class.
"""

import contextlib
from collections.abc import Callable, Iterator

import pynvml

from devtools.simulated.calls import Calls, CData, Symbols, symbol, target, text_write
from devtools.simulated.hardware import Gpu, Hardware, power, temperature, utilisation
from devtools.simulated.mig import MigSymbols
from devtools.simulated.models import HardwareFault, pci_number
from devtools.simulated.processes import Kind
from devtools.simulated.sensors import EventSymbols, SensorSymbols

_MIB = 1 << 20
_GARBAGE_PID = 0xFFFFFFFF


class GpuSymbols(Symbols):
    """The symbols for a node and its GPUs."""

    @symbol
    def nvmlInitWithFlags(self, flags: CData) -> None: ...

    @symbol
    def nvmlShutdown(self) -> None: ...

    @symbol
    def nvmlSystemGetDriverVersion(self, buffer: CData, length: CData) -> None:
        text_write(buffer, self.calls.hardware.driver.version, length)

    @symbol
    def nvmlDeviceGetCount_v2(self, count: CData) -> None:
        target(count).value = len(self.calls.hardware.gpus)

    @symbol
    def nvmlDeviceGetHandleByIndex_v2(self, index: CData, ref: CData) -> None:
        if index.value >= len(self.calls.hardware.gpus):
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        self.calls.give(ref, ("gpu", self.calls.hardware.gpus[index.value].uuid, 0))

    @symbol
    def nvmlDeviceGetHandleByUUID(self, text: CData, ref: CData) -> None:
        self.calls.give(ref, ("gpu", self.calls.hardware.gpu(text.value.decode()).uuid, 0))

    @symbol
    def nvmlDeviceGetUUID(self, handle: CData, buffer: CData, length: CData) -> None:
        gpu, instance = self.calls.device(handle)
        text_write(buffer, gpu.uuid if instance is None else gpu.mig_uuid(instance), length)

    @symbol
    def nvmlDeviceGetName(self, handle: CData, buffer: CData, length: CData) -> None:
        text_write(buffer, self.calls.gpu(handle).model.name, length)

    @symbol
    def nvmlDeviceGetMemoryInfo(self, handle: CData, ref: CData) -> None:
        gpu, instance = self.calls.device(handle)
        total = gpu.model.memory_mb if instance is None else instance.profile.memory_mb
        used = self.calls.hardware.memory_used(gpu, instance)
        memory = target(ref)
        memory.total, memory.used, memory.free = total << 20, used << 20, (total - used) << 20

    @symbol
    def nvmlDeviceGetMemoryInfo_v2(self, handle: CData, ref: CData) -> None:
        """Reports the driver's own part separately."""
        gpu, instance = self.calls.device(handle)
        total = gpu.model.memory_mb if instance is None else instance.profile.memory_mb
        reserved = gpu.model.reserved_mb if instance is None else 13
        used = self.calls.hardware.memory_used(gpu, instance) - reserved
        memory = target(ref)
        memory.total, memory.reserved, memory.used = total * _MIB, reserved * _MIB, used * _MIB
        memory.free = (total - used - reserved) * _MIB

    @symbol
    def nvmlDeviceGetFieldValues(self, handle: CData, count: CData, array: CData) -> None:
        """Each field has a code of its own."""
        gpu = self.calls.gpu(handle)
        known = {
            pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: gpu.model.nvlinks or None,
            pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: gpu.recovery,
        }
        for field in target(array)[: count.value]:
            value = known.get(field.fieldId)
            if field.fieldId >= self.calls.hardware.driver.fields:
                field.nvmlReturn = pynvml.NVML_ERROR_INVALID_ARGUMENT
            elif value is None:
                field.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
            else:
                field.nvmlReturn, field.value.uiVal = pynvml.NVML_SUCCESS, value

    @symbol
    def nvmlDeviceGetMinorNumber(self, handle: CData, ref: CData) -> None:
        gpu = self.calls.gpu(handle)
        target(ref).value = gpu.index if gpu.minor is None else gpu.minor

    @symbol
    def nvmlDeviceGetPciInfo_v3(self, handle: CData, ref: CData) -> None:
        gpu, info = self.calls.gpu(handle), target(ref)
        info.busId = gpu.pci
        info.pciDeviceId = pci_number(gpu.model.pci)
        info.pciSubSystemId = pci_number(gpu.model.subsystem)

    @symbol
    def nvmlDeviceGetAddressingMode(self, handle: CData, ref: CData) -> None:
        self.calls.gpu(handle)
        target(ref).value = pynvml.NVML_DEVICE_ADDRESSING_MODE_NONE

    @symbol
    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: CData, count: CData, array: CData) -> None:
        self._listed("compute", handle, count, array)

    @symbol
    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: CData, count: CData, array: CData) -> None:
        self._listed("graphics", handle, count, array)

    @symbol
    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: CData, count: CData, array: CData) -> None:
        self._listed("mps", handle, count, array)

    def _listed(self, kind: Kind, handle: CData, count: CData, array: CData) -> None:
        gpu, instance = self.calls.device(handle)
        there = self.calls.hardware.running(gpu, None if instance is None else instance.id)
        found = [each for each in there if each.kind == kind]
        room = target(count).value
        target(count).value = len(found)
        if len(found) > room:
            raise HardwareFault("NVML_ERROR_INSUFFICIENT_SIZE")
        for i, process in enumerate(found):
            scrambled = self.calls.hardware.driver.scrambled and i % 4
            array[i].pid = (process.pid, 0, _GARBAGE_PID, _GARBAGE_PID)[scrambled and i % 4]
            array[i].gpuInstanceId = 0xFFFFFFFF if process.instance is None else process.instance

    @symbol
    def nvmlDeviceGetUtilizationRates(self, handle: CData, ref: CData) -> None:
        gpu, instance = self.calls.device(handle)
        if instance is not None or gpu.mig:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        target(ref).gpu = utilisation(self.calls.hardware, gpu)
        target(ref).memory = utilisation(self.calls.hardware, gpu) // 2

    @symbol
    def nvmlDeviceGetPowerUsage(self, handle: CData, ref: CData) -> None:
        target(ref).value = power(self.calls.hardware, self.calls.gpu(handle))

    @symbol
    def nvmlDeviceGetTemperature(self, handle: CData, sensor: CData, ref: CData) -> None:
        target(ref).value = temperature(self.calls.hardware, self.calls.gpu(handle))

    @symbol
    def nvmlDeviceGetTemperatureV(self, handle: CData, ref: CData) -> None:
        target(ref).temperature = temperature(self.calls.hardware, self.calls.gpu(handle))


class LinkSymbols(Symbols):
    """The symbols for NVLink and the places of GPUs on the PCIe bus."""

    def _peers(self, gpu: Gpu) -> list[Gpu]:
        return [g for g in self.calls.hardware.gpus if g.model is gpu.model and g is not gpu]

    @symbol
    def nvmlDeviceGetNvLinkState(self, handle: CData, link: CData, ref: CData) -> None:
        gpu = self._linked(handle, link)
        there = gpu.model.nvlink_peer == "switch" or bool(self._peers(gpu))
        # In slices a GPU has no part in the fabric.
        target(ref).value = int(there and not gpu.mig)

    def _linked(self, handle: CData, link: CData) -> Gpu:
        gpu = self.calls.gpu(handle)
        if link >= self.calls.hardware.driver.links:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        if link >= gpu.model.nvlinks:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        return gpu

    @symbol
    def nvmlDeviceGetGpuFabricInfoV(self, handle: CData, ref: CData) -> None:
        self._fabric(handle, ref)

    @symbol
    def nvmlDeviceGetGpuFabricInfo(self, handle: CData, ref: CData) -> None:
        self._fabric(handle, ref)

    def _fabric(self, handle: CData, ref: CData) -> None:
        gpu = self.calls.gpu(handle)
        if gpu.model.nvlink_peer != "switch":
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        target(ref).state, target(ref).status = gpu.fabric, pynvml.NVML_SUCCESS

    @symbol
    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: CData, link: CData, ref: CData) -> None:
        switch = self._linked(handle, link).model.nvlink_peer == "switch"
        target(ref).value = (
            pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        )

    @symbol
    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle: CData, link: CData, ref: CData) -> None:
        peers = self._peers(self._linked(handle, link))
        target(ref).busId = peers[link % len(peers)].pci

    @symbol
    def nvmlDeviceGetTopologyCommonAncestor(self, one: CData, other: CData, ref: CData) -> None:
        # Two to a PCIe switch, half of the node to a NUMA node.
        first, second = sorted(self.calls.gpu(handle).index for handle in (one, other))
        numa = {2 * index // len(self.calls.hardware.gpus) for index in (first, second)}
        if first // 2 == second // 2:
            level = pynvml.NVML_TOPOLOGY_SINGLE
        else:
            level = pynvml.NVML_TOPOLOGY_NODE if len(numa) == 1 else pynvml.NVML_TOPOLOGY_SYSTEM
        target(ref).value = level


class SimulatedNvml(Calls):
    """The C interface of one simulated node, with the symbols of its driver."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        kinds = (GpuSymbols, LinkSymbols, MigSymbols, EventSymbols, SensorSymbols)
        self.symbols: list[Symbols] = [kind(self) for kind in kinds]

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Returns a symbol. AttributeError: this branch of the driver does not have it."""
        if name.startswith("nvml") and name not in self.hardware.driver.lacks:
            for symbols in self.symbols:
                if hasattr(symbols, name):
                    found: Callable[..., int] = getattr(symbols, name)
                    return found
        raise AttributeError(name)


@contextlib.contextmanager
def installed(hardware: Hardware) -> Iterator[SimulatedNvml]:
    """Puts simulated hardware behind pynvml for the time of a `with` block."""
    simulated = SimulatedNvml(hardware)
    before = pynvml.nvmlLib
    pynvml.nvmlLib = simulated
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield simulated
    finally:
        pynvml.nvmlLib = before
        pynvml._nvmlGetFunctionPointer_cache.clear()
