"""The agent as a process of its own, on a real Valkey and against a portal's enrolment."""

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import wire
from allocation.services.nodes.redis_accounts import (
    account_password,
    account_url,
    agent_account_open,
    agent_account_replace,
)
from tests.agent.builders import HOUR, NODE, a_document, a_slice, a_whole, noticed
from tests.agent.processes import Portal, Process
from tests.servers.waiting import wait_until

pytestmark = pytest.mark.turn


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


def seen(check: Callable[[], bool], seconds: float = 10) -> None:
    wait_until(check, seconds=seconds)


def now() -> int:
    return int(time.time())


def examinations(portal: Portal) -> list[wire.Examination]:
    return [said for said in portal.messages() if isinstance(said, wire.Examination)]


def test_a_node_enrols_serves_a_booking_and_stops_cleanly(portal: Portal, agent: Process) -> None:
    agent.start()
    seen(lambda: len(portal.reports()) > 0)
    (enrolment,) = portal.enrolments
    assert (enrolment["path"], enrolment["token"]) == ("/api/v1/agents/enrol", "one-time")
    inventory = wire.inventory_from_plain(enrolment["inventory"])
    assert (inventory.hostname, len(inventory.gpus)) == ("gpu-a", 2)
    assert (agent.state / "identity.json").stat().st_mode & 0o777 == 0o600

    booked = a_slice(starts=now(), ends=now() + HOUR)
    portal.publish(a_document({portal.gpu(): [booked]}))
    seen(lambda: portal.states() == {"a1": "ready"})
    environment = agent.state / "bookings" / "biology.BK-2041" / "a1" / "env"
    (device,) = portal.reports()[-1].allocations[0].devices
    assert f"export CUDA_VISIBLE_DEVICES={device}\n" in environment.read_text()

    seen(lambda: examinations(portal) != [])
    (examination,) = examinations(portal)
    checks = {check.name: check.state for check in examination.checks}
    assert len(checks) >= 30
    assert (checks["driver"], checks["enrolment"], checks["portal"]) == ("ok", "ok", "ok")
    assert agent.stop() == 0
    assert environment.exists()
    assert {type(m) for m in portal.messages()} == {
        wire.Examination,
        wire.Inventory,
        wire.Report,
        wire.Heartbeat,
        wire.Telemetry,
    }


def test_leased_work_waits_for_the_answer_and_outlives_a_quick_restart(
    portal: Portal, agent: Process
) -> None:
    agent.start()
    seen(lambda: len(portal.reports()) > 0)
    booked = dataclasses.replace(a_slice(starts=now(), ends=now() + HOUR), lease=True)
    also = a_slice("a2", slot=2, starts=now(), ends=now() + HOUR)
    portal.publish(a_document({portal.gpu(): [booked, also]}))
    seen(lambda: portal.states() == {"a2": "ready"})
    portal.grant()
    seen(lambda: portal.states() == {"a1": "ready", "a2": "ready"})

    agent.stop(signal.SIGKILL)
    said = len(portal.reports())
    agent.start()
    seen(lambda: len(portal.reports()) > said)
    assert portal.states() == {"a1": "ready", "a2": "ready"}


