"""Modes that change by a reset: pending until then, never under a process, proven by reading."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

import wire
from agent.act.apply import LONGEST_PAUSE_S, STUCK_S
from agent.nvml.reset import gpu_reset
from agent.ports.gpu import GpuError, Place
from devtools.simulated.hardware import Gpu
from tests.agent.builders import NOW, Rig, a_document, a_rig, a_slice, a_whole


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Two A100s that stand whole."""
    with a_rig(tmp_path, simulate="a100:2") as rig:
        yield rig


def device(rig: Rig) -> Gpu:
    """The first GPU, as the hardware knows it."""
    return rig.hardware.gpus[0]


def said(rig: Rig) -> wire.ReportedGpu:
    """What the last report says of it."""
    return next(gpu for gpu in rig.sent.report().gpus if gpu.uuid == rig.gpu)


class TestHardware:
    """The simulated A100 behaves as NVML documents the real one."""

    def test_a_mode_is_pending_until_the_reset(self, rig: Rig) -> None:
        handle = pynvml.nvmlDeviceGetHandleByUUID(rig.gpu)
        enable = pynvml.NVML_DEVICE_MIG_ENABLE
        assert pynvml.nvmlDeviceSetMigMode(handle, enable) == pynvml.NVML_ERROR_RESET_REQUIRED
        assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 1]
        assert rig.node.port.truth(rig.gpu).pending == "sliced"
        rig.hardware.reset(rig.gpu)
        assert pynvml.nvmlDeviceGetMigMode(handle) == [1, 1]

    def test_under_a_process_the_mode_is_pending_and_no_reset_is_done(self, rig: Rig) -> None:
        rig.hardware.process_start(rig.gpu, label="x")
        handle = pynvml.nvmlDeviceGetHandleByUUID(rig.gpu)
        enable = pynvml.NVML_DEVICE_MIG_ENABLE
        assert pynvml.nvmlDeviceSetMigMode(handle, enable) == pynvml.NVML_ERROR_IN_USE
        assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 1]
        with pytest.raises(GpuError) as refused:
            rig.hardware.reset(rig.gpu)
        assert refused.value.fault == "in_use"

    def test_with_slices_the_mode_is_not_even_pending(self, tmp_path: Path) -> None:
        with a_rig(tmp_path, simulate="a100+mig:1") as rig:
            rig.node.port.create(rig.gpu, Place(14, 0, 2))
            with pytest.raises(GpuError) as refused:
                rig.node.port.set_mode(rig.gpu, "whole")
            assert refused.value.fault == "in_use"
            assert rig.node.port.truth(rig.gpu).pending is None


