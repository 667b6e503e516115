"""Each program has a watchdog that ends it when one of its loops is silent."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from allocation.services.record.liveness import ALWAYS, PROGRAMS, program_seen
from devtools.launch.processes import Program, group_kill, spawn_options
from devtools.launch.programs import PROGRAMS as OUR_PROGRAMS
from tenants.platform.stores.redis_servers import redis_client
from tenants.platform.watchdog import pulses
from tenants.platform.watchdog.notes import ends_read, silent_note
from tenants.platform.watchdog.process import IDLE_WEIGHT, START_LOOKS, STOPPED, Silence
from tenants.platform.watchdog.process import Servers as WatchedServers
from tenants.platform.watchdog.pulses import RESTS
from tests.servers.servers import ROOT, Servers
from tests.servers.waiting import wait_until

LOOPS = {"queue": "redis", "links": ""}
LIMIT = 12


def silent_for(looks: int, *, is_busy: bool = False) -> Silence:
    silence = Silence(LOOPS, LIMIT)
    silence.heard(b"\0")
    for _ in range(looks):
        silence.heard(b"", is_busy=is_busy)
    return silence


def test_a_loop_is_deaf_after_so_many_looks_without_a_pulse() -> None:
    assert silent_for(4).silent() == []
    assert (silent_for(5).silent(), silent_for(11).deaf()) == (["queue"], [])
    assert silent_for(12).deaf() == ["queue"]


def test_a_program_that_computes_gets_more_time() -> None:
    assert silent_for(LIMIT * IDLE_WEIGHT - 1, is_busy=True).deaf() == []
    assert silent_for(LIMIT * IDLE_WEIGHT, is_busy=True).deaf() == ["queue"]


def test_a_program_has_a_minute_to_start_and_a_loop_counts_from_its_first_pulse() -> None:
    silence = Silence(LOOPS, LIMIT)
    for _ in range(START_LOOKS - 1):
        silence.heard(b"")
    assert silence.deaf() == []
    silence.heard(b"")
    assert silence.deaf() == ["queue"]


def test_a_loop_that_ended_and_one_with_an_excuse_are_not_silent() -> None:
    silence = silent_for(LIMIT - 1)
    silence.heard(b"\1")
    for _ in range(LIMIT - 1):
        silence.heard(bytes([0, RESTS + 1]))
    silence.heard(b"\0")
    assert silence.silent() == []
    late = silent_for(LIMIT)
    late.excuse("queue")
    assert late.silent() == []


def test_a_stopped_child_is_silence() -> None:
    silence = silent_for(0)
    for _ in range(LIMIT + 1):
        silence.heard(b"\0")
        silence.stopped(is_stopped=True)
    assert silence.deaf() == [STOPPED]
    silence.stopped(is_stopped=False)
    assert silence.deaf() == []


@pytest.mark.django_db
def test_a_silent_or_missing_program_degrades_the_portal_until_it_works() -> None:
    cache.clear()
    assert Client().get("/readyz").json()["programs"] == "ok", "none has ever worked"
    for name in ALWAYS:
        program_seen(name, timezone.now())
    assert Client().get("/readyz").json()["status"] == "ok"
    silent_note(settings.CACHE_REDIS_URL, "solver", "queue")
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["programs"] == "solver: silent: queue"
    cache.delete("seen:beat")
    assert "beat: never worked" in Client().get("/readyz").json()["programs"]
    cache.clear()


def test_a_server_that_takes_no_writes_is_an_excuse() -> None:
    url = settings.CACHE_REDIS_URL
    found = WatchedServers({"redis": url})
    assert found.answers("redis")
    with redis_client(url) as server:
        before = server.config_get("maxmemory")["maxmemory"]
        server.config_set("maxmemory", "1")
        try:
            assert not found.answers("redis")
        finally:
            server.config_set("maxmemory", before)
    assert found.answers("redis")


def test_a_watchdog_that_was_killed_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    here = pulses._Here()
    monkeypatch.setattr(pulses, "_here", here)
    pulses.watchdog_start("beat", {"schedule": ""}, seconds=100_000, servers={})
    try:
        first = here.process
        assert first is not None
        first.kill()
        wait_until(lambda: first.poll() is not None, seconds=10)
        pulses._send("schedule")
        assert here.process is first, "not more often than twice a minute"
        here.started -= pulses.RESTART_SECONDS
        pulses._send("schedule")
        assert here.process is not first
        pulses._send("schedule")
        assert here.process is not None
        assert here.process.poll() is None
    finally:
        pulses.watchdog_stop()


@pytest.fixture
def running(real_db: Servers, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    """A program of the portal as it is started everywhere."""
    [program] = [each for each in OUR_PROGRAMS if each.name == request.param]
    real_db.valkey_ensure()
    cache.clear()
    log = real_db.folder / f"watched-{program.name}.log"
    started = Program(
        name=program.name,
        command=(sys.executable, *program.arguments),
        environment={
            **os.environ,
            "DATABASE_URL": real_db.dsn(program.role),
            "WATCHDOG_SECONDS": "6",
            **dict.fromkeys(program.needs, "http://127.0.0.1:1"),
            **program.settings,
        },
        folder=ROOT,
    )
    with log.open("wb") as output:
        process = subprocess.Popen(started.command, stdout=output, stderr=output, **spawn_options(started))
    yield process
    group_kill(process.pid)
    process.wait()
    sys.stderr.write(log.read_text(encoding="utf-8", errors="replace")[-2000:])


def watchdog_of(pid: int) -> int | None:
    """The watchdog of a program, once it has been started."""
    with suppress(OSError):
        for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if b"watchdog.process" in Path(f"/proc/{word}/cmdline").read_bytes():
                return int(word)
    return None


@pytest.mark.faults
@pytest.mark.turn
@pytest.mark.parametrize("running", [each.name for each in OUR_PROGRAMS], indirect=True)
def test_a_program_that_stands_still_is_ended(running: "subprocess.Popen[bytes]", real_db: Servers) -> None:
    """SIGSTOP of the whole program, the watchdog aside: no thread of it could do this."""
    wait_until(lambda: watchdog_of(running.pid) is not None, seconds=60)
    os.killpg(running.pid, signal.SIGSTOP)
    wait_until(lambda: running.poll() is not None, seconds=90)
    assert running.returncode == -signal.SIGKILL

    def ends() -> int:
        with suppress(redis.RedisError):
            return sum(ends_read(settings.CACHE_REDIS_URL, PROGRAMS).values())
        return 0

    wait_until(lambda: ends() == 1, seconds=10)
