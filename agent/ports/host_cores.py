"""Which of the host's cores go with a device: near its GPU, and nobody else's.

What was handed over keeps its cores until it is taken back: they stand in its `booking.json`, which
is what makes them the same after a restart of the agent.
"""

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

NUMA_NODES = Path("/sys/devices/system/node")
PCI_DEVICES = Path("/sys/bus/pci/devices")


@dataclasses.dataclass(frozen=True, slots=True)
class CoreTopology:
    """The host's cores by NUMA node, and the NUMA node of each GPU, by UUID, where it is known."""

    cores: Mapping[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    gpu_numa: Mapping[str, int | None] = dataclasses.field(default_factory=dict)

    def cores_near(self, gpus: Iterable[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the NUMA nodes of these GPUs and the cores of those nodes.

        Nothing at all when the node of one of them is not known.
        """
        nodes = {self.gpu_numa.get(gpu) for gpu in gpus}
        known = sorted(node for node in nodes if node is not None and node in self.cores)
        if len(known) < len(nodes):
            return (), ()
        return tuple(known), tuple(core for node in known for core in self.cores[node])

    def choose(self, gpu: str, count: int, taken: Collection[int]) -> tuple[int, ...]:
        """Return `count` free cores for a device of the GPU, those of its NUMA node first.

        None at all when there are too few: others counted on theirs.
        """
        gpu_numa = self.gpu_numa.get(gpu)
        nodes = sorted(self.cores, key=lambda node: (node != gpu_numa, node))
        free = [core for node in nodes for core in self.cores[node] if core not in taken]
        return tuple(sorted(free[:count])) if len(free) >= count else ()

    def without(self, cores: Collection[int]) -> "CoreTopology":
        """Return the same without some cores, which another agent of this host gives to bookings."""
        left = {node: tuple(each for each in all_ if each not in cores) for node, all_ in self.cores.items()}
        return CoreTopology(left, self.gpu_numa)


class CoreDevices(CoreTopology):
    """The topology where each device is a core of the host: its core is itself."""

    def choose(self, gpu: str, count: int, taken: Collection[int]) -> tuple[int, ...]:
        """Return the core of the device, however many cores its booking counts with it."""
        core = core_of_device(gpu)
        return () if core is None else (core,)


CORE = "CORE-"
"""Begins what stands for the UUID of a device that is a core of a host."""


def core_device(node: str, core: int) -> str:
    """What stands for the UUID of a core: unlike that of any other node's, and short."""
    return f"{CORE}{hashlib.sha256(node.encode()).hexdigest()[:12]}-{core}"


def core_of_device(device: str) -> int | None:
    """The core's number; None: the device is no core."""
    return int(device.rpartition("-")[2]) if device.startswith(CORE) else None


def numa_node(pci: str, devices: Path = PCI_DEVICES) -> int | None:
    """Return the NUMA node next to a PCI device, None where the kernel does not know one.

    The driver is not asked: its own answer is the node of the GPU's memory, which only a few
    machines have (Grace Hopper). `pci` is NVML's form, with a domain of eight digits.
    """
    domain, _, rest = pci.lower().partition(":")
    try:
        name = f"{int(domain, 16):04x}:{rest}"
        node = int((devices / name / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    # -1 is the kernel's word for a device that is next to none, as on machines of one node.
    return node if node >= 0 else None


def core_topology_read(gpu_numa: Mapping[str, int | None], nodes: Path = NUMA_NODES) -> CoreTopology:
    """The online cores of this host. Empty if the kernel does not list them."""
    found: dict[int, tuple[int, ...]] = {}
    for path in sorted(nodes.glob("node[0-9]*/cpulist")):
        number = path.parent.name.removeprefix("node")
        if number.isdecimal():
            found[int(number)] = cores_parse(path.read_text())
    return CoreTopology({node: cores for node, cores in sorted(found.items()) if cores}, gpu_numa)


def cores_text(cores: Iterable[int]) -> str:
    """As the kernel writes lists: `0-3,8`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(f"{first}-{last}" if first != last else str(first) for first, last in runs)


def cores_parse(text: str) -> tuple[int, ...]:
    """The same back. ValueError: no list of cores."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
