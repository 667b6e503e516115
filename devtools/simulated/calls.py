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
    def call(self: "Symbols", *args: CData) -> int:
        calls = self.calls
        delay = calls.delays.get(method.__name__)
        if delay:
            threading.Event().wait(delay)
        planted = calls.faults[method.__name__]
        if planted:
            return int(getattr(pynvml, planted.popleft()))
        instead = None if calls.noise is None else calls.noise(method.__name__)
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
        self._numbers = itertools.count(0x1000)

    def hang(self, gpu: str) -> None:
        """Makes calls about this GPU (by UUID) hang."""
        self._hanging.setdefault(gpu, threading.Event())

    def answer(self, gpu: str) -> None:
        """Ends the hang: pending and new calls return."""
        hanging = self._hanging.pop(gpu, None)
        if hanging is not None:
            hanging.set()

    def fresh(self) -> int:
        """Returns a number that no handle has."""
        return next(self._numbers)

    def forget(self, key: Key) -> None:
        """Makes a handle invalid."""
        del self._keys[self._handles.pop(key)]

    def number(self, key: Key) -> int:
        if key not in self._handles:
            self._handles[key] = self.fresh()
            self._keys[self._handles[key]] = key
        return self._handles[key]

    def give(self, ref: CData, key: Key) -> None:
        ctypes.c_void_p.from_address(ctypes.addressof(target(ref))).value = self.number(key)

    def give_all(self, array: CData, count: CData, keys: list[Key]) -> None:
        slots = (ctypes.c_void_p * len(keys)).from_address(ctypes.addressof(target(array)))
        for i, key in enumerate(keys):
            slots[i] = self.number(key)
        target(count).value = len(keys)

    def key(self, handle: CData, *kinds: str) -> Key:
        number = ctypes.cast(handle, ctypes.c_void_p).value
        key = self._keys.get(number or 0)
        if key is None or key[0] not in kinds:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        return key

    def gpu(self, handle: CData, *kinds: str) -> Gpu:
        gpu = self.hardware.gpu(self.key(handle, *(kinds or ("gpu",)))[1])
        hanging = self._hanging.get(gpu.uuid)
        if hanging is not None:
            hanging.wait()
        if gpu.lost:
            raise HardwareFault("NVML_ERROR_GPU_IS_LOST")
        return gpu

    def instance(self, handle: CData, *kinds: str) -> tuple[Gpu, Instance]:
        gpu = self.gpu(handle, *kinds)
        instance = gpu.instances.get(self.key(handle, *kinds)[2])
        if instance is None:
            raise HardwareFault("NVML_ERROR_INVALID_ARGUMENT")
        return gpu, instance

    def device(self, handle: CData) -> tuple[Gpu, Instance | None]:
        if self.key(handle, "gpu", "mig")[0] == "mig":
            return self.instance(handle, "mig")
        return self.gpu(handle), None


class Symbols:
    """C functions about one subject. Handles, planted faults and the hardware are those of `calls`."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