def test_a_booking_reaches_containers_hooks_and_programs(
    portal: Portal, agent: Process, tmp_path: Path
) -> None:
    cdi, hooks = tmp_path / "cdi", tmp_path / "hooks.d"
    for event in ("start", "end"):
        (hooks / event).mkdir(parents=True)
        (hooks / event / "1").write_text('#!/bin/sh\necho "$GPU_HOOK $GPU_BOOKING" >> said\n')
        (hooks / event / "1").chmod(0o755)
    agent.start("--cdi", str(cdi), GPU_AGENT_HOOKS=str(hooks))
    seen(lambda: len(portal.reports()) > 0)
    every: dict[str, list[wire.DesiredAllocation]] = {gpu: [] for gpu in portal.gpus()}
    every[portal.gpu()] = [a_whole(starts=now(), ends=now() + HOUR)]
    portal.publish(a_document(every))
    seen(lambda: portal.states() == {"w1": "ready"})
    (specification,) = cdi.iterdir()
    assert json.loads(specification.read_text())["devices"][0]["name"] == "biology.BK-7"
    program = [
        "biology.BK-7",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "agent", "run", *program],
        env={"PATH": os.environ["PATH"], "GPU_AGENT_STATE": str(agent.state)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", portal.gpu()]

    portal.publish(a_document({portal.gpu(): []}, generation=2, mode="whole"))
    seen(lambda: portal.states() == {"w1": "empty"})
    assert list(cdi.iterdir()) == []
    seen(lambda: (hooks / "said").exists() and (hooks / "said").read_text() == "start BK-7\nend BK-7\n")
    assert agent.stop() == 0


def test_a_pause_is_announced_answered_and_carried_out(
    portal: Portal, agent: Process, tmp_path: Path
) -> None:
    hooks = tmp_path / "hooks.d"
    for event in ("start", "notice", "pause", "end"):
        (hooks / event).mkdir(parents=True)
        (hooks / event / "1").write_text('#!/bin/sh\necho "$GPU_HOOK" >> said\n')
        (hooks / event / "1").chmod(0o755)

    def said() -> list[str]:
        return (hooks / "said").read_text().split() if (hooks / "said").exists() else []

    agent.start("--hooks", str(hooks))
    seen(lambda: len(portal.reports()) > 0)
    booked = a_whole(starts=now(), ends=now() + HOUR)
    portal.publish(a_document({portal.gpu(): [booked]}))
    seen(lambda: portal.states() == {"w1": "ready"} and said() == ["start"])
    portal.publish(a_document({portal.gpu(): [noticed(booked, at=now() + HOUR)]}, generation=2))
    seen(lambda: said() == ["start", "notice"])
    seen(lambda: portal.reports()[-1].allocations[0].noticed is not None)
    subprocess.run(
        [sys.executable, "-m", "agent", "saved", "biology.BK-7"],
        env={"PATH": os.environ["PATH"], "GPU_AGENT_STATE": str(agent.state)},
        check=True,
    )
    seen(lambda: portal.reports()[-1].allocations[0].saved is not None)
    assert said() == ["start", "notice"]
    # The pause is due now that nothing has to be in time for it any more, on however busy a machine.
    at = now() + 1
    portal.publish(a_document({portal.gpu(): [noticed(booked, at=at)]}, generation=3))
    seen(lambda: portal.states() == {"w1": "empty"})
    assert portal.reports()[-1].allocations[0].since >= at
    seen(lambda: said()[-2:] == ["pause", "end"])


@pytest.mark.faults
def test_an_agent_that_is_killed_as_it_announces_a_pause_has_announced_it_in_its_next_life(
    portal: Portal, agent: Process
) -> None:
    """The record of the notice is on its disk; the owner has not been notified."""
    agent.start()
    seen(lambda: len(portal.reports()) > 0)
    booked = a_whole(starts=now(), ends=now() + HOUR)
    portal.publish(a_document({portal.gpu(): [booked]}))
    seen(lambda: portal.states() == {"w1": "ready"})
    agent.stop()
    folder = agent.state / "bookings" / "biology.BK-7"

    dying = agent.start(program="tests.faults.agent_killed_at_notice")
    portal.publish(a_document({portal.gpu(): [noticed(booked, at=now() + 60)]}, generation=2))
    assert dying.wait(10) == -signal.SIGKILL
    (held,) = json.loads((agent.state / "state.json").read_text())["held"]
    assert held["notice"] == "p1"
    assert not (folder / "notice.json").exists()

    agent.start(GPU_AGENT_TOKEN="")
    seen((folder / "notice.json").exists)
    seen(lambda: portal.reports()[-1].allocations[0].noticed == held["noticed"])


@pytest.mark.faults
def test_after_kill_nine_the_agent_finds_its_slices_and_needs_no_second_token(
    portal: Portal, agent: Process
) -> None:
    agent.start()
    seen(lambda: len(portal.reports()) > 0)
    booked = a_slice(starts=now(), ends=now() + HOUR)
    portal.publish(a_document({portal.gpu(): [booked]}))
    seen(lambda: portal.states() == {"a1": "ready"})
    before = portal.reports()[-1]
    agent.stop(signal.SIGKILL)
    portal.client.delete(wire.report_stream(NODE))

    agent.start(GPU_AGENT_TOKEN="")
    seen(lambda: portal.states() == {"a1": "ready"})
    after = portal.reports()[0]
    # The steps of the first agent were for its own reports.
    same = tuple(dataclasses.replace(each, steps=()) for each in before.allocations)
    assert after.allocations == same
    assert after.gpus == before.gpus
    assert after.seq > before.seq
    assert len(portal.enrolments) == 1


def test_bookings_end_on_time_while_redis_is_away_and_that_is_told_afterwards(
    portal: Portal, agent: Process
) -> None:
    agent.start()
    seen(lambda: len(portal.reports()) > 0)
    booked = a_whole(starts=now(), ends=now() + 3)
    portal.publish(a_document({portal.gpu(): [booked]}))
    seen(lambda: portal.states() == {"w1": "ready"})
    folder = agent.state / "bookings" / "biology.BK-7"

    agent_account_replace(NODE, None)
    seen(lambda: not folder.exists())
    assert booked.ends <= time.time() < booked.ends + 2
    assert portal.states() == {"w1": "ready"}
    agent_account_open(NODE, portal.digest)
    seen(lambda: portal.states() == {"w1": "empty"})
    since = portal.reports()[-1].allocations[0].since
    assert since - booked.ends <= 1


@pytest.mark.bench
def test_a_change_is_applied_and_reported_in_half_a_second(portal: Portal, agent: Process) -> None:
    agent.start()
    seen(lambda: len(portal.reports()) > 0)
    taken: list[float] = []
    for generation in range(1, 21):
        slices = [
            a_slice(f"g{generation}-{slot}", slot=slot, starts=now(), ends=now() + HOUR) for slot in (0, 2, 4)
        ]
        begin = time.monotonic()
        portal.publish(a_document({portal.gpu(): slices}, generation=generation))
        wanted = {allocation.id for allocation in slices}
        wait_until(functools.partial(portal.all_ready, wanted), seconds=5)
        taken.append(time.monotonic() - begin)

    assert max(taken) < 0.5


def test_a_node_that_was_locked_out_enrols_again_and_keeps_what_it_holds(
    portal: Portal, agent: Process
) -> None:
    agent.start()
    seen(lambda: len(portal.reports()) > 0)
    booked = a_slice(starts=now(), ends=now() + HOUR)
    portal.publish(a_document({portal.gpu(): [booked]}))
    seen(lambda: portal.states() == {"a1": "ready"})
    agent.stop()
    portal.client.flushall()
    portal.identity |= {"key": (b"z" * 32).hex(), "key_version": 2}

    agent.start("--enrol-again")
    portal.keys = {2: b"z" * 32}
    seen(lambda: portal.states() == {"a1": "ready"})
    assert len(portal.enrolments) == 2


def test_the_agent_waits_for_a_portal_that_is_not_up_yet(portal: Portal, agent: Process) -> None:
    portal.answers.append((503, {}))
    agent.start()

    seen(lambda: len(portal.reports()) > 0)
    assert len(portal.enrolments) == 2


def test_a_token_that_was_used_up_ends_the_agent_with_the_portals_words(
    portal: Portal, agent: Process
) -> None:
    portal.answers.append((403, {"detail": "This token was used at 12:00."}))

    assert agent.start().wait(10) == 1
    agent.running = None
    assert "This token was used at 12:00." in agent.log()
    assert not (agent.state / "identity.json").exists()


def test_without_a_token_a_new_node_says_what_to_do(portal: Portal, agent: Process) -> None:
    assert agent.start(GPU_AGENT_TOKEN="").wait(10) == 1
    agent.running = None
    assert "give --portal and --token once" in agent.log()


def test_an_agent_that_can_not_read_its_state_begins_nothing(portal: Portal, agent: Process) -> None:
    agent.start()
    seen(lambda: len(portal.reports()) > 0)
    agent.stop()
    (agent.state / "state.json").write_text("{")

    assert agent.start().wait(10) == 1
    agent.running = None
    assert "state.json can't be used" in agent.log()


def test_the_agent_is_small(portal: Portal, agent: Process) -> None:
    process = agent.start()
    seen(lambda: len(portal.reports()) > 0)
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]

    assert int(line.split()[1]) <= 60 * 1024
