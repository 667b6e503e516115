"""The links between GPUs of a node: NVLinks, their groups and fabric, and PCIe paths."""

import ctypes
from collections import Counter
from collections.abc import Iterator

import pynvml

from allocation.agent.nvml.calls import Handle, field_value, indexed, optional, reading, with_retry
from allocation.wire import PciePath, Peer

_SWITCH = "switch"
_PATHS: dict[int, PciePath] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "board",
    pynvml.NVML_TOPOLOGY_SINGLE: "switch",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "switches",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "bridge",
    pynvml.NVML_TOPOLOGY_NODE: "numa",
    pynvml.NVML_TOPOLOGY_SYSTEM: "system",
}


class Topology:
    """Reads all links once. What the driver does not report is unknown; it never raises."""

    def __init__(self, handles: dict[int, Handle]) -> None:
        self._handles = handles
        self._links = {i: Counter(_link_ends(handle)) for i, handle in handles.items()}
        known = {i: with_retry(pynvml.nvmlDeviceGetPciInfo, h) for i, h in handles.items()}
        self._pci = {i: "" if pci is None else pci.busId for i, pci in known.items()}

    def domains(self) -> dict[int, int | None]:
        """Numbers the connected groups of GPUs; GPUs on NVSwitches of one node are one group."""
        by_pci = {pci: i for i, pci in self._pci.items() if pci}
        group: dict[int | str, int | str] = {}

        def root(member: int | str) -> int | str:
            while group.setdefault(member, member) != member:
                member = group[member]
            return member

        for i, ends in self._links.items():
            for end in ends:
                group[root(i)] = root(end if end == _SWITCH else by_pci.get(end, i))
        linked = {i: root(i) if i in group else None for i in self._handles}
        order = list(dict.fromkeys(r for r in linked.values() if r is not None))
        return {i: None if r is None else order.index(r) for i, r in linked.items()}

    def peers(self, index: int) -> tuple[Peer, ...]:
        """Returns the other GPUs of the node, by index."""
        return tuple(
            Peer(index=other, nvlinks=self._nvlinks(index, other), path=self._path(index, other))
            for other in sorted(self._handles)
            if other != index
        )

    def _nvlinks(self, one: int, other: int) -> int:
        """Returns the number of direct links and of shared links to NVSwitches."""
        first, second = self._links[one], self._links[other]
        return first[self._pci[other]] + min(first[_SWITCH], second[_SWITCH])

    def _path(self, one: int, other: int) -> PciePath | None:
        first, second = self._handles[one], self._handles[other]
        level = with_retry(optional, pynvml.nvmlDeviceGetTopologyCommonAncestor, first, second)
        return _PATHS.get(level)


def _link_ends(handle: Handle) -> Iterator[str]:
    """Yields the PCI ids at the other ends of the links, "switch" for an NVSwitch."""
    for link in range(_link_count(handle)):
        end = with_retry(_link_end, handle, link)
        if end is not None:
            yield str(end)


def _link_count(handle: Handle) -> int:
    """Returns the number of links of this GPU. The binding's constant is that of the newest GPU."""
    count = field_value(handle, pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)
    most = int(pynvml.NVML_NVLINK_MAX_LINKS)
    return most if count is None else min(count, most)


def _link_end(handle: Handle, link: int) -> str | None:
    if not indexed(pynvml.nvmlDeviceGetNvLinkState, handle, link):
        return None
    kind = indexed(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return _SWITCH
    if kind != pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
        return None
    remote = indexed(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    return None if remote is None else str(remote.busId)


_STATES = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "has not been started: does the fabric manager run?",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "is being joined",
}


def fabric_unready(handle: Handle) -> str | None:
    """Returns why the GPU can't be used yet; None where it can, or has no fabric."""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if reading(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
        # Older drivers have the first form only.
        info = pynvml.c_nvmlGpuFabricInfo_t()
        if reading(pynvml.nvmlDeviceGetGpuFabricInfo, handle, ctypes.byref(info)) is None:
            return None
    if info.state in _STATES:
        return f"the NVLink fabric {_STATES[info.state]}"
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED and info.status:
        return f"the NVLink fabric refused the GPU with NVML code {info.status}"
    return None
