"""How cuda-checkpoint freezes and wakes programs, driver by driver, and how that is undone."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

import wire
from agent.act.endings import KILL_AFTER_NOTICE_S
from agent.ports.checkpoint_tool import Answer, Call
from agent.ports.suspender import LIMIT_S
from devtools.simulated.hardware import Hardware
from devtools.simulated.programs import (
    NOT_READY,
    UNSUPPORTED,
    SimulatedSuspender,
    SimulatedTool,
    program,
    program_change,
)
from tests.agent.builders import HOUR, NOW, Rig, a_document, a_rig, a_whole, noticed

FREEZE = noticed(a_whole(), method="suspend")


@dataclasses.dataclass
class Held:
    """A call that does not come back before it is killed, or let go."""

    answer: Answer | None = None

    def poll(self) -> Answer | None:
        return self.answer

    def kill(self) -> None:
        self.answer = Answer(-9)


class Hanging(SimulatedTool):
    """One action does not come back."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        self.hangs = ""

    def start(self, pid: int, arguments: Sequence[str]) -> Call:
        if self.hangs and self.hangs in arguments:
            self.calls.append((pid, self.hangs))
            return Held()
        return super().start(pid, arguments)


class Suspender(SimulatedSuspender):
    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        self.tool = self._tool = Hanging(hardware)


def tool(rig: Rig) -> Hanging:
    suspender = rig.node.suspender
    assert isinstance(suspender, Suspender)
    assert isinstance(suspender.tool, Hanging)
    return suspender.tool


def actions(rig: Rig) -> list[str]:
    return [action for _, action in tool(rig).calls]


def begins(rig: Rig, *, stubborn: bool = False) -> int:
    """A booking with a program, under a notice. Returns the program's id."""
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    pid = rig.hardware.process_start(rig.gpu, label="w1", stubborn=stubborn)
    rig.later(1)
    rig.desire(a_document({rig.gpu: [FREEZE]}, generation=2))
    return pid


def reported(rig: Rig, name: str = "w1") -> wire.ReportedAllocation:
    (one,) = [each for each in rig.sent.report().allocations if each.id == name]
    return one


