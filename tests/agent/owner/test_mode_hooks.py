"""Services that watch GPUs, while a GPU changes: stopped before, started after, never forgotten."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from agent.owner.cdi import Cdi
from agent.owner.hooks import ModeHooks
from agent.ports.gpu import GpuError
from devtools.simulated.device_nodes import SimulatedDeviceNodes
from devtools.simulated.programs import simulated_port
from tests.agent.builders import Rig, a_document, a_slice, a_whole


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    """A folder of the site's, whose programs write down what they were run for."""
    for event in ("release", "regain"):
        program = tmp_path / "hooks" / event / "services"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\necho "$GPU_HOOK $GPU_UUID" >> {tmp_path}/said\n')
        program.chmod(0o755)
    return tmp_path / "hooks"


def said(tmp_path: Path) -> list[str]:
    return (tmp_path / "said").read_text().splitlines()


def test_services_are_stopped_before_and_started_after(tmp_path: Path, hooks: Path) -> None:
    change = ModeHooks(hooks, tmp_path)
    with contextlib.suppress(GpuError), change("GPU-1"):
        assert said(tmp_path) == ["release GPU-1"]
        raise GpuError("in_use", "it did not work")
    assert said(tmp_path) == ["release GPU-1", "regain GPU-1"]
    ModeHooks(hooks, tmp_path)
    assert len(said(tmp_path)) == 2, "nothing was left stopped"


def test_two_gpus_at_a_time_have_them_stopped_once(tmp_path: Path, hooks: Path) -> None:
    change = ModeHooks(hooks, tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with change("GPU-2"):
            begun.set()
            go_on.wait(5)

    with change("GPU-1"):
        other_change = threading.Thread(target=other)
        other_change.start()
        begun.wait(5)
    assert said(tmp_path) == ["release GPU-1"], "the other change still runs"
    go_on.set()
    other_change.join()
    assert said(tmp_path) == ["release GPU-1", "regain GPU-2"]


def test_an_agent_that_was_killed_starts_them_in_its_next_life(tmp_path: Path, hooks: Path) -> None:
    killed = ModeHooks(hooks, tmp_path)("GPU-1")
    killed.__enter__()
    ModeHooks(hooks, tmp_path)
    assert said(tmp_path) == ["release GPU-1", "regain "]


def without(rig: Rig) -> None:
    """The agent's port, on a site that stops its services."""

    @contextlib.contextmanager
    def unwatched(_: str) -> Iterator[None]:
        for gpu in rig.hardware.gpus:
            for pid in [p.pid for p in gpu.processes.values() if p.service]:
                del gpu.processes[pid]
        yield

    rig.agent._applier._port = simulated_port(rig.hardware, unwatched)


def test_a_mode_changes_although_the_gpu_is_watched(rig: Rig) -> None:
    without(rig)
    rig.hardware.holder_start(rig.gpu, label="nv-hostengine", kind="file", service=True)
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    assert rig.sent.states() == {"a1": "ready"}


def test_a_slice_that_only_a_service_has_open_is_taken_away(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    (device,) = rig.sent.report().allocations[0].devices
    pid = rig.hardware.holder_start(device, label="nv-hostengine", kind="file", service=True)
    rig.desire(a_document({rig.gpu: [a_slice(state="release")]}, generation=2))
    (reported,) = rig.sent.report().allocations
    assert reported.state == "ending"
    assert f"nv-hostengine (pid {pid})" in (reported.error or "")
    without(rig)
    rig.later(5)
    assert rig.sent.states() == {"a1": "empty"}


def test_device_files_are_read_again_after_a_change(rig: Rig, tmp_path: Path) -> None:
    """The driver may give a GPU another minor number when it resets it."""
    assert isinstance(rig.node.bookings._cdi, Cdi)
    folder = tmp_path / "cdi"
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    assert '"/dev/nvidia0"' in next(folder.glob("*.json")).read_text()
    rig.desire(a_document({rig.gpu: [a_whole(state="release"), a_slice()]}, generation=2))
    rig.hardware.gpus[0].minor = 9
    back = [a_slice(state="release"), a_whole("w2")]
    rig.desire(a_document({rig.gpu: back}, generation=3, mode="whole"))
    assert rig.sent.states()["w2"] == "ready"
    assert '"/dev/nvidia9"' in next(folder.glob("*.json")).read_text()
    handle = pynvml.nvmlDeviceGetHandleByUUID(rig.gpu)
    assert pynvml.nvmlDeviceGetMinorNumber(handle) == 9
    assert SimulatedDeviceNodes(rig.hardware).of(rig.gpu) == ("/dev/nvidia9",)
