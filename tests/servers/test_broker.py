"""A task outlives the worker that had it, and a worker the broker that it was to notify."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Consumer, Queue
from kombu.transport.redis import Transport
from redis.exceptions import ConnectionError as NoConnection

from devtools.launch.processes import Program, group_kill, start, stop
from portal.celery import VISIBILITY_TIMEOUT, app
from tenants.platform.stores.broker import CountedTransport
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


@pytest.mark.parametrize(("transport", "asks_again"), [(Transport, False), (CountedTransport, True)])
def test_a_worker_asks_again_after_a_task_whose_end_the_broker_did_not_hear(
    servers: Servers, *, transport: type[Transport], asks_again: bool
) -> None:
    """With kombu's own transport it never does: its message counts as at work for good."""
    servers.valkey_ensure()
    taken = []
    with Connection(servers.access.url, transport=transport) as connection:
        channel: Any = connection.default_channel
        channel.basic_qos(0, prefetch_count=1)
        queue = Queue("deaf")
        connection.Producer().publish({}, routing_key=queue.name, declare=[queue])
        with Consumer(channel, [queue], callbacks=[lambda _, message: taken.append(message)]):
            connection.drain_events(timeout=5)
            process, _ = servers.running.pop("valkey")
            process.kill()
            process.wait()
            try:
                with pytest.raises(NoConnection):
                    taken[0].ack()
                assert channel.qos.can_consume() is asks_again
            finally:
                servers.valkey_ensure()


def test_the_portal_s_programs_use_that_transport() -> None:
    with app.connection_for_read() as connection:
        assert type(connection.transport) is CountedTransport
