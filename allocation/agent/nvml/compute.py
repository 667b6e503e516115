"""Compute instances: what makes a GPU instance usable, through pynvml."""

import ctypes
from collections.abc import Iterator

import pynvml

from allocation.agent.nvml.calls import REFUSALS, Handle, code_of, indexed

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
