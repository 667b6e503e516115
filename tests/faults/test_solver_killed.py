"""kill -9 of the decision-maker at every point where that could matter."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

import wire
from allocation.models import Allocation, BookingEvent, Decision, Gpu
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.services.decide import cycle, leading
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.decide.leading import CYCLE_LOCK, stalled_turn_end
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.runs.end import generations_raise
from solver import Plan, solve
from tests.builders_allocation import (
    NOW,
    a_booking_request,
    a_lab,
    a_model,
    a_policy,
    a_price_book,
    an_ask,
)
from tests.faults.crashing_cycle import OF_MOVES, POINTS
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers
from tests.servers.waiting import wait_until
from tests.services.moved import LATER, apart, asked, gpu_of
from tests.services.plant import NAME, Plant, a_plant, fresh

pytestmark = [pytest.mark.faults, pytest.mark.turn]
WRITTEN_BEFORE_COMMIT = (
    "before the plan is written",
    "in the middle of writing it",
    "before its history is written",
)


@pytest.fixture
def plant(real_db: Servers, tmp_path: Path) -> Iterator[Plant]:
    a_model(enrolled=False)
    a_policy()
    a_price_book()
    with a_plant(tmp_path, gpus=2) as found:
        yield found


def cycle_killed(servers: Servers, plant: Plant, point: str) -> None:
    """A cycle in a process of its own, which is seen to die by the signal."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.crashing_cycle", point, plant.now.isoformat()],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": servers.dsn("portal_system")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr


@pytest.mark.parametrize("point", POINTS)
def test_the_next_cycle_goes_on_where_a_killed_one_was(point: str, plant: Plant, real_db: Servers) -> None:
    lab = a_lab("helix", gpus=0)
    with as_system():
        bookings = [
            booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)
            for ask in (an_ask(), an_ask(profile="3g.40gb"))
        ]

    cycle_killed(real_db, plant, point)

    with as_system():
        assert invariants_check() == []
        count = Allocation.objects.count()
        assert count == (0 if point in WRITTEN_BEFORE_COMMIT else 2)
        assert Decision.objects.count() == (1 if count else 0)
    # The lock of the dead fell with its session: the next one leads at once.
    assert plant.cycle().outcome in ("decided", "unchanged")
    plant.round()
    assert [fresh(booking).state for booking in bookings] == ["active", "active"]
    assert sum(len(gpu.instances) for gpu in plant.hardware.gpus) == 1

    plant.later(timedelta(hours=1))
    with as_system():
        for booking in bookings:
            booking_release(actor=lab.actor, booking=booking, now=plant.now)
    plant.later(timedelta(seconds=10))
    assert [str(fresh(booking).charged) for booking in bookings] == ["4.800000", "2.400000"]
    with as_system():
        assert Allocation.objects.count() == 2
        assert invariants_check() == []


@pytest.mark.parametrize("point", OF_MOVES)
def test_a_move_is_made_whole_or_not_at_all(point: str, plant: Plant, real_db: Servers) -> None:
    lab = a_lab("helix", gpus=0)
    large, small = apart(plant, lab)
    new = asked(plant, lab, an_ask(starts=LATER))

    cycle_killed(real_db, plant, point)

    is_written = point == "when the move is committed"
    with as_system():
        assert invariants_check() == []
        assert Allocation.objects.filter(booking=new).exists() == is_written
    assert (gpu_of(large) == gpu_of(small)) == is_written
    plant.round()
    assert fresh(new).state == "scheduled"
    assert gpu_of(large) == gpu_of(small) != gpu_of(new)
    plant.later_until(LATER)
    assert [fresh(each).state for each in (large, small, new)] == ["active"] * 3
    with as_system():
        assert invariants_check() == []


def test_a_cycle_killed_while_it_ends_bookings_ends_them_next_time(plant: Plant, real_db: Servers) -> None:
    lab = a_lab("helix", gpus=0)
    with as_system():
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    plant.agent.wait_s()
    plant.now += timedelta(hours=2)
    cycle_killed(real_db, plant, "in the middle of an end")
    assert fresh(booking).state == "active"
    plant.round()
    assert (fresh(booking).state, str(fresh(booking).charged)) == ("ended", "9.600000")
    with as_system():
        assert invariants_check() == []


