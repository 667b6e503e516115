"""Programs that are suspended at a pause and resume when their booking returns."""

import dataclasses
from pathlib import Path

import pytest

import wire
from agent.act.endings import KILL_AFTER_NOTICE_S
from agent.ports.gpu import Truth
from agent.ports.suspender import LIMIT_S, CudaCheckpoint
from agent.state import store
from devtools.simulated.hardware import Hardware
from devtools.simulated.programs import SimulatedSuspender, program, program_toggle
from tests.agent.builders import HOUR, NODE, NOW, Rig, a_document, a_rig, a_slice, a_whole, noticed

FREEZE = noticed(a_whole(), method="suspend")


def back(name: str = "w2", resumes: str = "w1") -> wire.DesiredAllocation:
    """The booking after its pause."""
    wanted = a_whole(name, starts=NOW + 200, ends=NOW + HOUR)
    return dataclasses.replace(wanted, resumes=resumes)


class Slow(SimulatedSuspender):
    """Takes until `done` is called; may fail."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        self.hardware = hardware
        self.under_way: dict[int, bool] = {}
        self.calls: list[int] = []
        self.error: str | None = None

    def suspend(self, pid: int) -> None:
        self.calls.append(pid)
        self.under_way[pid] = True

    def resume(self, pid: int, *, there: bool) -> None:
        if self.is_locked(pid):
            self.calls.append(pid)
        self.under_way[pid] = False

    def is_locked(self, pid: int) -> bool:
        """Whether there is something to be woken."""
        process = program(self.hardware, pid)
        return process is not None and process.locked

    def busy(self, pid: int) -> bool:
        return pid in self.under_way

    def result(self, pid: int) -> str | None:
        return None if pid in self.under_way else self._results.get(pid)

    def done(self) -> None:
        under_way, self.under_way = self.under_way, {}
        for pid, freezes in under_way.items():
            if self.error is not None:
                self._results[pid] = self.error
            elif freezes:
                CudaCheckpoint.suspend(self, pid)
            else:
                CudaCheckpoint.resume(self, pid, there=True)


def found(rig: Rig, name: str = "w1") -> wire.ReportedAllocation:
    (one,) = [each for each in rig.sent.report().allocations if each.id == name]
    return one


def runs(rig: Rig, *wanted: wire.DesiredAllocation, stubborn: bool = False) -> int:
    """A booking with a program, then its notice. Returns the program's id."""
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    pid = rig.hardware.process_start(rig.gpu, label="w1", stubborn=stubborn)
    rig.later(1)
    rig.desire(a_document({rig.gpu: list(wanted) or [FREEZE]}, generation=2))
    return pid


def slow(rig: Rig) -> Slow:
    suspender = rig.node.suspender
    assert isinstance(suspender, Slow)
    return suspender


def finish(rig: Rig, seconds: float = 0.25) -> None:
    """What is under way comes to its end while the agent waits for it."""
    rig.agent.wait_s()
    slow(rig).done()
    rig.later(seconds)


def test_at_the_deadline_a_program_is_frozen_and_its_device_is_proven_empty(rig: Rig) -> None:
    pid = runs(rig)
    rig.later(119)
    assert (found(rig).state, found(rig).suspended, found(rig).error) == ("empty", True, None)
    assert rig.hardware.gpus[0].processes[pid].frozen
    assert rig.hardware.memory_used(rig.hardware.gpus[0]) == rig.hardware.gpus[0].model.reserved_mb


def test_somebody_else_has_the_gpu_in_between_and_then_the_program_goes_on(rig: Rig) -> None:
    pid = runs(rig)
    rig.later(119)
    guest = a_whole("g1", booking="BK-9", starts=NOW + 120, ends=NOW + 180)
    rig.desire(a_document({rig.gpu: [guest]}, generation=3))
    assert rig.sent.states()["g1"] == "ready"
    rig.later(60)
    rig.later(20)
    rig.desire(a_document({rig.gpu: [back()]}, generation=4))
    assert (found(rig, "w2").state, found(rig, "w2").error) == ("ready", None)
    assert not rig.hardware.gpus[0].processes[pid].frozen
    assert rig.node.store.suspended == {}


def test_it_goes_on_after_the_agent_was_away_during_the_pause(tmp_path: Path) -> None:
    with a_rig(tmp_path) as rig:
        pid = runs(rig)
        rig.later(119)
    with a_rig(tmp_path, at=NOW + 200) as rig:
        rig.desire(a_document({rig.gpu: [back()]}, generation=3))
        assert not rig.hardware.gpus[0].processes[pid].frozen
        assert found(rig, "w2").state == "ready"


def test_a_booking_that_has_no_program_is_simply_empty(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [FREEZE]}))
    rig.later(120)
    assert (found(rig).state, found(rig).suspended) == ("empty", False)


