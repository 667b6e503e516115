"""A task outlives the worker that had it."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from portal.celery import VISIBILITY_TIMEOUT
from portal.launch.processes import Program, group_kill, start, stop
from tests.servers.live import worker_program
from tests.servers.probe_app import probe
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until


@pytest.fixture
def worker(servers: Servers, tmp_path: Path) -> Program:
    """A worker that knows the probe and writes to a file of this test."""
    plain = worker_program(servers, "default")
    command = [word.replace("portal", "tests.servers.probe_app") for word in plain.command]
    environment = {**os.environ, "PROBE_FILE": str(tmp_path / "probe")}
    return replace(plain, command=(sys.executable, *command[1:]), environment=environment)


@pytest.fixture
def began(tmp_path: Path) -> Path:
    (tmp_path / "probe").touch()
    return tmp_path / "probe"


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.usefixtures("redis_client", "django_db_setup")
def test_a_task_of_a_killed_worker_is_run_by_the_next(worker: Program, began: Path) -> None:
    first = start(worker)
    probe.delay()
    wait_until(lambda: began.read_text().count("began") == 1, seconds=20)
    group_kill(first.pid)
    first.wait()
    second = start(worker)
    try:
        wait_until(lambda: began.read_text().count("began") == 2, seconds=VISIBILITY_TIMEOUT + 20)
    finally:
        stop(second, worker)
