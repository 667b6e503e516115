"""The machine around simulated GPUs: it depends on its name alone, not on the real machine."""

import uuid
from collections.abc import Callable, Mapping

import wire
from agent.host.machine import Host
from agent.ports.group_use import GroupUse
from agent.ports.host_cores import CoreTopology, core_of_device
from devtools.simulated.hardware import Hardware
from devtools.simulated.processes import LoadKind, kind_of

_CORES_PER_GPU = 12
_MEMORY_MB_PER_GPU = 128 * 1024
_SCRATCH_GB_PER_GPU = 1_750
# Cores, MiB of memory, and KiB a second read, written and exchanged by network, of a program on one GPU.
_USES: dict[LoadKind, tuple[float, int, int, int, int]] = {
    "idle": (0.02, 900, 0, 0, 1),
    "training": (1.6, 14_000, 42_000, 900, 9_000),
    "memory": (0.8, 22_000, 6_000, 300, 400),
    # It sends gradients as fast as a link of 25 Gbit/s carries them.
    "communication": (1.1, 12_000, 3_000, 100, 1_400_000),
    # It decodes its input on all cores that it has by default.
    "input": (3.9, 18_000, 310_000, 200, 2_000),
}
# The same of a program on one core, without a GPU.
_ON_CORE = (0.82, 2_300, 9_000, 2_600, 500)


def host_simulated(name: str, gpus: int, *, core_mb: int = 0) -> Host:
    """Returns a host with room for that many GPUs; with `core_mb`, for that many cores with so much memory
    each."""
    boot = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    if core_mb:
        return Host(name, boot, gpus, gpus * core_mb, numa=lambda _: None)
    cores, memory = gpus * _CORES_PER_GPU, gpus * _MEMORY_MB_PER_GPU
    storage = wire.NodeStorage(local_gb=gpus * _SCRATCH_GB_PER_GPU, shared=("/home",))
    return Host(name, boot, cores, memory, numa=lambda gpu: 2 * gpu.index // gpus, storage=lambda: storage)


def core_topology_simulated(cores: int, gpu_numa: Mapping[str, int | None]) -> CoreTopology:
    """Returns two NUMA nodes of half the cores each."""
    half = cores // 2
    return CoreTopology({0: tuple(range(half)), 1: tuple(range(half, cores))}, gpu_numa)


def group_use_simulated(hardware: Hardware) -> Callable[[str], GroupUse | None]:
    """Returns a reader of what the simulated programs of a booking have used since they began, as
    the slices of systemd count it."""

    def read(booking: str) -> GroupUse | None:
        now = hardware.clock()
        of_core = {gpu.uuid for gpu in hardware.gpus if core_of_device(gpu.uuid) is not None}
        found = [
            (each, _ON_CORE if gpu.uuid in of_core else _USES[kind_of(each.seed)])
            for gpu in hardware.gpus
            for each in gpu.processes.values()
            if each.load == booking
        ]
        lived = [(max(0.0, now - each.starts), use) for each, use in found]
        if not lived:
            return None
        return GroupUse(
            cpu_us=sum(int(seconds * cores * 1e6) for seconds, (cores, *_) in lived),
            memory_mb=sum(memory for _, (_, memory, *_) in lived),
            read_kb=sum(int(seconds * read) for seconds, (_, _, read, _, _) in lived),
            written_kb=sum(int(seconds * written) for seconds, (*_, written, _) in lived),
            received_kb=sum(int(seconds * network) for seconds, (*_, network) in lived),
            sent_kb=sum(int(seconds * network) for seconds, (*_, network) in lived),
        )

    return read
