"""Simulated MIG: the mode of a GPU, its instances, and their compute instances."""

import pynvml

from devtools.simulated.calls import CData, Symbols, symbol, target
from devtools.simulated.hardware import Instance
from devtools.simulated.models import Compute, HardwareFault


class MigSymbols(Symbols):
    """The symbols for MIG."""

    @symbol
    def nvmlDeviceGetMigMode(self, handle: CData, current: CData, pending: CData) -> None:
        gpu = self.calls.gpu(handle)
        if not gpu.model.profiles:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        target(current).value, target(pending).value = int(gpu.mig), int(gpu.pending_mig)

    @symbol
    def nvmlDeviceSetMigMode(self, handle: CData, mode: CData, activation: CData) -> None:
        outcome = self.calls.hardware.mode_set(self.calls.gpu(handle), mig=bool(mode))
        target(activation).value = getattr(pynvml, outcome)

    @symbol
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: CData, ref: CData) -> None:
        target(ref).value = self.calls.gpu(handle).model.compute

    @symbol
    def nvmlDeviceGetGpuInstanceProfileInfoV(self, handle: CData, index: CData, ref: CData) -> None:
        gpu = self.calls.gpu(handle)
        if index >= self.calls.hardware.driver.gpu_profiles:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        for profile in gpu.model.profiles:
            if profile.index == index:
                info = target(ref)
                info.id, info.sliceCount = profile.id, profile.compute
                info.instanceCount, info.memorySizeMB = profile.max, profile.memory_mb
                info.name = f"MIG {profile.name}"
                return
        raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")

    @symbol
    def nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        self, handle: CData, profile_id: CData, array: CData, count: CData
    ) -> None:
        profile = self.calls.gpu(handle).model.profile(profile_id)
        if array is not None:
            for i, start in enumerate(profile.starts):
                target(array)[i].start, target(array)[i].size = start, profile.size
        target(count).value = len(profile.starts)

    @symbol
    def nvmlDeviceCreateGpuInstanceWithPlacement(
        self, handle: CData, profile_id: CData, placement: CData, ref: CData
    ) -> None:
        gpu, place = self.calls.gpu(handle), target(placement)
        made = self.calls.hardware.instance_create(gpu, profile_id, place.start, place.size)
        self.calls.give(ref, ("gi", gpu.uuid, made.id))

    @symbol
    def nvmlDeviceGetGpuInstances(self, handle: CData, profile_id: CData, array: CData, count: CData) -> None:
        gpu = self.calls.gpu(handle)
        if not gpu.mig:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        found = [i.id for i in gpu.instances.values() if i.profile.id == profile_id]
        self.calls.give_all(array, count, [("gi", gpu.uuid, number) for number in found])

    @symbol
    def nvmlDeviceGetGpuInstanceById(self, handle: CData, number: CData, ref: CData) -> None:
        gpu = self.calls.gpu(handle)
        if number not in gpu.instances:
            raise HardwareFault("NVML_ERROR_NOT_FOUND")
        self.calls.give(ref, ("gi", gpu.uuid, number))

    @symbol
    def nvmlGpuInstanceGetInfo(self, handle: CData, ref: CData) -> None:
        _, instance = self.calls.instance(handle, "gi")
        info = target(ref)
        info.id, info.profileId = instance.id, instance.profile.id
        info.placement.start, info.placement.size = instance.start, instance.profile.size

    @symbol
    def nvmlGpuInstanceDestroy(self, handle: CData) -> None:
        self.calls.hardware.instance_destroy(*self.calls.instance(handle, "gi"))

    @symbol
    def nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        self, handle: CData, index: CData, engine: CData, ref: CData
    ) -> None:
        _, instance = self.calls.instance(handle, "gi")
        if index >= self.calls.hardware.driver.compute_profiles:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        found = self._computes(instance).get(index)
        if found is None:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        info = target(ref)
        info.id, info.sliceCount = index, found.slices
        info.multiprocessorCount = found.multiprocessors
        info.instanceCount = instance.profile.compute // found.slices

    def _computes(self, instance: Instance) -> dict[int, Compute]:
        """Those that this branch knows, by index."""
        most = self.calls.hardware.driver.compute_profiles
        return {each.index: each for each in instance.profile.computes if each.index < most}

    @symbol
    def nvmlGpuInstanceCreateComputeInstance(self, handle: CData, profile_id: CData, ref: CData) -> None:
        gpu, instance = self.calls.instance(handle, "gi")
        if profile_id not in self._computes(instance):
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        self.calls.hardware.compute_create(gpu, instance, profile_id)
        self.calls.give(ref, ("ci", gpu.uuid, instance.id))

    @symbol
    def nvmlGpuInstanceGetComputeInstances(
        self, handle: CData, profile_id: CData, array: CData, count: CData
    ) -> None:
        gpu, instance = self.calls.instance(handle, "gi")
        there = [("ci", gpu.uuid, instance.id)] if instance.compute == profile_id else []
        self.calls.give_all(array, count, there)

    @symbol
    def nvmlComputeInstanceDestroy(self, handle: CData) -> None:
        self.calls.hardware.compute_destroy(*self.calls.instance(handle, "ci"))

    @symbol
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: CData, index: CData, ref: CData) -> None:
        gpu = self.calls.gpu(handle)
        usable = [i.id for i in gpu.instances.values() if i.usable]
        if index.value >= len(usable):
            raise HardwareFault("NVML_ERROR_NOT_FOUND")
        self.calls.give(ref, ("mig", gpu.uuid, usable[index.value]))

    @symbol
    def nvmlDeviceGetGpuInstanceId(self, handle: CData, ref: CData) -> None:
        target(ref).value = self.calls.instance(handle, "mig")[1].id
