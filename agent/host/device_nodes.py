"""Device files of GPUs and slices, from the driver and from /proc."""

import re
from pathlib import Path

import pynvml

from agent.ports.gpu import GpuError

_COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_CAPABILITIES = Path("/proc/driver/nvidia/capabilities")


class DriverDeviceNodes:
    """See cdi.DeviceNodes. Works only between nvmlInit and nvmlShutdown."""

    def __init__(self, capabilities: Path = _CAPABILITIES) -> None:
        self._capabilities = capabilities

    def common(self) -> tuple[str, ...]:
        """Returns the files that every program needs, if they exist."""
        return tuple(path for path in _COMMON if Path(path).exists())

    def of(self, device: str) -> tuple[str, ...]:
        """Returns the file of a whole GPU; for a slice also those of its two capabilities."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(device)
            if not device.startswith("MIG-"):
                return (f"/dev/nvidia{pynvml.nvmlDeviceGetMinorNumber(handle)}",)
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            minor = pynvml.nvmlDeviceGetMinorNumber(parent)
            instance = pynvml.nvmlDeviceGetGpuInstanceId(handle)
            compute = pynvml.nvmlDeviceGetComputeInstanceId(handle)
        except pynvml.NVMLError as error:
            raise GpuError("driver", f"reading the device files of {device}: {error}") from error
        slice_ = self._capabilities / f"gpu{minor}" / "mig" / f"gi{instance}"
        caps = (slice_ / "access", slice_ / f"ci{compute}" / "access")
        return (f"/dev/nvidia{minor}", *(_capability(path) for path in caps))


def _capability(path: Path) -> str:
    """Returns the device file of a capability; its minor number is in /proc."""
    found = re.search(r"^DeviceFileMinor:\s*(\d+)$", path.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{path} names no device file")
    return f"/dev/nvidia-caps/nvidia-cap{found[1]}"
