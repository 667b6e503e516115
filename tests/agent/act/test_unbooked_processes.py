"""Unbooked processes: which ones count, and the escalation against them."""

import dataclasses
import os
import pty
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wire
from agent.act.unbooked_processes import KILL_AFTER_S, WARNED_BEFORE_S, UnbookedProcesses
from agent.host.other_owners import OtherSchedulers
from agent.ports.clock import Clock
from agent.ports.programs import HostPrograms, terminal_write
from agent.process import Agent
from tests.agent.builders import Rig, a_document, a_slice, a_whole
from tests.servers.waiting import wait_until

LADDER = wire.Escalation(warn_after=120, end_after=600)


@pytest.fixture
def known(rig: Rig) -> Rig:
    """Every member of the portal has an account of the same name here."""
    node = dataclasses.replace(rig.node, account_of=lambda member: member)
    return dataclasses.replace(rig, node=node, agent=Agent(node, Clock(wall=rig.wall, steady=rig.steady)))


def ruled(rig: Rig, escalation: wire.Escalation | None, *wanted: wire.DesiredAllocation) -> None:
    document = a_document({rig.gpu: list(wanted)}, mode="whole" if not wanted else None)
    rig.desire(dataclasses.replace(document, ladder=escalation))


def steps(rig: Rig) -> list[str]:
    return [action.step for action in rig.sent.report().deeds]


def runs(rig: Rig, pid: int) -> bool:
    return pid in rig.hardware.gpus[0].processes


