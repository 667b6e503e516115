"""The GPU port over NVML, through pynvml, for real and simulated GPUs."""

import contextlib
import ctypes
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager

import pynvml

from agent.host.device_nodes import DriverDeviceNodes
from agent.host.open_files import OpenFiles
from agent.nvml.calls import FAULT_TEXTS, REFUSALS, Handle, attempt, with_retry
from agent.nvml.calls import refused as _refused
from agent.nvml.exporter import Exporter
from agent.nvml.handles import Handles, profile_name
from agent.nvml.layout import (
    Topology,
    compute_create,
    compute_destroy,
    fabric_unready,
)
from agent.nvml.measure import Measures
from agent.nvml.processes import DevicePrograms, Processes, lists_scrambled, residue_mb
from agent.nvml.reset import gpu_reset
from agent.owner.cdi import DeviceNodes
from agent.ports.gpu import FoundInstance, GpuError, Place, Reading, Truth, watched
from wire import InventoryGpu, Mode, Peer

log = logging.getLogger(__name__)

_MIG = {"sliced": pynvml.NVML_DEVICE_MIG_ENABLE, "whole": pynvml.NVML_DEVICE_MIG_DISABLE}


class NvmlGpu:
    """See gpu.GpuPort. `signal_process(pid, force=)` ends a process of this node, `reset(uuid)`
    resets a GPU. `files` looks at who has device files open; without it only NVML's lists count.
    Within `unwatched(uuid)` monitoring services do not use the GPU."""

    def __init__(
        self,
        signal_process: Callable[..., None],
        reset: Callable[[str], None] = gpu_reset,
        files: OpenFiles | None = None,
        nodes: DeviceNodes | None = None,
        unwatched: Callable[[str], AbstractContextManager[None]] = watched,
        exporter: Exporter | None = None,
    ) -> None:
        self._signal_process = signal_process
        self._reset = reset
        self._unwatched = unwatched
        self._handles = Handles()
        self._measures = Measures(exporter)
        try:
            pynvml.nvmlInit()
        except REFUSALS as error:
            raise _refused(error, "no NVIDIA driver answers") from error
        version = attempt(pynvml.nvmlSystemGetDriverVersion) or ""
        paths_of = (nodes or DriverDeviceNodes()).of
        self._processes = Processes(files, paths_of, scrambled=lists_scrambled(version))

    def close(self) -> None:
        self._measures.close()
        attempt(pynvml.nvmlShutdown)

    def driver(self) -> str:
        return str(with_retry(pynvml.nvmlSystemGetDriverVersion) or "unknown")

    # Inventory.

    def inventory(self) -> tuple[InventoryGpu, ...]:
        """Returns the GPUs that can be identified; the others are left out."""
        try:
            handles = dict(_answering())
        except REFUSALS as error:
            raise _refused(error, "reading the inventory") from error
        topology = Topology(handles)
        domains = topology.domains()
        found = (
            with_retry(self._inventory_gpu, i, handle, domains[i], topology.peers(i))
            for i, handle in handles.items()
        )
        gpus = tuple(gpu for gpu in found if gpu is not None)
        if len(gpus) < len(handles):
            log.error("%d GPUs are left out: they can't be identified", len(handles) - len(gpus))
        return gpus

    def _inventory_gpu(
        self, index: int, handle: Handle, domain: int | None, peers: tuple[Peer, ...]
    ) -> InventoryGpu:
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        self._handles.found(uuid, handle)
        mig = _mig_mode(handle)
        pci = pynvml.nvmlDeviceGetPciInfo(handle)
        return InventoryGpu(
            index=index,
            uuid=uuid,
            name=pynvml.nvmlDeviceGetName(handle),
            memory_mb=pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
            mig_capable=mig is not None,
            mode="sliced" if mig is not None and mig[0] else "whole",
            numa=None,  # from the host: see inventory_take
            pci=pci.busId,
            nvlink_domain=domain,
            placements=tuple(self._handles.placements(uuid)) if mig is not None else (),
            peers=peers,
            device_id=_pci_id(pci.pciDeviceId),
            subsystem_id=_pci_id(pci.pciSubSystemId),
        )

    # What is there.

    def truth(self, gpu: str) -> Truth:
        try:
            handle = self._handles.gpu(gpu)
            mig = _mig_mode(handle)
            pending = None if mig is None or mig[0] == mig[1] else _mode(mig[1])
            if mig is None or not mig[0]:
                return self._whole(gpu, handle, pending)
            instances = tuple(self._found(gpu))
            return Truth(uuid=gpu, mode="sliced", instances=instances, pending=pending)
        except REFUSALS as error:
            self._handles.forget(gpu)
            raise _refused(error, "reading the GPU") from error

    def _whole(self, gpu: str, handle: Handle, pending: Mode | None) -> Truth:
        there = self._processes.on(gpu, handle, sliced=False)
        return Truth(
            uuid=gpu,
            mode="whole",
            processes=there.count,
            pending=pending,
            holders=there.names,
            residue_mb=residue_mb(handle) if there.count == 0 else 0,
            unready=fabric_unready(handle) if there.count == 0 else None,
        )

    def _found(self, gpu: str) -> Iterator[FoundInstance]:
        devices = self._handles.mig_devices(gpu)
        for profile in self._handles.profiles(gpu):
            for instance in self._handles.instances(gpu, profile):
                info = pynvml.nvmlGpuInstanceGetInfo(instance)
                device = devices.get(info.id)
                uuid = None if device is None else pynvml.nvmlDeviceGetUUID(device)
                there = None if uuid is None else self._processes.on(uuid, device, sliced=True)
                where, step = info.placement, self._handles.step(gpu)
                yield FoundInstance(
                    id=info.id,
                    place=Place(profile.id, where.start // step, where.size // step),
                    profile=profile_name(profile),
                    uuid=uuid,
                    processes=0 if there is None else there.count,
                )

    # Changes.

    def set_mode(self, gpu: str, mode: Mode) -> None:
        """Some drivers reset an idle GPU themselves. Otherwise the mode is pending until a reset,
        which this method does."""
        with self._unwatched(gpu):
            self._set_mode(gpu, mode)

    def _set_mode(self, gpu: str, mode: Mode) -> None:
        doing = f"switching to {mode}"
        try:
            outcome = pynvml.nvmlDeviceSetMigMode(self._handles.gpu(gpu), _MIG[mode])
            if outcome == pynvml.NVML_ERROR_RESET_REQUIRED:
                if self._on(gpu).count != 0:
                    raise self._in_use(gpu, doing)
                self._reset(gpu)
            elif outcome == pynvml.NVML_ERROR_IN_USE:
                raise self._in_use(gpu, doing)
            elif outcome != pynvml.NVML_SUCCESS:
                raise _refused(pynvml.NVMLError(outcome), doing)
            # What has been reset is another device to the driver.
            self._handles.forget(gpu)
            found = pynvml.nvmlDeviceGetMigMode(self._handles.gpu(gpu))[0]
        except REFUSALS as error:
            raise self._or_in_use(gpu, error, doing) from error
        finally:
            self._handles.forget(gpu)
            self._handles.forget_profiles(gpu)
        if found != _MIG[mode]:
            raise GpuError("reset_required", f"{doing}: it was reset and is still {_mode(found)}")

    def _or_in_use(self, gpu: str, error: Exception, doing: str) -> GpuError:
        known = _refused(error, doing)
        return self._in_use(gpu, doing) if known.fault == "in_use" else known

    def _in_use(self, gpu: str, doing: str) -> GpuError:
        """Returns the error with the programs on the GPU: often a monitoring service uses it."""
        try:
            there = self._on(gpu)
        except REFUSALS:
            return GpuError("in_use", f"{doing}: {FAULT_TEXTS['in_use']}")
        who = ", ".join((*there.names, *map(str, there.services)))
        return GpuError("in_use", f"{doing}: {FAULT_TEXTS['in_use']}{f': {who}' if who else ''}")

    def _on(self, gpu: str) -> DevicePrograms:
        return self._processes.on(gpu, self._handles.gpu(gpu), sliced=False)

    def create(self, gpu: str, place: Place) -> None:
        try:
            step = self._handles.step(gpu)
            placement = pynvml.c_nvmlGpuInstancePlacement_t(place.slot * step, place.size * step)
            instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                self._handles.gpu(gpu), place.profile_id, ctypes.byref(placement)
            )
        except REFUSALS as error:
            raise _refused(error, "making the slice") from error
        try:
            compute_create(instance, self._handles.compute(gpu, place.profile_id))
        except REFUSALS as error:
            with contextlib.suppress(*REFUSALS):  # refused too: the next look removes it
                pynvml.nvmlGpuInstanceDestroy(instance)
            raise _refused(error, "making the slice usable") from error

    def destroy(self, gpu: str, instance: int) -> None:
        """Removes a slice; stops a service that is its only user."""
        self._measures.forget(gpu, instance)
        try:
            self._destroy(gpu, instance)
        except GpuError as refused:
            if refused.fault != "in_use" or not self._is_watched(gpu):
                raise
            with self._unwatched(gpu):
                self._destroy(gpu, instance)

    def _destroy(self, gpu: str, instance: int) -> None:
        try:
            there = pynvml.nvmlDeviceGetGpuInstanceById(self._handles.gpu(gpu), instance)
            compute_destroy(there)
            pynvml.nvmlGpuInstanceDestroy(there)
        except REFUSALS as error:
            raise self._or_in_use(gpu, error, "taking the slice away") from error

    def _is_watched(self, gpu: str) -> bool:
        try:
            return bool(self._on(gpu).services)
        except REFUSALS:
            return False

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        """Returns the programs that have the device's file open, if that is visible."""
        try:
            if instance is None:
                return self._on(gpu).pids
            device = self._handles.mig_devices(gpu).get(instance)
            if device is None:
                return ()
            uuid = pynvml.nvmlDeviceGetUUID(device)
            return self._processes.on(uuid, device, sliced=True).pids
        except REFUSALS as error:
            raise _refused(error, "looking for processes") from error

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
            handle = self._handles.gpu(gpu)
            processes = truth.processes if truth.mode == "whole" else None
            whole = self._measures.whole(gpu, handle, mode=truth.mode, processes=processes)
            devices = self._handles.mig_devices(gpu) if truth.instances else {}
            slices = [
                self._measures.part(gpu, handle, found, devices.get(found.id)) for found in truth.instances
            ]
        except REFUSALS as error:
            raise _refused(error, "measuring") from error
        return (whole, *slices)


def _answering() -> Iterator[tuple[int, Handle]]:
    """Yields the GPUs that answer, by index."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceGetUUID(handle)
        except REFUSALS as error:
            log.warning("GPU %d is left out: %s", index, error)
            continue
        yield index, handle


def _mig_mode(handle: Handle) -> list[int] | None:
    """The mode now and after the next reset; None for a GPU without MIG. Whatever else the driver
    refuses with is no answer: a GPU in slices must never pass for a whole one."""
    try:
        return list(pynvml.nvmlDeviceGetMigMode(handle))
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return None


def _pci_id(number: int) -> str:
    """Returns NVML's id, which has the vendor in its lower half, as a PciId."""
    return f"{number & 0xFFFF:04x}:{number >> 16 & 0xFFFF:04x}" if number else ""


def _mode(mig: int) -> Mode:
    return "sliced" if mig else "whole"
