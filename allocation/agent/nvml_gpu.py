"""The GPU port over NVML, through pynvml. Knows nothing of whether the GPUs are simulated."""

import contextlib
import ctypes
from collections.abc import Callable, Collection, Iterator

import pynvml

from allocation.agent.gpu import Fault, FoundInstance, GpuError, Place, Reading, Truth
from allocation.agent.nvml_measure import Handle, Measures
from allocation.agent.nvml_measure import optional as _optional
from allocation.agent.nvml_reset import gpu_reset
from allocation.agent.nvml_topology import Topology
from allocation.wire import InventoryGpu, Mode, Peer, Placement

_FAULTS: dict[int, Fault] = {
    pynvml.NVML_ERROR_IN_USE: "in_use",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "no_room",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "invalid",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "unsupported",
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_NOT_FOUND: "lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset_required",
}
_WORDS: dict[Fault, str] = {
    "in_use": "a process still uses it",
    "no_room": "another slice is in the way",
    "invalid": "the driver knows no such place",
    "unsupported": "this GPU can't do it",
    "lost": "the GPU is not there",
    "reset_required": "the GPU must be reset first",
}
_MIG = {"sliced": pynvml.NVML_DEVICE_MIG_ENABLE, "whole": pynvml.NVML_DEVICE_MIG_DISABLE}


def _refused(error: Handle, doing: str) -> GpuError:
    fault = _FAULTS.get(error.value, "driver")
    return GpuError(fault, f"{doing}: {_WORDS.get(fault, str(error))}")


