"""A driver that does not come back from a call stops nothing that the agent has promised."""

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import wire
from agent.act.endings import KILL_AFTER_S
from agent.act.leases import MARGIN_S
from agent.nvml.timeout_wrapper import TimeoutGpu, TimeoutWatch
from agent.ports import worker_threads
from agent.ports.clock import Clock
from agent.ports.gpu import GpuError
from agent.ports.link import LeaseRead
from agent.ports.worker_threads import (
    HANGS_AFTER_S,
    CallTimeout,
    WorkerThread,
    WorkerThreads,
)
from agent.process import Agent
from allocation.rules.nodes.leases import TTL_SECONDS
from allocation.services.nodes.redis_accounts import (
    account_password,
    account_url,
    agent_account_open,
    agent_account_replace,
)
from tests.agent.builders import HOUR, KEY, NODE, NOW, Rig, a_document, a_slice, a_whole
from tests.agent.processes import Portal, Process
from tests.servers.waiting import wait_until

pytestmark = pytest.mark.turn


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Calls that wait for it come back at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def test_a_lane_gives_what_its_job_gives_and_raises_what_it_raises() -> None:
    lane = WorkerThread("test")
    assert lane.ask(lambda: 7, 1) == 7
    with pytest.raises(GpuError, match="no"):
        lane.ask(lambda: _raise(GpuError("driver", "no")), 1)
    assert lane.ask(lambda: 8, 1) == 8


def _raise(error: Exception) -> None:
    raise error


def test_a_lane_waits_so_long_and_begins_nothing_while_a_call_is_out(held: threading.Event) -> None:
    lane = WorkerThread("test")
    done: list[int] = []
    with pytest.raises(CallTimeout):
        lane.ask(lambda: done.append(int(held.wait())), 0.05)
    began = time.monotonic()
    with pytest.raises(CallTimeout):
        lane.ask(lambda: done.append(2), 5)
    assert time.monotonic() - began < 1
    held.set()
    wait_until(lambda: not lane.busy, seconds=5)
    lane.ask(lambda: done.append(3), 5)
    assert done == [1, 3]


