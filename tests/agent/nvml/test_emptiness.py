"""Empty means empty: programs that NVML's list of compute programs does not have."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

import wire
from agent.host.machine import process_signal
from agent.host.open_files import HostOpenFiles
from agent.nvml.processes import lists_scrambled
from agent.ports.gpu import GpuError
from agent.ports.programs import HostPrograms
from devtools.simulated.processes import Kind
from tests.agent.builders import Rig, a_document, a_rig, a_slice, a_whole

GARBAGE = 0xFFFFFFFF
KINDS: tuple[Kind, ...] = ("graphics", "mps", "file")


def reported(rig: Rig, name: str) -> wire.ReportedAllocation:
    return next(each for each in rig.sent.report().allocations if each.id == name)


def listed_as(rig: Rig, pid: int, number: int) -> None:
    """The driver reports a program under another number."""
    processes = rig.hardware.gpus[0].processes
    processes[number] = dataclasses.replace(processes.pop(pid), pid=number)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_that_somebody_has_open_is_not_handed_over(rig: Rig, kind: Kind) -> None:
    pid = rig.hardware.holder_start(rig.gpu, label="vkcube", kind=kind, user="eve")
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    assert reported(rig, "w1").state == "preparing"
    assert f"vkcube (pid {pid})" in (reported(rig, "w1").error or "")
    assert [item.users for item in rig.sent.report().foreign] == [("eve",)]
    rig.hardware.process_signal(pid, force=True)
    rig.later(5)
    assert rig.sent.states() == {"w1": "ready"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_is_proven_only_when_the_last_has_let_go(rig: Rig, kind: Kind) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    rig.hardware.holder_start(rig.gpu, label="w1", kind=kind, user="ada")
    stays = rig.hardware.holder_start(rig.gpu, label="w1", kind=kind, user="ada")
    stubborn = dataclasses.replace(rig.hardware.gpus[0].processes[stays], stubborn=True)
    rig.hardware.gpus[0].processes[stays] = stubborn
    rig.desire(a_document({rig.gpu: [a_whole(state="release")]}, generation=2))
    assert set(rig.hardware.gpus[0].processes) == {stays}
    assert rig.sent.states() == {"w1": "ending"}
    rig.later(11)
    assert rig.sent.states() == {"w1": "empty"}
    assert rig.hardware.gpus[0].processes == {}


def test_memory_that_stays_in_use_is_no_empty_gpu(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    rig.hardware.gpus[0].leaked_mb = 9_000
    rig.desire(a_document({rig.gpu: [a_whole(state="release")]}, generation=2))
    assert reported(rig, "w1").state == "ending"
    assert "9000 MiB" in (reported(rig, "w1").error or "")
    rig.desire(a_document({rig.gpu: [a_whole("w2", booking="BK-8")]}, generation=3))
    assert rig.sent.states() == {"w1": "ending", "w2": "preparing"}
    rig.hardware.gpus[0].leaked_mb = 20
    rig.later(5)
    assert rig.sent.states() == {"w1": "empty", "w2": "ready"}


def test_a_service_keeps_nobody_from_a_gpu_and_is_named_when_it_is_in_the_way(rig: Rig) -> None:
    pid = rig.hardware.holder_start(rig.gpu, label="nv-hostengine", kind="file", service=True)
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    assert rig.sent.states() == {"w1": "ready"}
    assert rig.sent.report().foreign == ()
    rig.desire(a_document({rig.gpu: [a_whole(state="release"), a_slice()]}, generation=2))
    assert rig.sent.states() == {"w1": "empty", "a1": "preparing"}
    gpu = next(gpu for gpu in rig.sent.report().gpus if gpu.uuid == rig.gpu)
    assert f"nv-hostengine (pid {pid})" in (gpu.error or "")
    assert pid in rig.hardware.gpus[0].processes, "who watches is not ended"
    rig.hardware.process_signal(pid, force=True)
    rig.later(60)
    assert rig.sent.states()["a1"] == "ready"


def test_a_program_without_a_context_keeps_its_slice(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice("a1"), a_slice("a2", slot=2, booking="BK-9")]}))
    device = reported(rig, "a1").devices[0]
    pid = rig.hardware.holder_start(device, label="a1", kind="file", user="ada")
    counts = {i.place.slot: i.processes for i in rig.node.port.truth(rig.gpu).instances}
    assert counts == {0: 1, 2: 0}
    released = a_slice("a1", state="release")
    others = a_slice("a2", slot=2, booking="BK-9")
    rig.desire(a_document({rig.gpu: [released, others]}, generation=2))
    assert pid not in rig.hardware.gpus[0].processes
    assert rig.sent.states() == {"a1": "empty", "a2": "ready"}


def test_wrong_process_ids_are_refused_by_the_driver_s_version(tmp_path: Path) -> None:
    with a_rig(tmp_path, driver="535.54") as rig:
        rig.desire(a_document({rig.gpu: [a_whole()]}))
        pids = [rig.hardware.process_start(rig.gpu, label="w1") for _ in range(3)]
        assert rig.node.port.pids(rig.gpu, None) == tuple(pids)
        # Two of the driver's three are no process ids.
        assert rig.node.port.truth(rig.gpu).processes == 3
        rig.desire(a_document({rig.gpu: [a_whole(state="release")]}, generation=2))
        assert rig.sent.states() == {"w1": "empty"}


@pytest.mark.parametrize(
    ("version", "scrambled"),
    [
        ("535.43.02", True),
        ("535.54.03", True),
        ("535.98", True),
        ("535.104.05", False),
        ("530.30.02", False),
        ("550.54.15", False),
        ("unknown", False),
    ],
)
def test_which_drivers_answer_wrong_process_ids(version: str, *, scrambled: bool) -> None:
    assert lists_scrambled(version) is scrambled


@pytest.mark.parametrize("number", [0, GARBAGE])
def test_what_has_no_process_id_here_is_counted_and_never_signalled(rig: Rig, number: int) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    listed_as(rig, rig.hardware.process_start(rig.gpu, label="w1"), number)
    assert rig.node.port.truth(rig.gpu).processes == 1
    rig.desire(a_document({rig.gpu: [a_whole(state="release")]}, generation=2))
    rig.later(11)
    assert rig.sent.states() == {"w1": "ending"}
    assert set(rig.hardware.gpus[0].processes) == {number}


def test_a_listed_program_that_does_not_have_the_device_open_is_left_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    listed = rig.hardware.process_start(rig.gpu, label="w1")
    files = rig.node.port._processes._files  # type: ignore[attr-defined]
    seen = files.openers()
    assert {opener.pid for opener in seen.of("/dev/nvidia0")} == {listed}
    monkeypatch.setattr(files, "openers", lambda: dataclasses.replace(seen, by_file={}))
    assert rig.node.port.pids(rig.gpu, None) == ()
    assert rig.node.port.truth(rig.gpu).processes == 1
    rig.node.port.end_processes(rig.gpu, None, force=True)
    assert listed in rig.hardware.gpus[0].processes
    # Whose open files can't be read may be the one.
    hidden = dataclasses.replace(seen, by_file={}, hidden=frozenset({listed}))
    monkeypatch.setattr(files, "openers", lambda: hidden)
    assert rig.node.port.pids(rig.gpu, None) == (listed,)


@pytest.mark.parametrize("pid", [0, 1, -1, GARBAGE, 2**22 + 1])
def test_no_signal_goes_to_a_number_that_is_no_program_s(pid: int) -> None:
    programs = HostPrograms()
    process_signal(pid, force=True)
    programs.ask(pid, "birth")
    programs.kill(pid, "birth")
    assert not programs.warn(pid, 10)


def test_the_open_files_of_real_programs_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "nvidia0"
    file.touch()
    with file.open() as opened, subprocess.Popen(["sleep", "60"], stdin=opened) as program:
        try:
            (found,) = HostOpenFiles().openers().of("/dev/nvidia0")
            service = HostOpenFiles(services=frozenset({"sleep"})).openers().of("/dev/nvidia0")
        finally:
            program.kill()
    assert (found.pid, found.name, found.service) == (program.pid, "sleep", False)
    # Only of the system's own accounts: anybody may call a program so.
    assert {each.service for each in service} == {os.getuid() < 1000}


def test_a_look_at_open_files_serves_a_whole_turn_and_no_longer(tmp_path: Path) -> None:
    clock = [0.0]
    files = HostOpenFiles(tmp_path, steady=lambda: clock[0])
    folder = tmp_path / "4711" / "fd"
    folder.mkdir(parents=True)
    (tmp_path / "4711" / "comm").write_text("python3\n")
    assert files.openers().of("/dev/nvidia1") == frozenset()
    (folder / "3").symlink_to("/dev/nvidia1")
    (folder / "4").symlink_to("/dev/nvidiactl")
    assert files.openers().of("/dev/nvidia1") == frozenset()
    clock[0] = 0.25
    assert [str(each) for each in files.openers().of("/dev/nvidia1")] == ["python3 (pid 4711)"]
    assert set(files.openers().by_file) == {"nvidia1"}


def test_a_gpu_in_use_is_not_taken_and_says_by_whom(rig: Rig) -> None:
    pid = rig.hardware.process_start(rig.gpu, label="python3")
    with pytest.raises(GpuError, match=rf"python3 \(pid {pid}\)"):
        rig.node.port.set_mode(rig.gpu, "sliced")


def test_while_the_device_file_is_not_known_nothing_is_proven(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    rig.hardware.holder_start(rig.gpu, label="w1", kind="file")
    processes = rig.node.port._processes  # type: ignore[attr-defined]

    def refuses(_: str) -> tuple[str, ...]:
        raise GpuError("driver", "reading the device files: Timeout")

    with monkeypatch.context() as patch:
        patch.setattr(processes, "_paths_of", refuses)
        rig.desire(a_document({rig.gpu: [a_whole(state="release")]}, generation=2))
        assert rig.node.port.truth(rig.gpu).processes is None
        assert rig.sent.states() == {"w1": "ending"}
    rig.later(5)
    assert rig.sent.states() == {"w1": "empty"}