def watched(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The signals that are sent from now on; none but KILL may go to a locked program."""
    signals, real = [], rig.hardware.process_signal

    def signalled(number: int, *, force: bool) -> None:
        there = program(rig.hardware, number)
        assert there is not None
        assert force or not there.locked, "TERM went to a program whose CUDA calls are locked"
        signals.append("KILL" if force else "TERM")
        real(number, force=force)

    monkeypatch.setattr(rig.hardware, "process_signal", signalled)
    monkeypatch.setattr(rig.node.port, "_signal_process", signalled)
    return signals


def back() -> wire.DesiredAllocation:
    wanted = a_whole("w2", starts=NOW + 200, ends=NOW + HOUR)
    return dataclasses.replace(wanted, resumes="w1")


@pytest.mark.parametrize(
    ("driver", "there", "again"),
    [
        ("550", ["--get-state", "--toggle"], ["--get-state", "--toggle"]),
        ("570", ["--get-state", "lock", "checkpoint"], ["--get-state", "restore", "unlock"]),
        ("580", ["--get-state", "lock", "checkpoint"], ["--get-state", "restore", "unlock"]),
        ("600", ["--get-state", "lock", "checkpoint"], ["--get-state", "restore", "unlock"]),
    ],
)
def test_each_driver_is_asked_in_its_own_words(
    driver: str, there: list[str], again: list[str], tmp_path: Path
) -> None:
    with a_rig(tmp_path, suspender=Suspender, driver=driver) as rig:
        pid = begins(rig)
        rig.later(119)
        assert (reported(rig).state, reported(rig).suspended, reported(rig).error) == (
            "empty",
            True,
            None,
        )
        assert actions(rig) == there
        tool(rig).calls.clear()
        rig.later(81)
        rig.desire(a_document({rig.gpu: [back()]}, generation=3))
        assert actions(rig) == again
        process = program(rig.hardware, pid)
        assert process is not None
        assert (process.locked, process.frozen) == (False, False)
        assert (reported(rig, "w2").state, reported(rig, "w2").error) == ("ready", None)


@pytest.mark.parametrize(
    ("driver", "refused", "says", "signal"),
    [
        # Nothing was locked, or it was unlocked: TERM first.
        ("580", {"lock": NOT_READY}, f"lock --timeout 30000 ended with 1: {NOT_READY}", "TERM"),
        ("580", {"checkpoint": UNSUPPORTED}, f"checkpoint ended with 1: {UNSUPPORTED}", "TERM"),
        ("580", {"--get-state": UNSUPPORTED}, f"--get-state ended with 1: {UNSUPPORTED}", "TERM"),
        # It is locked and can't be unlocked, or its state is unknown: KILL without TERM.
        (
            "580",
            {"checkpoint": UNSUPPORTED, "unlock": UNSUPPORTED},
            f"it was killed: cuda-checkpoint --action unlock ended with 1: {UNSUPPORTED}",
            "KILL",
        ),
        ("550", {"--toggle": UNSUPPORTED}, f"--toggle ended with 1: {UNSUPPORTED}", "KILL"),
    ],
)
def test_a_locked_program_is_unlocked_before_it_is_asked_to_end_or_else_killed(
    driver: str,
    refused: dict[str, str],
    says: str,
    signal: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_rig(tmp_path, suspender=Suspender, driver=driver) as rig:
        pid = begins(rig, stubborn=True)
        tool(rig).refuses = refused
        signals = watched(rig, monkeypatch)
        rig.later(119)
        assert signals == [signal]
        rig.later(KILL_AFTER_NOTICE_S)
        assert program(rig.hardware, pid) is None
        assert (reported(rig).state, reported(rig).suspended) == ("empty", False)
        assert "it was stopped, not suspended: " in (reported(rig).error or "")
        assert says in (reported(rig).error or "")


def test_a_program_without_cuda_is_asked_to_end(tmp_path: Path) -> None:
    with a_rig(tmp_path, suspender=Suspender) as rig:
        rig.desire(a_document({rig.gpu: [a_whole()]}))
        pid = rig.hardware.holder_start(rig.gpu, label="w1", kind="file")
        rig.later(1)
        rig.desire(a_document({rig.gpu: [FREEZE]}, generation=2))
        rig.later(119)
        assert program(rig.hardware, pid) is None
        assert set(actions(rig)) == {"--get-state"}
        assert "killed" not in (reported(rig).error or "")


@pytest.mark.parametrize("at", ["lock", "checkpoint"])
def test_killed_between_the_steps_the_next_life_asks_and_goes_on(at: str, tmp_path: Path) -> None:
    with a_rig(tmp_path, suspender=Suspender) as rig:
        pid = begins(rig)
        tool(rig).hangs = at
        rig.later(119)
        assert actions(rig)[-1] == at
        process = program(rig.hardware, pid)
        assert process is not None
        assert process.locked == (at == "checkpoint")
    with a_rig(tmp_path, at=NOW + 125, suspender=Suspender) as rig:
        rig.agent.turn(rig.sent)
        rest = ["lock", "checkpoint"] if at == "lock" else ["checkpoint"]
        assert actions(rig) == ["--get-state", *rest]
        assert (reported(rig).state, reported(rig).suspended) == ("empty", True)


@pytest.mark.parametrize("then", ["it ends", "it runs on"])
def test_killed_while_locked_the_next_life_unlocks_what_is_to_run_or_to_end(
    then: str, tmp_path: Path
) -> None:
    with a_rig(tmp_path, suspender=Suspender) as rig:
        pid = begins(rig)
        tool(rig).hangs = "checkpoint"
        rig.later(119)
    with a_rig(tmp_path, at=NOW + 121, suspender=Suspender) as rig:
        ends = then == "it ends"
        wanted = dataclasses.replace(a_whole(), state="release") if ends else a_whole()
        rig.desire(a_document({rig.gpu: [wanted]}, generation=3))
        rig.later(0.25)
        process = program(rig.hardware, pid)
        if ends:
            # It heard TERM, which a locked program does not.
            assert "unlock" in actions(rig)
            assert process is None
            assert reported(rig).state == "empty"
        else:
            assert process is not None
            assert not process.locked
            assert reported(rig).state == "ready"
        assert rig.node.store.suspended == {}


def test_killed_between_restore_and_unlock_the_next_life_unlocks(tmp_path: Path) -> None:
    with a_rig(tmp_path, suspender=Suspender) as rig:
        pid = begins(rig)
        rig.later(119)
        rig.later(81)
        tool(rig).hangs = "unlock"
        rig.desire(a_document({rig.gpu: [back()]}, generation=3))
        process = program(rig.hardware, pid)
        assert process is not None
        assert process.locked
        assert not process.frozen
    with a_rig(tmp_path, at=NOW + 210, suspender=Suspender) as rig:
        rig.agent.turn(rig.sent)
        assert actions(rig) == ["--get-state", "unlock"]
        process = program(rig.hardware, pid)
        assert process is not None
        assert not process.locked
        assert rig.node.store.suspended == {}


def test_a_driver_that_stops_answering_while_cuda_is_locked_has_the_program_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can unlock it then, and TERM has no effect."""
    with a_rig(tmp_path, suspender=Suspender) as rig:
        pid = begins(rig)
        tool(rig).hangs = "checkpoint"
        rig.later(119)
        signals = watched(rig, monkeypatch)
        rig.driver.faults["nvmlDeviceGetMigMode"] += ["NVML_ERROR_UNKNOWN"] * 99
        rig.later(1)
        assert program(rig.hardware, pid) is not None
        rig.later(KILL_AFTER_NOTICE_S)
        assert program(rig.hardware, pid) is None
        assert signals == ["KILL"]


def test_a_call_that_does_not_come_back_is_killed_and_what_it_left_is_undone(
    tmp_path: Path,
) -> None:
    with a_rig(tmp_path, suspender=Suspender) as rig:
        pid = begins(rig)
        suspender = rig.node.suspender
        assert isinstance(suspender, Suspender)
        suspender._steady = rig.steady
        tool(rig).hangs = "checkpoint"
        rig.later(119)
        rig.later(119)
        assert reported(rig).state == "ending"
        for _ in range(3):
            # Killed, then seen to be dead and undone.
            rig.agent.wait_s()
            rig.later(0.5)
        assert actions(rig)[-2:] == ["--get-state", "unlock"]
        assert program(rig.hardware, pid) is None
        assert "checkpoint took longer than 120 s" in (reported(rig).error or "")


def test_a_program_of_another_state_is_neither_frozen_nor_woken(tmp_path: Path) -> None:
    """As a program that is half checkpointed by somebody else: its error is reported."""
    with a_rig(tmp_path, suspender=Suspender) as rig:
        pid = begins(rig)
        program_change(rig.hardware, pid, locked=True, frozen=False)
        tool(rig).refuses = {"checkpoint": UNSUPPORTED}
        rig.later(119)
        assert actions(rig)[:3] == ["--get-state", "checkpoint", "--get-state"]
        assert "unlock" in actions(rig)
        assert program(rig.hardware, pid) is None


def test_a_program_that_does_not_have_the_device_open_is_neither_frozen_nor_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_rig(tmp_path, suspender=Suspender) as rig:
        pid = begins(rig)
        files = rig.node.port._processes._files  # type: ignore[attr-defined]
        seen = dataclasses.replace(files.openers(), by_file={})
        monkeypatch.setattr(files, "openers", lambda: seen)
        rig.later(119)
        rig.later(LIMIT_S + 1)
        rig.later(KILL_AFTER_NOTICE_S)
        assert tool(rig).calls == []
        assert program(rig.hardware, pid) is not None
        assert reported(rig).state == "ending"