@pytest.mark.parametrize("case", ["a gang", "a slice", "no cuda-checkpoint", "an old driver", "no memory"])
def test_what_can_not_be_suspended_is_stopped_and_says_why(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {
        "a gang": "it runs on several nodes",
        "a slice": "only a whole GPU can be suspended",
        "no cuda-checkpoint": "this node has no cuda-checkpoint",
        "an old driver": "driver 535.183.06 can't suspend programs, 550 or later can",
        "no memory": "the host has 10 MiB of memory left",
    }
    monkeypatch.setattr(SimulatedSuspender, "available_mb", lambda _: 10 if case == "no memory" else None)
    members = (wire.Member(node=NODE, devices=1), wire.Member(node="node-2", devices=1))
    gang = wire.Gang(tenant="biology", booking="BK-7", members=members)
    suspender = (lambda _: None) if case == "no cuda-checkpoint" else SimulatedSuspender
    driver = "535" if case == "an old driver" else "580"
    with a_rig(tmp_path, suspender=suspender, driver=driver) as rig:
        plain = a_slice("w1", booking="BK-7") if case == "a slice" else a_whole()
        gangs = (gang,) if case == "a gang" else ()
        rig.desire(a_document({rig.gpu: [plain]}, gangs=gangs))
        rig.hardware.process_start(found(rig).devices[0], label="w1")
        rig.later(1)
        wanted = {rig.gpu: [noticed(plain, method="suspend")]}
        rig.desire(a_document(wanted, gangs=gangs, generation=2))
        rig.later(119)
        rig.later(5)
        assert (found(rig).state, found(rig).suspended) == ("empty", False)
        assert words[case] in (found(rig).error or "")
        assert rig.hardware.gpus[0].processes == {}


def test_while_it_is_being_frozen_the_device_is_not_proven_empty(tmp_path: Path) -> None:
    """Not even if the driver names no program any more: it may fail and come back."""
    with a_rig(tmp_path, suspender=Slow) as rig:
        pid = runs(rig)
        rig.later(119)
        program_toggle(rig.hardware, pid)
        rig.later(1)
        assert rig.node.port.truth(rig.gpu).processes == 0
        assert found(rig).state == "ending"
        assert rig.agent.wait_s() <= 0.25
        program_toggle(rig.hardware, pid)
        finish(rig, 0.25)
        assert (found(rig).state, found(rig).suspended) == ("empty", True)
        assert slow(rig).calls == [pid]


def test_a_program_that_can_not_be_frozen_is_stopped(tmp_path: Path) -> None:
    with a_rig(tmp_path, suspender=Slow) as rig:
        runs(rig)
        rig.later(119)
        slow(rig).error = "cuda-checkpoint ended with 1"
        finish(rig, 0.25)
        slow(rig).error = None
        finish(rig, 5)
        assert (found(rig).state, found(rig).suspended) == ("empty", False)
        assert "stopped, not suspended: cuda-checkpoint ended with 1" in (found(rig).error or "")
        assert rig.node.store.suspended == {}


def test_a_program_that_is_frozen_and_still_on_the_device_is_stopped_in_the_end(
    tmp_path: Path,
) -> None:
    with a_rig(tmp_path, suspender=Slow) as rig:
        runs(rig)
        rig.later(119)
        rig.agent.wait_s()
        slow(rig).done()
        program_toggle(rig.hardware, slow(rig).calls[0])
        rig.later(0.25)
        assert found(rig).state == "ending"
        rig.later(LIMIT_S)
        finish(rig, KILL_AFTER_NOTICE_S)
        assert (found(rig).state, found(rig).suspended) == ("empty", False)
        assert len(slow(rig).calls) == 1


def test_killed_right_after_the_record_the_next_life_freezes_what_still_runs(
    tmp_path: Path,
) -> None:
    with a_rig(tmp_path, suspender=Slow) as rig:
        pid = runs(rig)
        rig.later(119)
        assert slow(rig).calls == [pid]
    with a_rig(tmp_path, at=NOW + 125) as rig:
        rig.agent.turn(rig.sent)
        assert (found(rig).state, found(rig).suspended) == ("empty", True)
        assert rig.hardware.gpus[0].processes[pid].frozen


def test_killed_while_the_freezing_goes_on_the_next_life_waits_for_it_and_undoes_nothing(
    tmp_path: Path,
) -> None:
    with a_rig(tmp_path, suspender=Slow) as rig:
        pid = runs(rig)
        rig.later(119)
    with a_rig(tmp_path, at=NOW + 125, suspender=Slow) as rig:
        slow(rig).under_way[pid] = True
        rig.agent.turn(rig.sent)
        assert found(rig).state == "ending"
        finish(rig, 0.25)
        assert (found(rig).state, found(rig).suspended) == ("empty", True)
        assert slow(rig).calls == []


def test_killed_while_it_is_being_woken_the_next_life_does_not_freeze_it_again(
    tmp_path: Path,
) -> None:
    with a_rig(tmp_path) as rig:
        pid = runs(rig)
        rig.later(119)
    with a_rig(tmp_path, at=NOW + 200, suspender=Slow) as rig:
        rig.desire(a_document({rig.gpu: [back()]}, generation=3))
        assert slow(rig).calls == [pid]
        program_toggle(rig.hardware, pid)
    with a_rig(tmp_path, at=NOW + 201, suspender=Slow) as rig:
        rig.agent.turn(rig.sent)
        finish(rig)
        assert slow(rig).calls == []
        assert not rig.hardware.gpus[0].processes[pid].frozen
        assert rig.node.store.suspended == {}


def test_while_it_is_being_woken_an_end_waits_and_then_ends_it(tmp_path: Path) -> None:
    with a_rig(tmp_path, suspender=Slow) as rig:
        pid = runs(rig)
        rig.later(119)
        finish(rig, 81)
        rig.desire(a_document({rig.gpu: [back()]}, generation=3))
        gone = dataclasses.replace(back(), state="release")
        rig.desire(a_document({rig.gpu: [gone]}, generation=4))
        assert found(rig, "w2").state == "ending"
        finish(rig, 0.25)
        assert found(rig, "w2").state == "empty"
        assert pid not in rig.hardware.gpus[0].processes


def test_a_program_that_wakes_just_after_the_driver_was_asked_is_not_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver names no program, and a moment later one is on the device."""
    with a_rig(tmp_path, suspender=Slow) as rig:
        runs(rig)
        rig.later(119)
        finish(rig)
        rig.later(81)
        rig.desire(a_document({rig.gpu: [back()]}, generation=3))
        real, looks = rig.node.port.truth, iter([False, True])

        def asked(gpu: str) -> Truth:
            answer = real(gpu)
            # The files are taken back in the first round; the second one might be the proof.
            if gpu == rig.gpu and next(looks, False):
                slow(rig).done()
            return answer

        monkeypatch.setattr(rig.node.port, "truth", asked)
        gone = dataclasses.replace(back(), state="release")
        rig.desire(a_document({rig.gpu: [gone]}, generation=4))
        assert found(rig, "w2").state == "ending"


@pytest.mark.parametrize("case", ["another GPU", "its program is gone", "another booking", "fails"])
def test_what_can_not_go_on_is_said_and_the_booking_is_ready_anyway(case: str, tmp_path: Path) -> None:
    with a_rig(tmp_path, suspender=Slow) as rig:
        pid = runs(rig)
        rig.later(119)
        finish(rig, 1)
        rig.later(80)
        one, two = (gpu.uuid for gpu in rig.hardware.gpus)
        wanted = back()
        if case == "its program is gone":
            rig.hardware.process_signal(pid, force=True)
        if case == "another booking":
            wanted = dataclasses.replace(wanted, booking="BK-9")
        slow(rig).error = "cuda-checkpoint ended with 1" if case == "fails" else None
        place = two if case == "another GPU" else one
        rig.desire(a_document({place: [wanted]}, generation=3))
        finish(rig, 5)
        assert found(rig, "w2").state == "ready"
        assert "could not be resumed" in (found(rig, "w2").error or "")
        assert all(not gpu.processes for gpu in rig.hardware.gpus)
        rig.later(60)
        assert found(rig, "w2").state == "ready"


def test_what_no_booking_comes_back_for_is_ended_when_the_portal_says_so(rig: Rig) -> None:
    pid = runs(rig)
    rig.later(119)
    none = a_document({rig.gpu: []}, generation=3, mode="whole")
    rig.desire(none)
    assert pid in rig.hardware.gpus[0].processes
    rig.desire(dataclasses.replace(none, generation=4, suspended=("w1",)))
    assert pid in rig.hardware.gpus[0].processes
    rig.desire(dataclasses.replace(none, generation=5, suspended=()))
    assert rig.hardware.gpus[0].processes == {}
    assert rig.node.store.suspended == {}


def test_without_room_on_the_disk_nothing_is_frozen_and_the_device_comes_back_on_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is frozen without a record could never be found again."""

    def full(path: Path, raw: bytes) -> None:
        raise OSError("no space left")

    runs(rig)
    monkeypatch.setattr(store, "write_synced", full)
    rig.later(119)
    assert rig.hardware.gpus[0].processes == {}
    monkeypatch.undo()
    rig.later(5)
    assert (found(rig).state, found(rig).suspended) == ("empty", False)


def test_a_booking_with_several_gpus_is_stopped_on_all_of_them(rig: Rig) -> None:
    one, two = (gpu.uuid for gpu in rig.hardware.gpus)
    rig.desire(a_document({one: [a_whole("w1")], two: [a_whole("w2")]}))
    rig.hardware.process_start(one, label="w1")
    rig.hardware.process_start(two, label="w2", stubborn=True)
    rig.later(1)
    wanted = {one: [FREEZE], two: [noticed(a_whole("w2"), method="suspend")]}
    rig.desire(a_document(wanted, generation=2))
    rig.later(119)
    rig.later(5)
    assert set(rig.sent.states().values()) == {"empty"}
    for each in rig.sent.report().allocations:
        assert not each.suspended
        assert "it has several GPUs" in (each.error or "")