def test_when_one_hangs_the_others_are_asked_only_briefly(
    held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen GPUs that hang together must not cost a lease its margin one after the other."""
    monkeypatch.setattr(worker_threads, "ASK_LIMIT_S", 0.4)
    monkeypatch.setattr(worker_threads, "BRIEF_LIMIT_S", 0.01)
    found, began = WorkerThreads(), time.monotonic()
    for number in range(16):
        with pytest.raises(GpuError):
            found.ask(f"GPU-{number}", held.wait)
    assert time.monotonic() - began < 1.5


@pytest.fixture
def patient(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """The rig's agent, made as the real one is: no call may keep it for long."""
    monkeypatch.setattr(worker_threads, "ASK_LIMIT_S", 0.05)
    found = WorkerThreads(rig.steady)
    watch = rig.node.watch
    assert watch is not None
    node = dataclasses.replace(
        rig.node, port=TimeoutGpu(rig.node.port, found), watch=TimeoutWatch(watch, found)
    )
    agent = Agent(node, Clock(wall=rig.wall, steady=rig.steady))
    yield dataclasses.replace(rig, node=node, agent=agent)
    for gpu in rig.hardware.gpus:
        rig.driver.answer(gpu.uuid)
    # No thread of this test is left to touch the next one's driver.
    wait_until(lambda: found.idle, seconds=5)


def hang(rig: Rig) -> None:
    rig.driver.hang(rig.gpu)


def answers(rig: Rig) -> None:
    rig.driver.answer(rig.gpu)
    wait_until(lambda: rig.node.port._threads.idle, seconds=5)  # type: ignore[attr-defined]


def test_other_gpus_and_heartbeats_go_on(patient: Rig) -> None:
    patient.desire(a_document({patient.gpu: [a_whole()]}))
    hang(patient)
    other = patient.hardware.gpus[1].uuid
    document = {patient.gpu: [a_whole()], other: [a_slice("a9", booking="BK-9")]}
    patient.desire(a_document(document, generation=2))
    assert patient.sent.states() == {"w1": "ready", "a9": "ready"}
    report = patient.sent.report()
    assert [gpu.uuid for gpu in report.gpus] == [other]
    assert f"{patient.gpu}: {wire.NOT_ANSWERING}" in (report.error or "")
    before = len(patient.sent.messages("heartbeat"))
    patient.later(5)
    assert len(patient.sent.messages("heartbeat")) == before + 1


def test_what_hangs_long_is_said_and_what_was_slow_is_not(patient: Rig) -> None:
    patient.desire(a_document({patient.gpu: [a_whole()]}))
    hang(patient)
    patient.later(5)
    assert patient.sent.report().hanging == ()
    patient.later(HANGS_AFTER_S)
    assert patient.sent.report().hanging == (patient.gpu,)
    answers(patient)
    patient.later(5)
    assert patient.sent.report().hanging == ()
    assert patient.sent.report().error is None


def test_a_booking_ends_on_time_on_a_gpu_that_hangs_and_is_proven_empty_afterwards(
    patient: Rig,
) -> None:
    hardware = patient.hardware
    patient.desire(a_document({patient.gpu: [a_whole(ends=NOW + 60)]}))
    polite = hardware.process_start(patient.gpu, label="someone's")
    stubborn = hardware.process_start(patient.gpu, label="someone's", stubborn=True)
    patient.later(5)
    hang(patient)
    # Never seen by the driver, but it says whose it is; and one that says that it is another's.
    late = hardware.process_start(patient.gpu, label="w1", stubborn=True)
    unbooked = hardware.process_start(hardware.gpus[1].uuid, label="b7")
    patient.later(56)
    assert set(hardware.gpus[0].processes) == {stubborn, late}, polite
    patient.later(KILL_AFTER_S)
    assert set(hardware.gpus[0].processes) == set()
    assert set(hardware.gpus[1].processes) == {unbooked}
    assert patient.sent.states() == {"w1": "ending"}
    answers(patient)
    patient.later(5)
    assert patient.sent.states() == {"w1": "empty"}


def test_leased_work_is_fenced_on_a_gpu_that_hangs(patient: Rig) -> None:
    leased = dataclasses.replace(a_whole(), lease=True)
    patient.desire(a_document({patient.gpu: [leased]}))
    beat = patient.sent.messages("heartbeat")[-1]
    assert isinstance(beat, wire.Heartbeat)
    lease = wire.Lease(node=NODE, epoch=1, seq=beat.seq, ttl=TTL_SECONDS)
    sealed = wire.seal(lease, key=KEY, key_version=1)
    patient.agent.handle(LeaseRead(sealed.to_json()), patient.sent)
    patient.agent.turn(patient.sent)
    patient.hardware.process_start(patient.gpu, label="w1", stubborn=True)
    patient.later(1)
    hang(patient)
    patient.later(TTL_SECONDS - MARGIN_S - 1)
    patient.later(KILL_AFTER_S)
    assert patient.hardware.gpus[0].processes == {}
    answers(patient)
    patient.later(5)
    (said,) = patient.sent.report().allocations
    assert (said.state, said.error) == ("failed", wire.LEASE_EXPIRED)


def test_another_run_of_the_booking_on_the_node_is_left_alone(patient: Rig) -> None:
    hardware = patient.hardware
    patient.desire(a_document({patient.gpu: [a_whole(ends=NOW + 60)]}))
    hang(patient)
    other = hardware.gpus[1].uuid
    document = {patient.gpu: [a_whole(state="release")], other: [a_whole("w2")]}
    patient.desire(a_document(document, generation=2))
    assert patient.sent.states()["w2"] == "ready"
    going_on = hardware.process_start(other, label="biology.BK-7", stubborn=True)
    patient.later(KILL_AFTER_S + 5)
    assert set(hardware.gpus[1].processes) == {going_on}


# The agent as a process.


@pytest.fixture
def portal(redis_client: "redis.Redis") -> Iterator[Portal]:
    password, digest = account_password()
    agent_account_open(NODE, digest)
    found = Portal(redis_client, account_url(NODE, password), digest)
    yield found
    agent_account_replace(NODE, None)
    found.close()


@pytest.fixture
def agent(portal: Portal, tmp_path: Path) -> Iterator[Process]:
    found = Process(portal, tmp_path / "state")
    yield found
    found.close()


def programs(state: Path) -> list[Any]:
    gpus: dict[str, Any] = json.loads((state / "simulated.json").read_text())
    return [process for gpu in gpus.values() for process in gpu["processes"]]


def seen(check: Callable[[], bool], seconds: float = 30) -> None:
    wait_until(check, seconds=seconds)


def test_the_supervisor_hears_that_the_agent_serves_lives_and_stops(
    portal: Portal, agent: Process, tmp_path: Path
) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(path))
        heard.settimeout(10)
        agent.start(NOTIFY_SOCKET=str(path))
        assert [heard.recv(64), heard.recv(64)] == [b"READY=1", b"WATCHDOG=1"]
        assert agent.stop() == 0
        words = [b"WATCHDOG=1"]
        while words[-1] == b"WATCHDOG=1":
            words.append(heard.recv(64))
        assert words[-1] == b"STOPPING=1"


@pytest.mark.faults
def test_an_agent_whose_driver_hangs_keeps_its_promises_and_can_be_stopped(
    portal: Portal, agent: Process
) -> None:
    agent.start(program="tests.agent.hanging_agent")
    seen(lambda: len(portal.reports()) > 0)
    now = int(time.time())
    first, second = (gpu["uuid"] for gpu in portal.enrolments[0]["inventory"]["gpus"])
    booked = a_whole(starts=now, ends=now + 12)
    portal.publish(a_document({first: [booked]}))
    seen(lambda: portal.states() == {"w1": "ready"} and len(programs(agent.state)) == 1)
    (agent.state / "hang").touch()
    seen(lambda: NOT_THERE in (portal.reports()[-1].error or ""))

    # The other GPU serves, though the first one hangs; and the end comes by the clock.
    other = a_slice("a2", booking="BK-9", starts=now, ends=now + HOUR)
    portal.publish(a_document({first: [booked], second: [other]}, generation=2))
    seen(lambda: portal.states().get("a2") == "ready")
    seen(lambda: [p["label"] for p in programs(agent.state)] == ["a2"])
    assert booked.ends <= time.time()
    seen(lambda: portal.states()["w1"] == "ending")
    seen(lambda: portal.reports()[-1].hanging == (first,))

    (agent.state / "hang").unlink()
    seen(lambda: portal.states().get("w1") == "empty")
    (agent.state / "hang").touch()
    seen(lambda: NOT_THERE in (portal.reports()[-1].error or ""))
    assert agent.stop() == 0


NOT_THERE = wire.NOT_ANSWERING
