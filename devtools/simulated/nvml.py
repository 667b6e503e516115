"""Simulated GPUs behind the real pynvml.

pynvml looks up every C symbol by name on its global `nvmlLib` and loads the driver's library only
while that is None. An object with methods of the same names takes its place, so the real wrapper,
structs and exceptions stay in use and the agent runs unchanged.
"""

import contextlib
import functools
from collections.abc import Iterator

import pynvml

from devtools.simulated.calls import CData
from devtools.simulated.calls import symbol as _symbol
from devtools.simulated.calls import target as _target
from devtools.simulated.calls import text_write as _text
from devtools.simulated.drivers import Driver
from devtools.simulated.hardware import Gpu, Hardware, Instance, power, temperature, utilisation
from devtools.simulated.models import Compute, HardwareFault, pci_number
from devtools.simulated.processes import Kind
from devtools.simulated.sensors import SimulatedSensors

_MIB = 1 << 20
_GARBAGE_PID = 0xFFFFFFFF


class _MissingSymbol:
    """A symbol that this branch of the driver does not have."""

    def __get__(self, *_: object) -> None:
        raise AttributeError


@functools.cache
def _of_branch(driver: Driver) -> type["SimulatedNvml"]:
    lacking = {symbol: _MissingSymbol() for symbol in driver.lacks}
    return type("SimulatedNvml", (SimulatedNvml,), lacking)


