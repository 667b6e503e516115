"""The machine around simulated GPUs: it depends on its name alone, not on the real machine."""

import uuid
from collections.abc import Mapping

from agent.host.machine import Host
from agent.ports.host_cores import CoreTopology

_CORES_PER_GPU = 12
_MEMORY_MB_PER_GPU = 128 * 1024


def host_simulated(name: str, gpus: int) -> Host:
    """Returns a host with room for that many GPUs."""
    boot = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    cores, memory = gpus * _CORES_PER_GPU, gpus * _MEMORY_MB_PER_GPU
    return Host(name, boot, cores, memory, numa=lambda gpu: 2 * gpu.index // gpus)


def core_topology_simulated(cores: int, gpu_numa: Mapping[str, int | None]) -> CoreTopology:
    """Returns two NUMA nodes of half the cores each."""
    half = cores // 2
    return CoreTopology({0: tuple(range(half)), 1: tuple(range(half, cores))}, gpu_numa)
