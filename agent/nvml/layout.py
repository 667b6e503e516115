"""The layout of a node's GPUs: slices within one, and the links between them.

Placements of MIG slices are in the slots of the driver and of messages. Messages have at most
`wire.SLOTS` memory slots per GPU. Some drivers number more and use them in steps only: of twelve,
slices take three, six or all. One slot of a message is then one step. Links are NVLinks, their
groups and fabric, and PCIe paths.
"""

import ctypes
from collections import Counter
from collections.abc import Iterable, Iterator
from math import gcd

import pynvml

import wire
from agent.nvml.calls import (
    REFUSALS,
    Handle,
    code_of,
    field_value,
    indexed,
    optional,
    reading,
    with_retry,
)
from wire import PciePath, Peer

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


def driver_placements(handle: Handle, profiles: Iterable[Handle]) -> Iterator[tuple[Handle, int, int]]:
    """Returns (profile, start, size) of every legal place, in the driver's own slots."""
    ask = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    for profile in profiles:
        count = ctypes.c_uint(0)
        ref = ctypes.byref(count)
        if indexed(ask, handle, profile.id, None, ref) is None:
            continue
        places = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        ask(handle, profile.id, places, ref)
        for place in places[: count.value]:
            yield profile, place.start, place.size


def slot_step(placements: Iterable[tuple[Handle, int, int]]) -> int:
    """Returns how many slots of the driver are one slot of a message; 1 without placements."""
    places = [(start, size, profile.sliceCount) for profile, start, size in placements]
    if max((start + size for start, size, _ in places), default=0) <= wire.SLOTS:
        return 1
    # With the slots of one compute slice, so that a part of the answers gives the same step.
    slices = (size // compute for _, size, compute in places if compute)
    return gcd(*(number for start, size, _ in places for number in (start, size)), *slices) or 1


_NOT_FOR_THIS = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)


def compute_create(instance: Handle, slices: int) -> None:
    """Makes the compute instance that fills a GPU instance of so many slices. Raises NVMLError.

    Several profiles may have that size: the one with the most multiprocessors is the whole, and
    where a driver refuses it for this GPU instance the next one is.
    """
    alike = [each for each in _profiles(instance) if each.sliceCount == slices]
    alike.sort(key=lambda each: -each.multiprocessorCount)
    for profile in alike:
        try:
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, profile.id)
        except REFUSALS as error:
            if profile is alike[-1] or code_of(error) not in _NOT_FOR_THIS:
                raise
        else:
            return
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def compute_destroy(instance: Handle) -> None:
    """Removes every compute instance that exists. Raises NVMLError."""
    for compute in list(_instances(instance)):
        pynvml.nvmlComputeInstanceDestroy(compute)


def _profiles(instance: Handle) -> Iterator[Handle]:
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
        profile = indexed(ask, instance, index, shared)
        if profile is not None:
            yield profile


def _instances(instance: Handle) -> Iterator[Handle]:
    ask = pynvml.nvmlGpuInstanceGetComputeInstances
    for profile in _profiles(instance):
        count = ctypes.c_uint(0)
        found = (pynvml.c_nvmlComputeInstance_t * max(1, profile.instanceCount))()
        if indexed(ask, instance, profile.id, found, ctypes.byref(count)) is not None:
            yield from found[: min(count.value, len(found))]
