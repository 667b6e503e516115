"""Which GPUs of a node are near each other by PCIe: those of one processor, and those of one switch.

Between two GPUs without NVLink all data goes over PCIe: behind one switch at its full speed, between two
processors at about half of it, and with what both processors send each other.
"""

from collections.abc import Iterable

from wire import PciePath

PATHS = {
    "board": "same board",
    "switch": "same PCIe switch",
    "switches": "PCIe switches",
    "bridge": "host bridge",
    "numa": "NUMA node",
    "system": "across the machine",
}
"""Where the PCIe paths of two GPUs meet, in words, the nearest first."""

_SWITCH = frozenset({"board", "switch", "switches"})
_PROCESSOR = _SWITCH | {"bridge", "numa"}

Peer = tuple[int, int, PciePath | None]
"""Another GPU of the node: its index, the number of NVLinks to it, and where the PCIe paths meet."""


def pcie_groups(index: int, numa: int | None, peers: Iterable[Peer]) -> tuple[int, ...]:
    """The group of the GPU's processor and that of its PCIe switch, each named by its lowest index; of
    the processor alone by its NUMA node where the driver knows no paths, () where nothing is known."""
    paths = {other: path for other, _, path in peers if path is not None}
    if paths:
        return tuple(
            min([index, *(other for other, path in paths.items() if path in near)])
            for near in (_PROCESSOR, _SWITCH)
        )
    return () if numa is None else (numa,)
