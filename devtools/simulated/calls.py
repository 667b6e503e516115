"""Helpers of simulated C functions: error codes for exceptions, numbers for pointers."""

import collections
import ctypes
import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pynvml

from devtools.simulated.hardware import Gpu, Hardware, Instance
from devtools.simulated.models import HardwareFault

CData: TypeAlias = Any
"""What pynvml passes: handles, byref() results, arrays and buffers. pynvml has no types."""

Key = tuple[str, str, int]


def symbol(method: Callable[..., None]) -> Callable[..., int]:
    """A C function: returns an NVML code. A planted fault is returned in place of the call."""

    @functools.wraps(method)
    def call(self: "Calls", *args: CData) -> int:
        delay = self.delays.get(method.__name__)
        if delay:
            threading.Event().wait(delay)
        planted = self.faults[method.__name__]
        if planted:
            return int(getattr(pynvml, planted.popleft()))
        instead = None if self.noise is None else self.noise(method.__name__)
        if instead is not None:
            return instead
        try:
            method(self, *args)
        except HardwareFault as fault:
            return int(getattr(pynvml, fault.symbol))
        return int(pynvml.NVML_SUCCESS)

    return call


def target(ref: CData) -> CData:
    return getattr(ref, "_obj", ref)


def text_write(buffer: CData, text: str, length: CData) -> None:
    raw = text.encode()
    if len(raw) + 1 > length.value:
        raise HardwareFault("NVML_ERROR_INSUFFICIENT_SIZE")
    buffer.value = raw


class Calls:
    """The handles of one simulated node. `faults` maps a symbol to error codes to return, `delays`
    to the seconds that it takes. `noise` may give a code to return in place of any call."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.delays: dict[str, float] = {}
        self.noise: Callable[[str], int | None] | None = None
        self.faults: dict[str, collections.deque[str]] = collections.defaultdict(collections.deque)
        self._hanging: dict[str, threading.Event] = {}
        self._handles: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._fresh = itertools.count(0x1000)

    def hang(self, gpu: str) -> None:
        """Makes calls about this GPU (by UUID) hang."""
        self._hanging.setdefault(gpu, threading.Event())

    def answer(self, gpu: str) -> None:
        """Ends the hang: pending and new calls return."""
        hanging = self._hanging.pop(gpu, None)
        if hanging is not None:
            hanging.set()

    def _number(self, key: Key) -> int:
        if key not in self._handles:
            self._handles[key] = next(self._fresh)
            self._keys[self._handles[key]] = key
        return self._handles[key]

    def _give(self, ref: CData, key: Key) -> None:
        ctypes.c_void_p.from_address(ctypes.addressof(target(ref))).value = self._number(key)

    def _give_all(self, array: CData, count: CData, keys: list[Key]) -> None:
        slots = (ctypes.c_void_p * len(keys)).from_address(ctypes.addressof(target(array)))
        for i, key in enumerate(keys):
            slots[i] = self._number(key)
        target(count).value = len(keys)

    def _key(self, handle: CData, *kinds: str) -> Key:
        number = ctypes.cast(handle, ctypes.c_void_p).value
        key = self._keys.get(number or 0)
        if key is None or key[0] not in kinds:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        return key

    def _gpu(self, handle: CData, *kinds: str) -> Gpu:
        gpu = self.hardware.gpu(self._key(handle, *(kinds or ("gpu",)))[1])
        hanging = self._hanging.get(gpu.uuid)
        if hanging is not None:
            hanging.wait()
        if gpu.lost:
            raise HardwareFault("NVML_ERROR_GPU_IS_LOST")
        return gpu

    def _instance(self, handle: CData, *kinds: str) -> tuple[Gpu, Instance]:
        gpu = self._gpu(handle, *kinds)
        instance = gpu.instances.get(self._key(handle, *kinds)[2])
        if instance is None:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        return gpu, instance

    def _device(self, handle: CData) -> tuple[Gpu, Instance | None]:
        if self._key(handle, "gpu", "mig")[0] == "mig":
            return self._instance(handle, "mig")
        return self._gpu(handle), None
