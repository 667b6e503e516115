"""Resets one GPU. NVML has no call for that; `nvidia-smi` asks the driver's kernel module."""

import shutil
import subprocess

from agent.ports.gpu import Fault, GpuError

RESET_S = 90.0
_DOING = "resetting the GPU"


def gpu_reset(gpu: str) -> None:
    """Resets the GPU of this UUID; whatever is on it is gone. Raises GpuError when it was not."""
    command = shutil.which("nvidia-smi")
    if command is None:
        raise GpuError("reset_required", f"{_DOING}: there is no nvidia-smi here")
    try:
        done = subprocess.run(  # noqa: S603 - a program of the driver with a UUID that NVML gave
            [command, "--gpu-reset", "-i", gpu],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RESET_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuError("reset_required", f"{_DOING}: {error}") from error
    if done.returncode:
        said = " ".join(done.stdout.decode(errors="replace").split())[:200]
        fault: Fault = "in_use" if "in use" in said.lower() else "reset_required"
        raise GpuError(fault, f"{_DOING}: {said or f'status {done.returncode}'}")
