"""Accounts that are looked up off the loop: a directory that hangs costs nobody anything."""

import dataclasses
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import wire
from agent.act.leases import MARGIN_S
from agent.act.unbooked_processes import UnbookedProcesses
from agent.node import Node
from agent.nvml.timeout_wrapper import TimeoutGpu
from agent.owner import accounts
from agent.owner.accounts import FOUND_FOR_S, MISSING_FOR_S, AccountDirectory
from agent.owner.booking_files import BookingFiles
from agent.owner.device_holders import share_holders
from agent.ports.programs import HostPrograms, ProcessOwner
from agent.ports.worker_threads import WorkerThreads
from agent.process import Agent
from tests.agent.builders import KEY, NODE, FakeTime, Rig, a_document, a_whole
from tests.servers.waiting import wait_until


class Hanging:
    """A directory service that does not answer until it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked: list[object] = []

    def __call__(self, key: object) -> None:
        self.answer(key)

    def answer(self, key: object) -> int | None:
        """None in the end."""
        self.asked.append(key)
        self.let.wait()
        return None


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    found = Hanging()
    yield found
    found.let.set()


def test_what_is_known_is_kept_and_asked_for_again_in_time() -> None:
    asked: list[str] = []
    uids: dict[str, int] = {"ada": 1001}
    steady = FakeTime(0)

    def uid_of(name: str) -> int | None:
        asked.append(name)
        return uids.get(name)

    found = AccountDirectory(steady=steady, uid_of=uid_of)
    assert [found.uid("ada"), found.uid("ada"), found.account("ada")] == [1001, 1001, "ada"]
    assert (found.name(1001), asked) == ("ada", ["ada"])
    steady.now += FOUND_FOR_S + 1
    assert (found.uid("ada"), asked) == (1001, ["ada", "ada"])
    # Somebody without an account is asked for sooner.
    assert [found.account("eve"), found.account("eve")] == [None, None]
    uids["eve"] = 1002
    steady.now += MISSING_FOR_S + 1
    assert found.account("eve") == "eve"


def test_a_number_without_an_account_is_its_own_name_and_one_not_known_yet_has_none(
    hanging: Hanging,
) -> None:
    assert AccountDirectory(name_of=lambda _: None).name(4711) == "4711"
    assert AccountDirectory(name_of=hanging).name(4711) is None


def test_a_directory_that_hangs_is_waited_for_once_and_answers_in_the_end(
    hanging: Hanging,
) -> None:
    found = AccountDirectory(uid_of=hanging)
    began = time.monotonic()
    assert [found.uid(f"user{n}") for n in range(50)] == [None] * 50
    # All of them together: a lease has seconds.
    assert time.monotonic() - began < MARGIN_S
    assert hanging.asked == ["user0"]
    hanging.let.set()
    wait_until(lambda: found.uid("user1") is None and "user1" in hanging.asked, seconds=5)


def test_what_was_known_counts_while_nobody_answers_also_after_a_restart(
    tmp_path: Path, hanging: Hanging
) -> None:
    steady, file = FakeTime(0), tmp_path / "accounts.json"
    uids = {"ada": 1001}

    def uid_of(name: str) -> int | None:
        return uids.get(name) or hanging.answer(name)

    found = AccountDirectory(file, steady=steady, uid_of=uid_of)
    assert found.uid("ada") == 1001
    # The thread writes the file after its answer counts.
    wait_until(file.exists, seconds=5)
    uids.clear()
    steady.now += 10 * FOUND_FOR_S
    assert (found.uid("ada"), found.name(1001)) == (1001, "ada")
    again = AccountDirectory(file, steady=steady, uid_of=hanging, name_of=hanging)
    assert (again.uid("ada"), again.name(1001)) == (1001, "ada")
    assert json.loads(file.read_bytes()) == {"ada": 1001}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"ada": "x"}'])
def test_a_file_that_is_damaged_is_no_account(tmp_path: Path, text: str) -> None:
    file = tmp_path / "accounts.json"
    file.write_text(text)
    assert AccountDirectory(file, uid_of=lambda _: 7).uid("ada") == 7


class _Programs(HostPrograms):
    """Every simulated program is of this process's account."""

    def owner_of(self, pid: int) -> ProcessOwner:
        return super().owner_of(os.getpid())

    def birth(self, pid: int) -> str | None:
        return str(pid)


@pytest.fixture
def served(rig: Rig, hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node whose directory hangs: everything that names an account asks it."""
    monkeypatch.setattr(accounts, "LOOKUP_WAIT_S", 0.05)
    found = AccountDirectory(uid_of=hanging, name_of=hanging)
    place = rig.agent._owners._place
    return dataclasses.replace(
        rig.node,
        programs=_Programs(name_of=found.name),
        account_of=found.account,
        place=dataclasses.replace(place, account_of=found.account),
        bookings=BookingFiles(rig.node.handover.root, uid_of=found.uid),
    )


def test_a_directory_that_hangs_for_a_minute_costs_no_run(rig: Rig, served: Node, hanging: Hanging) -> None:
    rig.agent = Agent(served, rig.agent._clock)
    leased = dataclasses.replace(a_whole(), lease=True)
    _granted(rig)
    rig.desire(a_document({rig.gpu: [leased]}))
    assert rig.sent.states() == {"w1": "ready"}
    pid = rig.hardware.process_start(rig.gpu, label="training")
    began = time.monotonic()
    for _ in range(12):
        rig.later(5)
        _granted(rig)
    # No turn waited: the heartbeats of a minute would all have been in time.
    assert time.monotonic() - began < MARGIN_S
    assert rig.sent.states() == {"w1": "ready"}
    assert pid in rig.hardware.gpus[0].processes
    assert hanging.asked
    assert rig.sent.report().foreign == (), "nobody is accused while nobody can be named"


def _granted(rig: Rig) -> None:
    """The portal answers the last heartbeat."""
    beats = rig.sent.messages("heartbeat")
    if not beats:
        rig.agent.turn(rig.sent)
        beats = rig.sent.messages("heartbeat")
    lease = wire.Lease(node=NODE, epoch=1, seq=beats[-1].seq, ttl=20)
    envelope = wire.seal(lease, key=KEY, key_version=1)
    rig.agent._leases.read(envelope.to_json(), rig.steady())


def test_an_end_is_not_proven_of_shares_whose_programs_nobody_can_name(rig: Rig, hanging: Hanging) -> None:
    share = dataclasses.replace(a_whole(), share=500, size=4)
    rig.hardware.process_start(rig.gpu, label="training")
    programs = _Programs(name_of=AccountDirectory(name_of=hanging).name)
    found = share_holders(rig.node.port, programs, rig.gpu, [share], lambda member: member)
    assert found == {"w1": None}


def test_nobody_is_ended_for_a_name_that_is_not_known(rig: Rig, served: Node) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    rig.hardware.process_start(rig.gpu, label="training")
    rig.later(5)
    assert served.programs is not None
    found = UnbookedProcesses(rig.node.port, served.programs, lambda m: m, rig.steady, may_end=lambda: True)
    escalation = wire.Escalation(warn_after=0, end_after=60)
    assert found.look(rig.agent._outcomes, rig.node.store.held, escalation, rig.wall()) == []


def test_the_first_look_at_gpus_that_sleep_may_take_seconds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.nvml.timeout_wrapper.CHANGE_LIMIT_S", 0.05)
    rig.driver.delays["nvmlDeviceGetName"] = 0.1
    port = TimeoutGpu(rig.node.port, WorkerThreads())
    assert len(port.inventory()) == 2
