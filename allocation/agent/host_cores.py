"""Which of the host's cores go with a device: near its GPU, and nobody else's.

What was handed over keeps its cores until it is taken back: they stand in its `booking.json`, which
is what makes them the same after a restart of the agent.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

NUMA_NODES = Path("/sys/devices/system/node")


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """The host's cores by NUMA node, and the NUMA node of each GPU, by UUID, where it is known."""

    cores: Mapping[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    near: Mapping[str, int | None] = dataclasses.field(default_factory=dict)

    def choose(self, gpu: str, count: int, taken: Collection[int]) -> tuple[int, ...]:
        """Return `count` free cores for a device of the GPU, those of its NUMA node first.

        None at all when there are too few: others counted on theirs.
        """
        near = self.near.get(gpu)
        nodes = sorted(self.cores, key=lambda node: (node != near, node))
        free = [core for node in nodes for core in self.cores[node] if core not in taken]
        return tuple(sorted(free[:count])) if len(free) >= count else ()


def topology_read(near: Mapping[str, int | None], nodes: Path = NUMA_NODES) -> Topology:
    """The online cores of this host. Empty where its kernel does not tell."""
    found: dict[int, tuple[int, ...]] = {}
    for path in sorted(nodes.glob("node[0-9]*/cpulist")):
        number = path.parent.name.removeprefix("node")
        if number.isdecimal():
            found[int(number)] = cores_parse(path.read_text())
    return Topology({node: cores for node, cores in sorted(found.items()) if cores}, near)


def topology_simulated(cores: int, near: Mapping[str, int | None]) -> Topology:
    """Two NUMA nodes of half the cores each."""
    half = cores // 2
    return Topology({0: tuple(range(half)), 1: tuple(range(half, cores))}, near)


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
