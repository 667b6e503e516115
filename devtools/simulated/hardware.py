"""Simulated GPUs: the hardware's own rules and its state, without any interface.

The state is in a file, because real hardware survives the agent, too. Names and UUIDs follow from
the node's name alone, so that a node is the same node after a restart.
"""

import dataclasses
import json
import os
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path

from agent.ports.gpu import GpuError
from agent.ports.host_cores import core_device
from devtools.simulated.drivers import DEFAULT, driver_named
from devtools.simulated.models import (
    CORES,
    MIG_SUFFIX,
    HardwareFault,
    Model,
    Profile,
    all_models_load,
)
from devtools.simulated.processes import NAMESPACE, Kind, Load, Process, load_of

_FIRST_PID = 100_000
XID_OFF_THE_BUS = 79


# The driver's numbers of GPU instances by their size: as an H100 with driver 580 has them, and in
# the same manner for GPUs with twelve slots.
_NUMBERS = {8: range(1), 4: range(1, 3), 2: range(3, 7), 1: range(7, 15)}
_NUMBERS |= {12: range(1), 6: range(1, 3), 3: range(3, 7)}


@dataclasses.dataclass(slots=True, kw_only=True)
class Instance:
    """`compute` is the id of the compute profile of its compute instance, None without one."""

    id: int
    profile: Profile
    start: int
    compute: int | None = None

    @property
    def usable(self) -> bool:
        """Whether programs can use it."""
        return self.compute is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Error:
    """An Xid (`bits` 0), or a memory error of that many bits; `instance` None is the GPU's own."""

    gpu: str
    xid: int
    instance: int | None = None
    bits: int = 0


@dataclasses.dataclass(slots=True, kw_only=True)
class Gpu:
    index: int
    uuid: str
    model: Model
    mig: bool = False
    pending_mig: bool = False
    lost: bool = False
    # The number of its device file (None: its index), MiB that nobody frees, the state of
    # the NVLink fabric, and what the driver asks for.
    minor: int | None = None
    leaked_mb: int = 0
    fabric: int = 3
    recovery: int = 0
    instances: dict[int, Instance] = dataclasses.field(default_factory=dict)
    processes: dict[int, Process] = dataclasses.field(default_factory=dict)

    def mig_uuid(self, instance: Instance) -> str:
        if self.model.maker == "amd":
            kind = instance.profile.name.partition(".")[0]
            return f"{self.uuid}-{kind}{instance.start // instance.profile.size}"
        text = f"{self.uuid}/{instance.id}/{instance.profile.id}/{instance.start}"
        return f"MIG-{uuid.uuid5(NAMESPACE, text)}"

    @property
    def file(self) -> str:
        """The name of the device file."""
        return f"nvidia{self.index if self.minor is None else self.minor}"

    @property
    def pci(self) -> str:
        return f"00000000:{0x10 + 0x10 * (self.index % 14) + self.index // 14:02X}:00.0"