class SimulatedNvml(SimulatedSensors):
    """The C interface of one simulated node, with the symbols of its driver."""

    def __new__(cls, hardware: Hardware) -> "SimulatedNvml":
        return super().__new__(_of_branch(hardware.driver))

    # The node.

    @_symbol
    def nvmlInitWithFlags(self, flags: CData) -> None: ...

    @_symbol
    def nvmlShutdown(self) -> None: ...

    @_symbol
    def nvmlSystemGetDriverVersion(self, buffer: CData, length: CData) -> None:
        _text(buffer, self.hardware.driver.version, length)

    @_symbol
    def nvmlDeviceGetCount_v2(self, count: CData) -> None:
        _target(count).value = len(self.hardware.gpus)

    @_symbol
    def nvmlDeviceGetHandleByIndex_v2(self, index: CData, ref: CData) -> None:
        if index.value >= len(self.hardware.gpus):
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        self._give(ref, ("gpu", self.hardware.gpus[index.value].uuid, 0))

    @_symbol
    def nvmlDeviceGetHandleByUUID(self, text: CData, ref: CData) -> None:
        self._give(ref, ("gpu", self.hardware.gpu(text.value.decode()).uuid, 0))

    # A GPU.

    @_symbol
    def nvmlDeviceGetUUID(self, handle: CData, buffer: CData, length: CData) -> None:
        gpu, instance = self._device(handle)
        _text(buffer, gpu.uuid if instance is None else gpu.mig_uuid(instance), length)

    @_symbol
    def nvmlDeviceGetName(self, handle: CData, buffer: CData, length: CData) -> None:
        _text(buffer, self._gpu(handle).model.name, length)

    @_symbol
    def nvmlDeviceGetMemoryInfo(self, handle: CData, ref: CData) -> None:
        gpu, instance = self._device(handle)
        total = gpu.model.memory_mb if instance is None else instance.profile.memory_mb
        used = self.hardware.memory_used(gpu, instance)
        memory = _target(ref)
        memory.total, memory.used, memory.free = total << 20, used << 20, (total - used) << 20

    @_symbol
    def nvmlDeviceGetMemoryInfo_v2(self, handle: CData, ref: CData) -> None:
        """Reports the driver's own part separately."""
        gpu, instance = self._device(handle)
        total = gpu.model.memory_mb if instance is None else instance.profile.memory_mb
        reserved = gpu.model.reserved_mb if instance is None else 13
        used = self.hardware.memory_used(gpu, instance) - reserved
        memory = _target(ref)
        memory.total, memory.reserved, memory.used = total * _MIB, reserved * _MIB, used * _MIB
        memory.free = (total - used - reserved) * _MIB

    @_symbol
    def nvmlDeviceGetFieldValues(self, handle: CData, count: CData, array: CData) -> None:
        """Each field has a code of its own."""
        gpu = self._gpu(handle)
        known = {
            pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: gpu.model.nvlinks or None,
            pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: gpu.recovery,
        }
        for field in _target(array)[: count.value]:
            value = known.get(field.fieldId)
            if field.fieldId >= self.hardware.driver.fields:
                field.nvmlReturn = pynvml.NVML_ERROR_INVALID_ARGUMENT
            elif value is None:
                field.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
            else:
                field.nvmlReturn, field.value.uiVal = pynvml.NVML_SUCCESS, value

    @_symbol
    def nvmlDeviceGetMinorNumber(self, handle: CData, ref: CData) -> None:
        gpu = self._gpu(handle)
        _target(ref).value = gpu.index if gpu.minor is None else gpu.minor

    @_symbol
    def nvmlDeviceGetPciInfo_v3(self, handle: CData, ref: CData) -> None:
        gpu, info = self._gpu(handle), _target(ref)
        info.busId = gpu.pci
        info.pciDeviceId = pci_number(gpu.model.pci)
        info.pciSubSystemId = pci_number(gpu.model.subsystem)

    @_symbol
    def nvmlDeviceGetAddressingMode(self, handle: CData, ref: CData) -> None:
        self._gpu(handle)
        _target(ref).value = pynvml.NVML_DEVICE_ADDRESSING_MODE_NONE

    @_symbol
    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: CData, count: CData, array: CData) -> None:
        self._listed("compute", handle, count, array)

    @_symbol
    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: CData, count: CData, array: CData) -> None:
        self._listed("graphics", handle, count, array)

    @_symbol
    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: CData, count: CData, array: CData) -> None:
        self._listed("mps", handle, count, array)

    def _listed(self, kind: Kind, handle: CData, count: CData, array: CData) -> None:
        gpu, instance = self._device(handle)
        there = self.hardware.running(gpu, None if instance is None else instance.id)
        found = [each for each in there if each.kind == kind]
        room = _target(count).value
        _target(count).value = len(found)
        if len(found) > room:
            raise HardwareFault("NVML_ERROR_INSUFFICIENT_SIZE")
        for i, process in enumerate(found):
            scrambled = self.hardware.driver.scrambled and i % 4
            array[i].pid = (process.pid, 0, _GARBAGE_PID, _GARBAGE_PID)[scrambled and i % 4]
            array[i].gpuInstanceId = 0xFFFFFFFF if process.instance is None else process.instance

    @_symbol
    def nvmlDeviceGetUtilizationRates(self, handle: CData, ref: CData) -> None:
        gpu, instance = self._device(handle)
        if instance is not None or gpu.mig:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        _target(ref).gpu = utilisation(self.hardware, gpu)
        _target(ref).memory = utilisation(self.hardware, gpu) // 2

    @_symbol
    def nvmlDeviceGetPowerUsage(self, handle: CData, ref: CData) -> None:
        _target(ref).value = power(self.hardware, self._gpu(handle))

    @_symbol
    def nvmlDeviceGetTemperature(self, handle: CData, sensor: CData, ref: CData) -> None:
        _target(ref).value = temperature(self.hardware, self._gpu(handle))

    @_symbol
    def nvmlDeviceGetTemperatureV(self, handle: CData, ref: CData) -> None:
        _target(ref).temperature = temperature(self.hardware, self._gpu(handle))

    # Links.

    def _peers(self, gpu: Gpu) -> list[Gpu]:
        return [g for g in self.hardware.gpus if g.model is gpu.model and g is not gpu]

    @_symbol
    def nvmlDeviceGetNvLinkState(self, handle: CData, link: CData, ref: CData) -> None:
        gpu = self._linked(handle, link)
        there = gpu.model.nvlink_peer == "switch" or bool(self._peers(gpu))
        # In slices a GPU has no part in the fabric.
        _target(ref).value = int(there and not gpu.mig)

    def _linked(self, handle: CData, link: CData) -> Gpu:
        gpu = self._gpu(handle)
        if link >= self.hardware.driver.links:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        if link >= gpu.model.nvlinks:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        return gpu

    @_symbol
    def nvmlDeviceGetGpuFabricInfoV(self, handle: CData, ref: CData) -> None:
        self._fabric(handle, ref)

    @_symbol
    def nvmlDeviceGetGpuFabricInfo(self, handle: CData, ref: CData) -> None:
        self._fabric(handle, ref)

    def _fabric(self, handle: CData, ref: CData) -> None:
        gpu = self._gpu(handle)
        if gpu.model.nvlink_peer != "switch":
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        _target(ref).state, _target(ref).status = gpu.fabric, pynvml.NVML_SUCCESS

    @_symbol
    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: CData, link: CData, ref: CData) -> None:
        switch = self._linked(handle, link).model.nvlink_peer == "switch"
        _target(ref).value = (
            pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        )

    @_symbol
    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle: CData, link: CData, ref: CData) -> None:
        peers = self._peers(self._linked(handle, link))
        _target(ref).busId = peers[link % len(peers)].pci

    @_symbol
    def nvmlDeviceGetTopologyCommonAncestor(self, one: CData, other: CData, ref: CData) -> None:
        # Two to a PCIe switch, half of the node to a NUMA node.
        first, second = sorted(self._gpu(handle).index for handle in (one, other))
        numa = {2 * index // len(self.hardware.gpus) for index in (first, second)}
        if first // 2 == second // 2:
            level = pynvml.NVML_TOPOLOGY_SINGLE
        else:
            level = pynvml.NVML_TOPOLOGY_NODE if len(numa) == 1 else pynvml.NVML_TOPOLOGY_SYSTEM
        _target(ref).value = level

    # MIG.

    @_symbol
    def nvmlDeviceGetMigMode(self, handle: CData, current: CData, pending: CData) -> None:
        gpu = self._gpu(handle)
        if not gpu.model.profiles:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        _target(current).value, _target(pending).value = int(gpu.mig), int(gpu.pending_mig)

    @_symbol
    def nvmlDeviceSetMigMode(self, handle: CData, mode: CData, activation: CData) -> None:
        outcome = self.hardware.mode_set(self._gpu(handle), mig=bool(mode))
        _target(activation).value = getattr(pynvml, outcome)

    @_symbol
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: CData, ref: CData) -> None:
        _target(ref).value = self._gpu(handle).model.compute

    @_symbol
    def nvmlDeviceGetGpuInstanceProfileInfoV(self, handle: CData, index: CData, ref: CData) -> None:
        gpu = self._gpu(handle)
        if index >= self.hardware.driver.gpu_profiles:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        for profile in gpu.model.profiles:
            if profile.index == index:
                info = _target(ref)
                info.id, info.sliceCount = profile.id, profile.compute
                info.instanceCount, info.memorySizeMB = profile.max, profile.memory_mb
                info.name = f"MIG {profile.name}"
                return
        raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")

    @_symbol
    def nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        self, handle: CData, profile_id: CData, array: CData, count: CData
    ) -> None:
        profile = self._gpu(handle).model.profile(profile_id)
        if array is not None:
            for i, start in enumerate(profile.starts):
                _target(array)[i].start, _target(array)[i].size = start, profile.size
        _target(count).value = len(profile.starts)

    @_symbol
    def nvmlDeviceCreateGpuInstanceWithPlacement(
        self, handle: CData, profile_id: CData, placement: CData, ref: CData
    ) -> None:
        gpu, place = self._gpu(handle), _target(placement)
        made = self.hardware.instance_create(gpu, profile_id, place.start, place.size)
        self._give(ref, ("gi", gpu.uuid, made.id))

    @_symbol
    def nvmlDeviceGetGpuInstances(self, handle: CData, profile_id: CData, array: CData, count: CData) -> None:
        gpu = self._gpu(handle)
        if not gpu.mig:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        found = [i.id for i in gpu.instances.values() if i.profile.id == profile_id]
        self._give_all(array, count, [("gi", gpu.uuid, number) for number in found])

    @_symbol
    def nvmlDeviceGetGpuInstanceById(self, handle: CData, number: CData, ref: CData) -> None:
        gpu = self._gpu(handle)
        if number not in gpu.instances:
            raise HardwareFault("NVML_ERROR_NOT_FOUND")
        self._give(ref, ("gi", gpu.uuid, number))

    @_symbol
    def nvmlGpuInstanceGetInfo(self, handle: CData, ref: CData) -> None:
        _, instance = self._instance(handle, "gi")
        info = _target(ref)
        info.id, info.profileId = instance.id, instance.profile.id
        info.placement.start, info.placement.size = instance.start, instance.profile.size

    @_symbol
    def nvmlGpuInstanceDestroy(self, handle: CData) -> None:
        self.hardware.instance_destroy(*self._instance(handle, "gi"))

    @_symbol
    def nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        self, handle: CData, index: CData, engine: CData, ref: CData
    ) -> None:
        _, instance = self._instance(handle, "gi")
        if index >= self.hardware.driver.compute_profiles:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        found = self._computes(instance).get(index)
        if found is None:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        info = _target(ref)
        info.id, info.sliceCount = index, found.slices
        info.multiprocessorCount = found.multiprocessors
        info.instanceCount = instance.profile.compute // found.slices

    def _computes(self, instance: Instance) -> dict[int, Compute]:
        """Those that this branch knows, by index."""
        most = self.hardware.driver.compute_profiles
        return {each.index: each for each in instance.profile.computes if each.index < most}

    @_symbol
    def nvmlGpuInstanceCreateComputeInstance(self, handle: CData, profile_id: CData, ref: CData) -> None:
        gpu, instance = self._instance(handle, "gi")
        if profile_id not in self._computes(instance):
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        self.hardware.compute_create(gpu, instance, profile_id)
        self._give(ref, ("ci", gpu.uuid, instance.id))

    @_symbol
    def nvmlGpuInstanceGetComputeInstances(
        self, handle: CData, profile_id: CData, array: CData, count: CData
    ) -> None:
        gpu, instance = self._instance(handle, "gi")
        there = [("ci", gpu.uuid, instance.id)] if instance.compute == profile_id else []
        self._give_all(array, count, there)

    @_symbol
    def nvmlComputeInstanceDestroy(self, handle: CData) -> None:
        self.hardware.compute_destroy(*self._instance(handle, "ci"))

    @_symbol
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: CData, index: CData, ref: CData) -> None:
        gpu = self._gpu(handle)
        usable = [i.id for i in gpu.instances.values() if i.usable]
        if index.value >= len(usable):
            raise HardwareFault("NVML_ERROR_NOT_FOUND")
        self._give(ref, ("mig", gpu.uuid, usable[index.value]))

    @_symbol
    def nvmlDeviceGetGpuInstanceId(self, handle: CData, ref: CData) -> None:
        _target(ref).value = self._instance(handle, "mig")[1].id


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
