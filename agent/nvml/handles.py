"""The driver's handles of GPUs and of their slices, by UUID, as long as they hold."""

import ctypes
from collections.abc import Iterator

import pynvml

from agent.nvml.calls import Handle, indexed
from agent.nvml.layout import driver_placements, slot_step
from wire import Placement


class Handles:
    """Keeps the handle of each GPU and its profiles of slices until they are forgotten: what has
    been reset is another device to the driver. Raises what NVML raises."""

    def __init__(self) -> None:
        self._gpus: dict[str, Handle] = {}
        self._profiles: dict[str, tuple[Handle, ...]] = {}
        self._steps: dict[str, int] = {}

    def gpu(self, uuid: str) -> Handle:
        if uuid not in self._gpus:
            self._gpus[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return self._gpus[uuid]

    def found(self, uuid: str, handle: Handle) -> None:
        """Keeps a handle that was found otherwise."""
        self._gpus[uuid] = handle

    def forget(self, uuid: str) -> None:
        """Has the handle asked for again."""
        self._gpus.pop(uuid, None)

    def forget_profiles(self, uuid: str) -> None:
        """Has the profiles asked for again."""
        self._profiles.pop(uuid, None)

    def profiles(self, uuid: str) -> tuple[Handle, ...]:
        """Returns the kinds of slices that the GPU can have."""
        if uuid not in self._profiles:
            handle = self.gpu(uuid)
            ask = pynvml.nvmlDeviceGetGpuInstanceProfileInfo
            every = range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
            found = (indexed(ask, handle, index) for index in every)
            self._profiles[uuid] = tuple(profile for profile in found if profile is not None)
        return self._profiles[uuid]

    def compute(self, uuid: str, profile_id: int) -> int:
        """Returns the compute slices of a profile."""
        every = self.profiles(uuid)
        return next((int(p.sliceCount) for p in every if p.id == profile_id), 0)

    def step(self, uuid: str) -> int:
        """Returns how many of the driver's memory slots are one slot of a message."""
        if uuid not in self._steps:
            placements = list(driver_placements(self.gpu(uuid), self.profiles(uuid)))
            if not placements:
                return 1
            self._steps[uuid] = slot_step(placements)
        return self._steps[uuid]

    def placements(self, uuid: str) -> Iterator[Placement]:
        """Yields the places of slices, in the slots of messages."""
        step = self.step(uuid)
        for profile, start, size in driver_placements(self.gpu(uuid), self.profiles(uuid)):
            yield Placement(
                profile=profile_name(profile),
                profile_id=profile.id,
                start=start // step,
                size=size // step,
                compute=profile.sliceCount,
                max=profile.instanceCount,
            )

    def instances(self, uuid: str, profile: Handle) -> list[Handle]:
        """Returns the slices of a profile."""
        count = ctypes.c_uint(0)
        found = (pynvml.c_nvmlGpuInstance_t * profile.instanceCount)()
        pynvml.nvmlDeviceGetGpuInstances(self.gpu(uuid), profile.id, found, ctypes.byref(count))
        return list(found[: count.value])

    def mig_devices(self, uuid: str) -> dict[int, Handle]:
        """Returns the handles of usable slices by instance id."""
        handle = self.gpu(uuid)
        found: dict[int, Handle] = {}
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
                continue
            found[pynvml.nvmlDeviceGetGpuInstanceId(device)] = device
        return found


def profile_name(profile: Handle) -> str:
    return str(profile.name).removeprefix("MIG ")