class StateFile:
    """The file with the state of all GPUs of a node."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, gpus: list[Gpu]) -> None:
        state = {
            gpu.uuid: {
                "mig": gpu.mig,
                "pending_mig": gpu.pending_mig,
                "leaked_mb": gpu.leaked_mb,
                "instances": [[i.id, i.profile.id, i.start, i.compute] for i in gpu.instances.values()],
                "processes": [dataclasses.asdict(p) for p in gpu.processes.values()],
            }
            for gpu in gpus
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(state))
        os.replace(fresh, self._path)

    def read(self, gpus: list[Gpu]) -> None:
        """Gives the GPUs the state that was written last, if any."""
        state = json.loads(self._path.read_text()) if self._path.exists() else {}
        for gpu in gpus:
            saved = state.get(gpu.uuid)
            if saved is None:
                continue
            gpu.mig = saved["mig"]
            gpu.pending_mig = saved.get("pending_mig", gpu.mig)
            gpu.leaked_mb = saved.get("leaked_mb", 0)
            for number, profile_id, start, compute in saved["instances"]:
                gpu.instances[number] = Instance(
                    id=number,
                    profile=gpu.model.profile(profile_id),
                    start=start,
                    compute=compute,
                )
            gpu.processes = {p["pid"]: Process(**p) for p in saved["processes"]}


def _device(node: str, index: int, model: str) -> str:
    if model == CORES:
        return core_device(node, index)
    return f"GPU-{uuid.uuid5(NAMESPACE, f'{node}/{index}')}"


class Hardware:
    """All GPUs of one simulated node. `clock` gives Unix seconds."""

    def __init__(
        self,
        node: str,
        models: list[str],
        *,
        state: Path | None,
        clock: Callable[[], float],
        driver: str = DEFAULT,
    ) -> None:
        """`driver` is a branch of drivers.DRIVERS."""
        known = all_models_load()
        self.driver = driver_named(driver)
        self.clock = clock
        self.errors: deque[Error] = deque()
        self.resets: list[str] = []
        self.reset_fails: str | None = None
        """What a reset is refused with; None: it works."""
        self._state = None if state is None else StateFile(state)
        self.gpus = [
            Gpu(
                index=i,
                uuid=_device(node, i, slug),
                model=known[slug.removesuffix(MIG_SUFFIX)],
                mig=slug.endswith(MIG_SUFFIX),
                pending_mig=slug.endswith(MIG_SUFFIX),
            )
            for i, slug in enumerate(models)
        ]
        if self._state is not None:
            self._state.read(self.gpus)

    def gpu(self, name: str) -> Gpu:
        for gpu in self.gpus:
            if gpu.uuid == name:
                return gpu
        raise HardwareFault("NVML_ERROR_NOT_FOUND")

    # The rules of the hardware.

    def mode_set(self, gpu: Gpu, *, mig: bool) -> str:
        """Returns the NVML code of the activation; raises HardwareFault when nothing is kept.

        Where it takes a reset the mode is pending until then, also of a GPU that is in use.
        """
        if not gpu.model.profiles:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        takes_reset = gpu.model.mode_switch == "reset"
        if gpu.instances:
            raise HardwareFault("NVML_ERROR_IN_USE")
        gpu.pending_mig = mig
        if mig != gpu.mig and (takes_reset or self.holding(gpu)):
            self.save()
            return "NVML_ERROR_IN_USE" if self.holding(gpu) else "NVML_ERROR_RESET_REQUIRED"
        gpu.mig = mig
        self.save()
        return "NVML_SUCCESS"

    def partition_set(self, gpu: Gpu, profile: Profile | None) -> None:
        """Divides a GPU of AMD into all partitions of a profile; None: it is whole."""
        if self.holding(gpu):
            raise HardwareFault("NVML_ERROR_IN_USE")
        gpu.mig = gpu.pending_mig = profile is not None
        gpu.instances.clear()
        if profile is not None:
            for number, start in enumerate(profile.starts):
                gpu.instances[number] = Instance(id=number, profile=profile, start=start, compute=0)
        self.save()

    def reset(self, uuid: str) -> None:
        """As `nvidia-smi --gpu-reset`: slices are gone, and the pending mode is the mode."""
        gpu = self.gpu(uuid)
        self.resets.append(uuid)
        if self.reset_fails is not None:
            raise GpuError("reset_required", f"resetting the GPU: {self.reset_fails}")
        if gpu.lost:
            raise GpuError("lost", "resetting the GPU: the GPU is not there")
        if self.holding(gpu):
            raise GpuError("in_use", "resetting the GPU: a process still uses it")
        gpu.mig = gpu.pending_mig
        gpu.instances.clear()
        gpu.leaked_mb = gpu.recovery = 0
        self.save()

    def reboot(self) -> None:
        """Programs and slices are gone. Where MIG needs a reset, its mode is kept in the GPU; later
        models forget it."""
        for gpu in self.gpus:
            gpu.processes.clear()
            gpu.instances.clear()
            gpu.leaked_mb = gpu.recovery = 0
            gpu.mig = gpu.mig and gpu.model.mode_switch == "reset"
            gpu.pending_mig = gpu.mig
        self.save()

    def instance_create(self, gpu: Gpu, profile_id: int, start: int, size: int) -> Instance:
        if not gpu.mig:
            raise HardwareFault("NVML_ERROR_NOT_SUPPORTED")
        profile = gpu.model.profile(profile_id)
        if start not in profile.starts or size != profile.size:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        there = gpu.instances.values()
        alike = sum(i.profile.id == profile_id for i in there)
        compute = sum(i.profile.compute for i in there) + profile.compute
        taken = any(i.start < start + size and start < i.start + i.profile.size for i in there)
        if taken or alike >= profile.max or compute > gpu.model.compute:
            raise HardwareFault("NVML_ERROR_INSUFFICIENT_RESOURCES")
        number = next(n for n in _NUMBERS[size] if n not in gpu.instances)
        gpu.instances[number] = Instance(id=number, profile=profile, start=start)
        self.save()
        return gpu.instances[number]

    def compute_create(self, gpu: Gpu, instance: Instance, compute: int | None = None) -> None:
        """Without `compute` with the profile that is the whole of the instance."""
        if instance.usable:
            raise HardwareFault("NVML_ERROR_INSUFFICIENT_RESOURCES")
        whole = max(instance.profile.computes, key=lambda each: each.multiprocessors)
        instance.compute = whole.index if compute is None else compute
        self.save()

    def compute_destroy(self, gpu: Gpu, instance: Instance) -> None:
        if self.holding(gpu, instance.id):
            raise HardwareFault("NVML_ERROR_IN_USE")
        instance.compute = None
        self.save()

    def instance_destroy(self, gpu: Gpu, instance: Instance) -> None:
        if instance.usable or self.holding(gpu, instance.id):
            raise HardwareFault("NVML_ERROR_IN_USE")
        del gpu.instances[instance.id]
        self.save()

    def fail(self, gpu: Gpu, xid: int, *, instance: int | None = None, bits: int = 0) -> None:
        """Adds an error that the driver reports. Xid 79 also removes the GPU from the bus."""
        self.errors.append(Error(gpu.uuid, xid, instance, bits))
        gpu.lost = gpu.lost or xid == XID_OFF_THE_BUS

    # Simulated programs.

    def process_start(
        self,
        device: str,
        *,
        label: str,
        delay_s: int = 0,
        stubborn: bool = False,
        user: str = "",
        load: str = "",
    ) -> int:
        """A program on a GPU or MIG device, seen `delay_s` seconds from now. Returns its pid.

        Programs with one `load` work alike; without, it follows from the label.
        """
        gpu, instance = self._device(device)
        pids = [pid for each in self.gpus for pid in each.processes]
        pid = max(pids, default=_FIRST_PID) + 1
        starts = int(self.clock()) + delay_s
        gpu.processes[pid] = Process(
            pid=pid,
            instance=instance,
            label=label,
            starts=starts,
            stubborn=stubborn,
            user=user,
            load=load,
        )
        self.save()
        return pid

    def holder_start(
        self, device: str, *, label: str, kind: Kind, user: str = "", service: bool = False
    ) -> int:
        """A program that NVML's list of compute programs does not have. Returns its pid."""
        pid = self.process_start(device, label=label, user=user)
        self.use_as(pid, kind, service=service)
        return pid

    def use_as(self, pid: int, kind: Kind, *, service: bool = False) -> None:
        """Sets how a program uses its GPU."""
        for gpu in self.gpus:
            if pid in gpu.processes:
                made = dataclasses.replace(gpu.processes[pid], kind=kind, service=service)
                gpu.processes[pid] = made
        self.save()

    def process_signal(self, pid: int, *, force: bool) -> None:
        for gpu in self.gpus:
            process = gpu.processes.get(pid)
            if process is not None and (force or not (process.stubborn or process.locked)):
                del gpu.processes[pid]
                self.save()

    def process_user(self, pid: int) -> str | None:
        """Returns the user of a process; None if it ended."""
        found = (gpu.processes.get(pid) for gpu in self.gpus)
        return next((process.user for process in found if process is not None), None)

    def process_forget(self, label: str) -> None:
        """Drops programs of `label` that have not been seen yet."""
        now = self.clock()
        for gpu in self.gpus:
            for process in list(gpu.processes.values()):
                if process.label == label and process.starts > now:
                    del gpu.processes[process.pid]
        self.save()

    def running(self, gpu: Gpu, instance: int | None = None) -> list[Process]:
        """Programs with a context on an instance; without one, all on the GPU."""
        return [each for each in self.holding(gpu, instance) if each.kind != "file"]

    def holding(self, gpu: Gpu, instance: int | None = None) -> list[Process]:
        """Programs that keep the GPU or an instance from being changed, also without a context."""
        now = self.clock()
        return [
            process
            for process in gpu.processes.values()
            if process.starts <= now
            and not process.frozen
            and (instance is None or process.instance == instance)
        ]

    def memory_used(self, gpu: Gpu, instance: Instance | None = None) -> int:
        """Returns the MiB in use, including the driver's own."""
        now = self.clock()
        if instance is not None:
            programs, room, used = self.running(gpu, instance.id), instance.profile.memory_mb, 13
        elif gpu.mig:
            parts = (self.memory_used(gpu, i) for i in gpu.instances.values())
            return gpu.model.reserved_mb + sum(parts)
        else:
            programs, room, used = self.running(gpu), gpu.model.memory_mb, gpu.model.reserved_mb
            used += gpu.leaked_mb
        return min(room, used + sum(p.memory_mb(now, room) for p in programs))

    def save(self) -> None:
        if self._state is not None:
            self._state.write(self.gpus)

    def _device(self, device: str) -> tuple[Gpu, int | None]:
        for gpu in self.gpus:
            if gpu.uuid == device:
                return gpu, None
            for instance in gpu.instances.values():
                if gpu.mig_uuid(instance) == device:
                    return gpu, instance.id
        raise HardwareFault("NVML_ERROR_NOT_FOUND")


