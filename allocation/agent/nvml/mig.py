"""Placements of MIG slices, in the slots of the driver and of messages, and compute instances.

Messages have at most `wire.SLOTS` memory slots per GPU. Some drivers number more and use them in
steps only: of twelve, slices take three, six or all. One slot of a message is then one step.
"""

import ctypes
from collections.abc import Iterable, Iterator
from math import gcd

import pynvml

from allocation import wire
from allocation.agent.nvml.calls import REFUSALS, Handle, code_of, indexed


def driver_placements(
    handle: Handle, profiles: Iterable[Handle]
) -> Iterator[tuple[Handle, int, int]]:
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
