"""NVML calls that the driver may refuse, and the meaning of refusals."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import pynvml

from agent.ports.gpu import Fault, GpuError

Handle: TypeAlias = Any
"""An opaque pointer of pynvml, which has no types."""

REFUSALS = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)
"""What pynvml raises when the driver refuses; the second one where a function is missing."""

_ABSENT = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NO_PERMISSION,
    }
)
_GONE = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_GPU_NOT_FOUND})

_FAULTS: dict[int, Fault] = {
    pynvml.NVML_ERROR_IN_USE: "in_use",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "no_room",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "invalid",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "unsupported",
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "lost",
    pynvml.NVML_ERROR_NOT_FOUND: "lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset_required",
}
FAULT_TEXTS: dict[Fault, str] = {
    "in_use": "a process still uses it",
    "no_room": "another slice is in the way",
    "invalid": "the driver knows no such place",
    "unsupported": "this GPU can't do it",
    "lost": "the GPU is not there",
    "reset_required": "the GPU must be reset first",
}


def code_of(error: Exception) -> int:
    """Returns the NVML code of a refusal."""
    if isinstance(error, pynvml.NVMLError):
        return int(error.value)
    return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def refused(error: Exception, doing: str) -> GpuError:
    """Returns the refusal as an error of the port."""
    fault = _FAULTS.get(code_of(error), "driver")
    return GpuError(fault, f"{doing}: {FAULT_TEXTS.get(fault, str(error))}")


def optional(call: Callable[..., Any], *args: object) -> Handle:
    """Returns the value, or None where this GPU or this driver does not have it."""
    return _unless(lambda code: code in _ABSENT, call, *args)


def indexed(call: Callable[..., Any], *args: object) -> Handle:
    """Returns the value, or None where there is nothing under this index. A driver that is older
    than the binding does not know its higher indexes, and calls them invalid arguments."""
    absent = _ABSENT | {pynvml.NVML_ERROR_INVALID_ARGUMENT}
    return _unless(lambda code: code in absent, call, *args)


def reading(call: Callable[..., Any], *args: object) -> Handle:
    """Returns a measurement, or None if unavailable. Only a lost GPU raises."""
    return _unless(lambda code: code not in _GONE, call, *args)


def attempt(call: Callable[..., Any], *args: object) -> Handle:
    """Returns the value, or None after any refusal."""
    return _unless(lambda _: True, call, *args)


def with_retry(call: Callable[..., Any], *args: object) -> Handle:
    """Returns the value, or None after two refusals: one lost answer must not change the
    inventory."""
    for _ in range(2):
        with contextlib.suppress(*REFUSALS):
            return call(*args)
    return None


def _unless(absent: Callable[[int], bool], call: Callable[..., Any], *args: object) -> Handle:
    try:
        return call(*args)
    except REFUSALS as error:
        if absent(code_of(error)):
            return None
        raise


def field_value(handle: Handle, field: int) -> int | None:
    """Returns an unsigned field of the GPU, None if unavailable."""
    values = attempt(pynvml.nvmlDeviceGetFieldValues, handle, [field])
    if values is None or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)