# What a sensor would say.


def utilisation(hardware: Hardware, gpu: Gpu, instance: int | None = None) -> int:
    """Returns percent of the GPU, or of one instance."""
    if instance is not None or not gpu.mig:
        return gpu_load(hardware, gpu, instance).busy
    parts = [utilisation(hardware, gpu, i.id) * i.profile.compute for i in gpu.instances.values()]
    return sum(parts) // gpu.model.compute


def gpu_load(hardware: Hardware, gpu: Gpu, instance: int | None = None) -> Load:
    """Returns the load of all programs together."""
    now = hardware.clock()
    loads = [load_of(p.seed, now - p.starts) for p in hardware.running(gpu, instance)]
    return Load(
        busy=min(100, sum(load.busy for load in loads)),
        bandwidth=min(100, sum(load.bandwidth for load in loads)),
        tensor=min(100, sum(load.tensor for load in loads)),
        pcie_mb=sum(load.pcie_mb for load in loads),
        nvlink_mb=sum(load.nvlink_mb for load in loads) if gpu.model.nvlinks else 0,
    )


def power(hardware: Hardware, gpu: Gpu) -> int:
    """Returns milliwatts."""
    span = gpu.model.max_mw - gpu.model.idle_mw
    return gpu.model.idle_mw + span * utilisation(hardware, gpu) // 105


def temperature(hardware: Hardware, gpu: Gpu) -> int:
    span = gpu.model.max_c - gpu.model.idle_c
    return gpu.model.idle_c + span * utilisation(hardware, gpu) // 100
