"""Device files of real devices, from the driver and /proc."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from agent.host.device_nodes import DriverDeviceNodes
from agent.owner.cdi import driver_edits
from agent.ports.gpu import GpuError


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU 3 with instance 5 and its compute instance 0, as NVML answers for them."""
    answers: dict[str, Callable[..., Any]] = {
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda _: "GPU-x",
        "nvmlDeviceGetMinorNumber": lambda handle: {"GPU-x": 3}[handle],
        "nvmlDeviceGetGpuInstanceId": lambda _: 5,
        "nvmlDeviceGetComputeInstanceId": lambda _: 0,
    }
    for name, answer in answers.items():
        assert hasattr(pynvml, name)
        monkeypatch.setattr(pynvml, name, answer)


def a_capability(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "access").write_text(text)


def test_a_whole_gpu_has_one_door(driver: None, tmp_path: Path) -> None:
    assert DriverDeviceNodes(tmp_path).of("GPU-x") == ("/dev/nvidia3",)


def test_a_slice_has_its_gpus_door_and_those_of_its_two_capabilities(driver: None, tmp_path: Path) -> None:
    text = "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
    slice_ = tmp_path / "gpu3" / "mig" / "gi5"
    a_capability(slice_, text.format(48))
    a_capability(slice_ / "ci0", text.format(49))
    assert DriverDeviceNodes(tmp_path).of("MIG-x") == (
        "/dev/nvidia3",
        "/dev/nvidia-caps/nvidia-cap48",
        "/dev/nvidia-caps/nvidia-cap49",
    )


def test_a_slice_without_capabilities_is_never_a_whole_gpu_instead(driver: None, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="access"):
        DriverDeviceNodes(tmp_path).of("MIG-x")
    a_capability(tmp_path / "gpu3" / "mig" / "gi5", "nonsense\n")
    with pytest.raises(OSError, match=r"access"):
        DriverDeviceNodes(tmp_path).of("MIG-x")


def test_a_driver_that_does_not_answer_is_a_fault_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lost(_: str) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lost)
    with pytest.raises(GpuError, match="GPU-x"):
        DriverDeviceNodes(tmp_path).of("GPU-x")


@pytest.mark.parametrize(
    ("program", "edits"),
    [
        ('echo \'{"containerEdits": {"mounts": []}}\'', {"mounts": []}),
        ("echo '{}'", {}),
        ("echo '[]'", {}),
        ("echo no JSON", {}),
        ("exit 1", {}),
        (None, {}),
    ],
    ids=["a value", "no value", "a list", "no JSON", "fails", "is not there"],
)
def test_the_drivers_libraries_are_what_the_toolkit_tells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None, edits: dict[str, Any]
) -> None:
    if program is not None:
        path = tmp_path / "nvidia-ctk"
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    assert driver_edits() == edits