def passes(rig: Rig, seconds: float) -> None:
    for _ in range(int(seconds // 5)):
        rig.later(5)


@pytest.mark.turn
def test_without_a_word_of_the_portal_it_is_only_told(known: Rig) -> None:
    unbooked = known.hardware.process_start(known.gpu, label="x", user="eve")
    ruled(known, None)
    passes(known, 3600)
    assert runs(known, unbooked)
    assert steps(known) == []
    (said,) = known.sent.report().foreign
    assert (said.processes, said.users, said.booked) == (1, ("eve",), False)


def test_it_is_warned_asked_and_killed_each_at_its_time(known: Rig) -> None:
    unbooked = known.hardware.process_start(known.gpu, label="x", user="eve", stubborn=True)
    ruled(known, LADDER)
    passes(known, 115)
    assert steps(known) == []
    passes(known, 10)
    assert steps(known) == ["warned"]
    ((pid, text),) = known.programs.written
    assert pid == unbooked
    assert f"Your process {unbooked} uses {known.gpu}, which is not booked." in text
    passes(known, 470)
    assert steps(known) == ["warned"]
    passes(known, 10)
    assert steps(known) == ["warned", "asked"]
    assert runs(known, unbooked)
    passes(known, KILL_AFTER_S + 5)
    assert steps(known) == ["warned", "asked", "killed"]
    assert not runs(known, unbooked)
    passes(known, 60)
    assert known.sent.report().foreign == ()
    assert {action.user for action in known.sent.report().deeds} == {"eve"}


def test_nobody_is_ended_who_had_no_time_to_read_the_warning(known: Rig) -> None:
    unbooked = known.hardware.process_start(known.gpu, label="x", user="eve")
    ruled(known, wire.Escalation(warn_after=0, end_after=0))
    passes(known, WARNED_BEFORE_S - 5)
    assert (steps(known), runs(known, unbooked)) == (["warned"], True)
    passes(known, 15)
    assert (steps(known), runs(known, unbooked)) == (["warned", "asked"], False)


def test_the_nodes_own_configuration_may_forbid_to_end_anybody(known: Rig) -> None:
    node = dataclasses.replace(known.node, may_end=lambda: False)
    agent = Agent(node, Clock(wall=known.wall, steady=known.steady))
    strict = dataclasses.replace(known, node=node, agent=agent)
    unbooked = strict.hardware.process_start(strict.gpu, label="x", user="eve")
    ruled(strict, wire.Escalation(warn_after=0, end_after=60))
    passes(strict, 600)
    assert (steps(strict), runs(strict, unbooked)) == (["warned"], True)


def test_on_a_booked_device_only_those_of_others_are_strangers(known: Rig) -> None:
    ruled(known, wire.Escalation(warn_after=0, end_after=60), a_whole())
    start = known.hardware.process_start
    by_name = start(known.gpu, label="biology.BK-7", user="svc")
    by_allocation = start(known.gpu, label="w1")
    by_account = start(known.gpu, label="a shell", user="ada")
    unbooked = start(known.gpu, label="a shell", user="eve")
    passes(known, 5)
    (said,) = known.sent.report().foreign
    assert (said.processes, said.users, said.booked) == (1, ("eve",), True)
    passes(known, 300)
    assert [runs(known, pid) for pid in (by_name, by_allocation, by_account, unbooked)] == [
        True,
        True,
        True,
        False,
    ]
    assert "is booked by somebody else" in known.programs.written[0][1]
    assert known.sent.states() == {"w1": "ready"}


def test_on_a_slice_it_is_the_slices_booking_that_counts(known: Rig) -> None:
    ruled(known, None, a_slice("a1"), a_slice("a2", booking="BK-9", slot=2))
    device = known.node.handover.given["a1"].device
    known.hardware.process_start(device, label="biology.BK-9", user="svc")
    known.hardware.process_start(device, label="biology.BK-2041", user="svc")
    passes(known, 5)
    (said,) = known.sent.report().foreign
    assert (said.slot, said.processes, said.booked) == (0, 1, True)


def test_where_the_owner_has_no_account_nobody_is_accused(rig: Rig) -> None:
    ruled(rig, wire.Escalation(warn_after=0, end_after=60), a_whole())
    pid = rig.hardware.process_start(rig.gpu, label="a shell", user="eve")
    passes(rig, 300)
    assert (steps(rig), rig.sent.report().foreign, runs(rig, pid)) == ([], (), True)


# Real programs and terminals of this machine.


@pytest.fixture
def terminal() -> Iterator[tuple[int, Path]]:
    """The master's end of a new terminal, and its path."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    yield master, Path(os.ttyname(slave))
    os.close(slave)
    os.close(master)


def test_a_warning_reaches_the_terminals_of_the_account_and_no_others(
    terminal: tuple[int, Path],
) -> None:
    master, path = terminal
    assert not terminal_write(path, os.getuid() + 1, "no")
    assert not terminal_write(path.parent / "none", os.getuid(), "no")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert HostPrograms().write(child.pid, "End it.") >= 1
        assert b"*** End it." in os.read(master, 4096)
    finally:
        child.kill()
        child.wait()
    assert HostPrograms().write(child.pid, "End it.") == 0


def test_a_real_program_is_asked_and_then_killed(rig: Rig) -> None:
    """The kernel's programs, where the driver says that they are on the GPU."""
    text = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
    child = subprocess.Popen([sys.executable, "-c", f"{text}; time.sleep(60)"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    try:
        pid = rig.hardware.process_start(rig.gpu, label="x")
        process = rig.hardware.gpus[0].processes.pop(pid)
        rig.hardware.gpus[0].processes[child.pid] = dataclasses.replace(process, pid=child.pid)
        processes = UnbookedProcesses(
            rig.node.port, HostPrograms(), lambda member: member, rig.steady, may_end=lambda: True
        )
        escalation = wire.Escalation(warn_after=0, end_after=60)
        rig.later(5)
        outcomes = rig.agent._outcomes
        for wait in (0, 30, 30):
            rig.steady.now += wait
            (found,) = processes.look(outcomes, {}, escalation, rig.wall())
        assert found.user == pwd.getpwuid(os.getuid()).pw_name
        assert [action.step for action in processes.actions] == ["warned", "asked"]
        assert child.poll() is None
        rig.steady.now += KILL_AFTER_S
        processes.look(outcomes, {}, escalation, rig.wall())
        wait_until(lambda: child.poll() is not None, seconds=5)
        assert child.returncode == -9
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.turn
def test_nobody_is_ended_while_another_scheduler_gives_out_the_gpus(known: Rig, tmp_path: Path) -> None:
    slurm = tmp_path / "4711"
    slurm.mkdir()
    (slurm / "comm").write_text("slurmd\n")
    owners = OtherSchedulers(tmp_path, known.steady)
    node = dataclasses.replace(known.node, may_end=owners.none)
    agent = Agent(node, Clock(wall=known.wall, steady=known.steady))
    shared = dataclasses.replace(known, node=node, agent=agent)
    unbooked = shared.hardware.process_start(shared.gpu, label="x", user="eve")
    ruled(shared, wire.Escalation(warn_after=0, end_after=60))
    passes(shared, 600)
    assert (steps(shared), runs(shared, unbooked)) == (["warned"], True)
    (slurm / "comm").unlink()
    passes(shared, 60)
    assert (steps(shared), runs(shared, unbooked)) == (["warned", "asked"], False)


def test_where_programs_can_not_be_seen_nobody_is_ended(tmp_path: Path) -> None:
    assert OtherSchedulers(tmp_path).none()
    assert not OtherSchedulers(tmp_path / "none").none()
