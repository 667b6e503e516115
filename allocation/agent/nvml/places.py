"""Where slices may lie, as the driver says it and as messages say it.

Messages have at most `wire.SLOTS` memory slots to a GPU. Some drivers number more and give them out
in steps only: of twelve, slices take three, six or all. One slot of a message is then one step.
"""

import ctypes
from collections.abc import Iterable, Iterator
from math import gcd

import pynvml

from allocation import wire
from allocation.agent.nvml.calls import Handle, indexed


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
    """Returns how many of the driver's slots are one of a message; 1 where nothing is told."""
    places = [(start, size, profile.sliceCount) for profile, start, size in placements]
    if max((start + size for start, size, _ in places), default=0) <= wire.SLOTS:
        return 1
    # With the slots of one compute slice, so that a part of the answers gives the same step.
    slices = (size // compute for _, size, compute in places if compute)
    return gcd(*(number for start, size, _ in places for number in (start, size)), *slices) or 1