class NvmlGpu:
    """See gpu.GpuPort. `signal_process(pid, force=)` ends a process of this node, `reset(uuid)`
    resets a GPU."""

    def __init__(
        self, signal_process: Callable[..., None], reset: Callable[[str], None] = gpu_reset
    ) -> None:
        self._signal_process = signal_process
        self._reset = reset
        self._handles: dict[str, Handle] = {}
        self._profiles: dict[str, tuple[Handle, ...]] = {}
        self._measures = Measures()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise _refused(error, "no NVIDIA driver answers") from error

    def close(self) -> None:
        self._measures.close()
        pynvml.nvmlShutdown()

    def driver(self) -> str:
        return str(pynvml.nvmlSystemGetDriverVersion())

    # Inventory.

    def inventory(self) -> tuple[InventoryGpu, ...]:
        try:
            handles = dict(_answering())
            topology = Topology(handles)
            domains = topology.domains()
            return tuple(
                self._inventory_gpu(i, handle, domains[i], topology.peers(i))
                for i, handle in handles.items()
            )
        except pynvml.NVMLError as error:
            raise _refused(error, "reading the inventory") from error

    def _inventory_gpu(
        self, index: int, handle: Handle, domain: int | None, peers: tuple[Peer, ...]
    ) -> InventoryGpu:
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        self._handles[uuid] = handle
        mig = _optional(pynvml.nvmlDeviceGetMigMode, handle)
        return InventoryGpu(
            index=index,
            uuid=uuid,
            name=pynvml.nvmlDeviceGetName(handle),
            memory_mb=pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
            mig_capable=mig is not None,
            mode="sliced" if mig is not None and mig[0] else "whole",
            numa=_optional(pynvml.nvmlDeviceGetNumaNodeId, handle),
            pci=pynvml.nvmlDeviceGetPciInfo(handle).busId,
            nvlink_domain=domain,
            placements=tuple(self._placements(uuid)) if mig is not None else (),
            peers=peers,
        )

    def _placements(self, uuid: str) -> Iterator[Placement]:
        for profile in self._profiles_of(uuid):
            count = ctypes.c_uint(0)
            ask = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
            ref = ctypes.byref(count)
            if _optional(ask, self._handle(uuid), profile.id, None, ref) is None:
                continue
            places = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
            ask(self._handle(uuid), profile.id, places, ref)
            for place in places[: count.value]:
                yield Placement(
                    profile=_profile_name(profile),
                    profile_id=profile.id,
                    start=place.start,
                    size=place.size,
                    compute=profile.sliceCount,
                    max=profile.instanceCount,
                )

    def _profiles_of(self, uuid: str) -> tuple[Handle, ...]:
        if uuid not in self._profiles:
            handle = self._handle(uuid)
            ask = pynvml.nvmlDeviceGetGpuInstanceProfileInfo
            every = range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
            found = (_optional(ask, handle, index) for index in every)
            self._profiles[uuid] = tuple(profile for profile in found if profile is not None)
        return self._profiles[uuid]

    # What is there.

    def truth(self, gpu: str) -> Truth:
        try:
            handle = self._handle(gpu)
            mig = _optional(pynvml.nvmlDeviceGetMigMode, handle)
            pending = None if mig is None or mig[0] == mig[1] else _mode(mig[1])
            if mig is None or not mig[0]:
                processes = _processes(handle)
                return Truth(uuid=gpu, mode="whole", processes=processes, pending=pending)
            instances = tuple(self._found(gpu))
            return Truth(uuid=gpu, mode="sliced", instances=instances, pending=pending)
        except pynvml.NVMLError as error:
            self._handles.pop(gpu, None)
            raise _refused(error, "reading the GPU") from error

    def _found(self, gpu: str) -> Iterator[FoundInstance]:
        devices = self._mig_devices(gpu)
        for profile in self._profiles_of(gpu):
            for instance in self._instances(gpu, profile):
                info = pynvml.nvmlGpuInstanceGetInfo(instance)
                device = devices.get(info.id)
                yield FoundInstance(
                    id=info.id,
                    place=Place(profile.id, info.placement.start, info.placement.size),
                    profile=_profile_name(profile),
                    uuid=None if device is None else pynvml.nvmlDeviceGetUUID(device),
                    processes=0 if device is None else _processes(device),
                )

    def _instances(self, gpu: str, profile: Handle) -> list[Handle]:
        count = ctypes.c_uint(0)
        found = (pynvml.c_nvmlGpuInstance_t * profile.instanceCount)()
        pynvml.nvmlDeviceGetGpuInstances(self._handle(gpu), profile.id, found, ctypes.byref(count))
        return list(found[: count.value])

    def _mig_devices(self, gpu: str) -> dict[int, Handle]:
        """Handles of the usable slices by their instance's id."""
        handle = self._handle(gpu)
        found: dict[int, Handle] = {}
        for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except pynvml.NVMLError_NotFound:
                continue
            found[pynvml.nvmlDeviceGetGpuInstanceId(device)] = device
        return found

    # Changes.

    def set_mode(self, gpu: str, mode: Mode) -> None:
        """The driver resets an idle GPU by itself where it can. Where it can't, the mode is pending
        until somebody else resets the GPU: we do."""
        doing = f"switching to {mode}"
        try:
            outcome = pynvml.nvmlDeviceSetMigMode(self._handle(gpu), _MIG[mode])
            if outcome == pynvml.NVML_ERROR_RESET_REQUIRED:
                if _processes(self._handle(gpu)) != 0:
                    raise GpuError("in_use", f"{doing}: {_WORDS['in_use']}")
                self._reset(gpu)
            elif outcome != pynvml.NVML_SUCCESS:
                raise _refused(pynvml.NVMLError(outcome), doing)
            # What has been reset is another device to the driver.
            self._handles.pop(gpu, None)
            found = pynvml.nvmlDeviceGetMigMode(self._handle(gpu))[0]
        except pynvml.NVMLError as error:
            raise _refused(error, doing) from error
        finally:
            self._handles.pop(gpu, None)
        if found != _MIG[mode]:
            raise GpuError("reset_required", f"{doing}: it was reset and is still {_mode(found)}")

    def create(self, gpu: str, place: Place) -> None:
        placement = pynvml.c_nvmlGpuInstancePlacement_t(place.slot, place.size)
        try:
            instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                self._handle(gpu), place.profile_id, ctypes.byref(placement)
            )
        except pynvml.NVMLError as error:
            raise _refused(error, "making the slice") from error
        try:
            profile = _compute_profile(instance, self._compute(gpu, place.profile_id))
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, profile.id)
        except pynvml.NVMLError as error:
            with contextlib.suppress(pynvml.NVMLError):  # refused too: the next look removes it
                pynvml.nvmlGpuInstanceDestroy(instance)
            raise _refused(error, "making the slice usable") from error

    def _compute(self, gpu: str, profile_id: int) -> int:
        return next(int(p.sliceCount) for p in self._profiles_of(gpu) if p.id == profile_id)

    def destroy(self, gpu: str, instance: int) -> None:
        self._measures.forget(gpu, instance)
        try:
            there = pynvml.nvmlDeviceGetGpuInstanceById(self._handle(gpu), instance)
            for compute in _compute_instances(there):
                pynvml.nvmlComputeInstanceDestroy(compute)
            pynvml.nvmlGpuInstanceDestroy(there)
        except pynvml.NVMLError as error:
            raise _refused(error, "taking the slice away") from error

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        try:
            device = self._handle(gpu) if instance is None else self._mig_devices(gpu).get(instance)
            found = [] if device is None else pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        except pynvml.NVMLError as error:
            raise _refused(error, "looking for processes") from error
        return tuple(int(process.pid) for process in found)

    def end_processes(
        self, gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        for pid in self.pids(gpu, instance):
            if only is None or pid in only:
                self._signal_process(pid, force=force)

    # Measurements.

    def readings(self, gpu: str) -> tuple[Reading, ...]:
        try:
            truth = self.truth(gpu)
            handle = self._handle(gpu)
            processes = truth.processes if truth.mode == "whole" else None
            whole = self._measures.whole(gpu, handle, mode=truth.mode, processes=processes)
            devices = self._mig_devices(gpu) if truth.instances else {}
            slices = [
                self._measures.part(gpu, handle, found, devices.get(found.id))
                for found in truth.instances
            ]
        except pynvml.NVMLError as error:
            raise _refused(error, "measuring") from error
        return (whole, *slices)

    def _handle(self, gpu: str) -> Handle:
        if gpu not in self._handles:
            self._handles[gpu] = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        return self._handles[gpu]


def _answering() -> Iterator[tuple[int, Handle]]:
    """The GPUs by index, without those that are lost."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceGetUUID(handle)
        except pynvml.NVMLError_GpuIsLost:
            continue
        yield index, handle


def _mode(mig: int) -> Mode:
    return "sliced" if mig else "whole"


def _profile_name(profile: Handle) -> str:
    return str(profile.name).removeprefix("MIG ")


def _processes(device: Handle) -> int | None:
    found = _optional(pynvml.nvmlDeviceGetComputeRunningProcesses, device)
    return None if found is None else len(found)


def _compute_profiles(instance: Handle) -> Iterator[Handle]:
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
        profile = _optional(ask, instance, index, shared)
        if profile is not None:
            yield profile


def _compute_profile(instance: Handle, compute: int) -> Handle:
    """The compute profile that fills a GPU instance of `compute` slices."""
    for profile in _compute_profiles(instance):
        if profile.sliceCount == compute:
            return profile
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _compute_instances(instance: Handle) -> Iterator[Handle]:
    for profile in _compute_profiles(instance):
        count = ctypes.c_uint(0)
        found = (pynvml.c_nvmlComputeInstance_t * max(1, profile.instanceCount))()
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, profile.id, found, ctypes.byref(count))
        yield from found[: count.value]
