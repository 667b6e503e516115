"""The library `amdsmi`, which is only imported on nodes that have AMD's GPUs, and what its refusals mean.

Each ROCm brings the version that fits its driver, so the agent takes the one of the node. It is asked for few
things, and all of them are named here.
"""

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from agent.ports.gpu import Fault, GpuError

Handle: TypeAlias = Any
"""An opaque pointer of amdsmi, or what it answers: it has no types."""


Smi: TypeAlias = Any
"""The module, which has no types. Every call may raise its `AmdSmiException`."""

NAMES = (
    "AmdSmiException",
    "AmdSmiClkType",
    "AmdSmiComputePartitionType",
    "AmdSmiLinkType",
    "AmdSmiMemoryType",
    "AmdSmiTemperatureMetric",
    "AmdSmiTemperatureType",
    "amdsmi_init",
    "amdsmi_shut_down",
    "amdsmi_get_processor_handles",
    "amdsmi_get_gpu_device_bdf",
    "amdsmi_get_gpu_device_uuid",
    "amdsmi_get_gpu_asic_info",
    "amdsmi_get_gpu_enumeration_info",
    "amdsmi_get_gpu_kfd_info",
    "amdsmi_get_gpu_driver_info",
    "amdsmi_get_gpu_compute_partition",
    "amdsmi_set_gpu_compute_partition",
    "amdsmi_get_gpu_memory_partition",
    "amdsmi_get_gpu_accelerator_partition_profile_config",
    "amdsmi_get_gpu_process_list",
    "amdsmi_get_gpu_memory_total",
    "amdsmi_get_gpu_memory_usage",
    "amdsmi_get_gpu_vram_usage",
    "amdsmi_get_gpu_activity",
    "amdsmi_get_power_info",
    "amdsmi_get_energy_count",
    "amdsmi_get_temp_metric",
    "amdsmi_get_clock_info",
    "amdsmi_get_gpu_total_ecc_count",
    "amdsmi_topo_get_link_type",
)
"""All that the agent uses of the module."""

# Numbers of `amdsmi_status_t`.
_INVALID, _UNSUPPORTED, _NOT_YET, _NO_PERMISSION, _BUSY, _NOT_FOUND = 1, 2, 3, 10, 30, 31
_FAULTS: dict[int | None, Fault] = {
    _INVALID: "invalid",
    _UNSUPPORTED: "unsupported",
    _NOT_YET: "unsupported",
    _BUSY: "in_use",
    _NOT_FOUND: "lost",
}
_TEXTS: dict[int | None, str] = {
    _INVALID: "the driver takes no such value",
    _UNSUPPORTED: "this GPU can't do it",
    _NOT_YET: "this GPU can't do it",
    _NO_PERMISSION: "only root may do it",
    _BUSY: "a process still uses it",
    _NOT_FOUND: "the GPU is not there",
}


def library_load(load: Callable[[str], Any] = importlib.import_module) -> Smi:
    """Returns the module `amdsmi` of this node. Raises GpuError."""
    try:
        smi: Smi = load("amdsmi")
    except ModuleNotFoundError as error:
        raise GpuError("driver", f"{error}: install the Python library of this node's ROCm") from error
    except (ImportError, OSError, LookupError, AttributeError) as error:
        # It looks for `libamd_smi.so` while it is imported, and for each of its symbols.
        raise GpuError("driver", f"amdsmi does not find its libamd_smi.so: {error}") from error
    missing = [name for name in NAMES if not hasattr(smi, name)]
    if missing:
        raise GpuError("driver", f"this amdsmi is older than ROCm 6.4: it has no {missing[0]}")
    return smi


def code_of(error: Exception) -> int | None:
    """Returns the number of a refusal; None where the library itself has refused."""
    code = getattr(error, "err_code", None)
    return int(code) if isinstance(code, int) else None


def refused(error: Exception, doing: str) -> GpuError:
    """Returns the refusal as an error of the port."""
    code = code_of(error)
    text = _TEXTS.get(code) or " ".join(str(error).split())
    return GpuError(_FAULTS.get(code, "driver"), f"{doing}: {text}")


def attempt(smi: Smi, call: Callable[..., Any], *args: object) -> Handle:
    """Returns the value, or None after any refusal."""
    try:
        return call(*args)
    except smi.AmdSmiException:
        return None


def number(value: object) -> int | None:
    """Returns a whole number; None for what the library calls `N/A`, and where it had no answer."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
