"""Whether a GPU on NVSwitches has joined its fabric, through pynvml.

Until the fabric manager has registered it, CUDA fails on such a GPU: after a boot, and for some
seconds after a reset.
"""

import ctypes

import pynvml

from allocation.agent.nvml.calls import Handle, reading

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