class TestPort:
    def test_the_mode_is_set_the_gpu_reset_and_the_mode_read_back(self, rig: Rig) -> None:
        rig.node.port.set_mode(rig.gpu, "sliced")
        assert rig.hardware.resets == [rig.gpu]
        assert rig.node.port.truth(rig.gpu) == dataclasses.replace(
            rig.node.port.truth(rig.gpu), mode="sliced", pending=None
        )

    def test_a_reset_that_changes_nothing_is_no_success(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rig.node.port, "_reset", lambda _: None)
        with pytest.raises(GpuError, match="still whole"):
            rig.node.port.set_mode(rig.gpu, "sliced")

    def test_a_process_that_came_meanwhile_keeps_the_reset_off(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_mode = pynvml.nvmlDeviceSetMigMode

        def and_then(handle: object, mode: int) -> int:
            outcome: int = set_mode(handle, mode)
            rig.hardware.process_start(rig.gpu, label="x")
            return outcome

        monkeypatch.setattr(pynvml, "nvmlDeviceSetMigMode", and_then)
        with pytest.raises(GpuError) as refused:
            rig.node.port.set_mode(rig.gpu, "sliced")
        assert (refused.value.fault, rig.hardware.resets) == ("in_use", [])


class TestAgent:
    def test_a_slice_of_a_gpu_that_stood_whole_is_ready_after_the_reset(self, rig: Rig) -> None:
        rig.desire(a_document({rig.gpu: [a_slice()]}))
        assert rig.hardware.resets == [rig.gpu]
        assert (rig.sent.states(), said(rig).mode) == ({"a1": "ready"}, "sliced")

    def test_the_mode_changes_before_anything_is_there(self, rig: Rig) -> None:
        rig.desire(a_document({rig.gpu: []}, mode="sliced"))
        assert (said(rig).mode, said(rig).pending, rig.instances()) == ("sliced", None, [])

    def test_a_whole_gpu_follows_slices_when_the_last_has_left(self, rig: Rig) -> None:
        rig.desire(a_document({rig.gpu: [a_slice(), a_slice("a2", slot=2)]}))
        left = [a_slice(state="release"), a_slice("a2", slot=2)]
        rig.desire(a_document({rig.gpu: [*left, a_whole()]}, generation=2, mode="whole"))
        assert len(rig.hardware.resets) == 1, "one slice is still there"
        assert rig.sent.states()["w1"] == "preparing"
        gone = [dataclasses.replace(each, state="release") for each in left]
        rig.desire(a_document({rig.gpu: [*gone, a_whole()]}, generation=3, mode="whole"))
        assert (len(rig.hardware.resets), rig.sent.states()["w1"]) == (2, "ready")

    def test_a_stranger_s_process_is_never_reset_away(self, rig: Rig) -> None:
        rig.hardware.process_start(rig.gpu, label="x")
        rig.desire(a_document({rig.gpu: [a_slice()]}))
        for _ in range(10):
            rig.later(STUCK_S / 5)
        assert (rig.hardware.resets, device(rig).mig) == ([], False)
        assert said(rig).stuck
        assert "process" in (said(rig).error or "")

    def test_what_fails_is_tried_ever_more_seldom_and_told_as_stuck(self, rig: Rig) -> None:
        rig.hardware.reset_fails = "no such luck"
        rig.desire(a_document({rig.gpu: [a_slice()]}))
        assert (said(rig).stuck, said(rig).pending) == (False, "sliced")
        assert "no such luck" in (said(rig).error or "")
        for _ in range(600):
            rig.later(1)
        assert said(rig).stuck
        assert 8 <= len(rig.hardware.resets) <= 6 + 600 / LONGEST_PAUSE_S
        rig.hardware.reset_fails = None
        rig.later(LONGEST_PAUSE_S)
        assert (said(rig).stuck, said(rig).error, said(rig).mode) == (False, None, "sliced")
        assert rig.sent.states() == {"a1": "ready"}

    @pytest.mark.parametrize("wanted", ["sliced", "whole"])
    def test_one_that_is_killed_between_setting_and_resetting_goes_on(
        self, tmp_path: Path, wanted: wire.Mode
    ) -> None:
        with a_rig(tmp_path, simulate="a100:1") as rig:
            rig.hardware.reset_fails = "killed here"
            rig.desire(a_document({rig.gpu: []}, mode="sliced"))
            assert (device(rig).mig, device(rig).pending_mig) == (False, True)
        with a_rig(tmp_path, simulate="a100:1", at=NOW + 5) as rig:
            assert device(rig).pending_mig, "the driver has kept it"
            rig.desire(a_document({rig.gpu: []}, mode=wanted, generation=2))
            assert (said(rig).mode, said(rig).pending) == (wanted, None)
            assert device(rig).pending_mig == (wanted == "sliced")

    def test_a_mode_that_is_only_pending_is_taken_back_when_nothing_is_there(self, rig: Rig) -> None:
        handle = pynvml.nvmlDeviceGetHandleByUUID(rig.gpu)
        pynvml.nvmlDeviceSetMigMode(handle, pynvml.NVML_DEVICE_MIG_ENABLE)
        rig.desire(a_document({rig.gpu: [a_whole()]}))
        assert rig.sent.states() == {"w1": "ready"}
        assert (device(rig).pending_mig, rig.hardware.resets) == (False, [])


def test_without_the_driver_s_program_a_reset_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpuError, match="no nvidia-smi"):
        gpu_reset("GPU-1")


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("echo 'GPU is currently in use by another process.'; exit 255", "in_use"),
        ("echo 'Resetting is not supported.'; exit 3", "reset_required"),
        ("exit 4", "reset_required"),
    ],
)
def test_the_driver_s_program_says_why_it_did_not_reset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, fault: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(GpuError, match="resetting the GPU") as refused:
        gpu_reset("GPU-1")
    assert refused.value.fault == fault


def test_it_names_the_gpu_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    gpu_reset("GPU-1")
    assert (tmp_path / "said").read_text() == "--gpu-reset -i GPU-1\n"