@pytest.mark.parametrize(
    "point",
    ["before the plan is written", "in the middle of writing it", "while a node is notified"],
)
def test_a_stopped_solver_loses_its_turn_and_writes_nothing_when_it_goes_on(
    point: str, plant: Plant, real_db: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP, and the connection stays open: outside a transaction, in one, and while it writes to
    the agents' server, where no transaction keeps a late word out."""
    monkeypatch.setattr("allocation.services.decide.leading.STALLED_SECONDS", 0.2)
    lab = a_lab("helix", gpus=0)
    with as_system():
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    command = ("tests.faults.crashing_cycle", point, plant.now.isoformat())
    stopped = subprocess.Popen(
        [sys.executable, "-m", *command, "SIGSTOP"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": real_db.dsn("portal_system")},
        stderr=subprocess.DEVNULL,
    )
    try:
        state = Path(f"/proc/{stopped.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", seconds=60)
        assert plant.cycle().outcome == "busy", "it stopped with the lock in its hand"
        wait_until(lambda: plant.cycle().outcome != "busy", seconds=20)
        assert fresh(booking).state == "starting"
        with as_system():
            generations_raise(Gpu.objects.values_list("id", flat=True))
        plant.cycle()
        notified = agents_redis().get(wire.desired_key(NAME))
        stopped.send_signal(signal.SIGCONT)
        assert stopped.wait(60) == 1
    finally:
        stopped.kill()
        stopped.wait()
    assert agents_redis().get(wire.desired_key(NAME)) == notified
    with as_system():
        assert (Allocation.objects.count(), Decision.objects.count()) == (1, 1)
        assert BookingEvent.objects.filter(kind="starting").count() == 1
        assert invariants_check() == []
    plant.round()
    assert fresh(booking).state == "active"


def test_a_turn_that_computes_is_left_alone(real_db: Servers) -> None:
    """Only silence counts: a statement that takes long is not a frozen process, and a turn that
    asked a moment ago computes."""
    with psycopg.connect(real_db.dsn("portal_system"), autocommit=True) as turn, as_system():
        turn.execute("SELECT pg_advisory_lock(1, %s)", [CYCLE_LOCK])
        assert cycle_run(NOW).outcome == "busy"
        assert not stalled_turn_end()
        assert turn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("most", [30.0, 0.0])
def test_a_turn_that_solves_for_long_keeps_its_session_for_a_time(
    plant: Plant, real_db: Servers, monkeypatch: pytest.MonkeyPatch, most: float
) -> None:
    """It computes three times as long as a silent session is left alone; beyond the limit it is
    taken for one that hangs."""
    monkeypatch.setattr(leading, "STALLED_SECONDS", 0.4)
    monkeypatch.setattr(leading, "MOST_SOLVE_SECONDS", most)
    lab = a_lab("helix", gpus=0)
    with as_system():
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    # The test's own login sees what its session does, and ends it, as portal_system does.
    with psycopg.connect(real_db.dsn("postgres"), autocommit=True) as admin:
        admin.execute("GRANT SELECT ON pg_stat_activity TO portal_test")
        for function in ("pg_stat_get_activity(int)", "pg_terminate_backend(int, bigint)"):
            admin.execute(f"GRANT EXECUTE ON FUNCTION {function} TO portal_test")
    params = connection.get_connection_params()
    names = {"dbname", "user", "password", "host", "port"} & params.keys()
    login = {name: params[name] for name in names}
    ended: list[bool] = []

    def slow(*given: Any, **kept: Any) -> Plan:  # noqa: ANN401
        until = time.monotonic() + 1.2
        with psycopg.connect(**login, autocommit=True) as second:
            while time.monotonic() < until and not ended:
                row = second.execute(leading._END_STALLED, [leading.CYCLE_LOCK, 0.4]).fetchone()
                ended.extend(row or ())
        return solve(*given, **kept)

    monkeypatch.setattr(cycle, "solve", slow)
    if most:
        plant.cycle()
        assert (ended, fresh(booking).state) == ([], "starting")
    else:
        with pytest.raises(OperationalError):
            plant.cycle()
        assert ended == [True]
