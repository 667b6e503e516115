"""A message that Celery can't read is dropped, and the worker takes the next one."""

import base64
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from django.conf import settings
from redis import Redis

from devtools.launch.processes import Program, group_kill, start
from tenants.platform.stores.broker import message_fault
from tests.servers.live import worker_program
from tests.servers.probe_app import probe
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

UNACKED = "broker:unacked"
BODY: list[Any] = [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]


def message(body: object = BODY, **headers: object) -> dict[str, Any]:
    """A message as Celery writes it, with these headers."""
    return {
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": probe.name, "id": "x", "timelimit": [None, None], **headers},
        "properties": {
            "correlation_id": "x",
            "delivery_info": {"exchange": "", "routing_key": "default"},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": "t",
        },
    }


FAULTS: list[tuple[object, str]] = [
    (None, "message"),
    ([], "message"),
    ({}, "properties"),
    ({"body": 1}, "properties"),
    (message() | {"properties": {"delivery_tag": 5, "delivery_info": {}}}, "properties"),
    (message() | {"properties": {"delivery_tag": "t"}}, "delivery_info"),
    (message() | {"headers": [1]}, "headers"),
    (message() | {"body": 5}, "body"),
    (message() | {"body": "!"}, "body"),
    (message() | {"content-type": "application/x-python-serialize"}, "body"),
    (message({}), "body"),
    (message([[], []]), "body"),
    (message([{}, {}, {}]), "body"),
    (message(task=[]), "task"),
    (message(id=None), "id"),
    (message(eta="soon"), "eta"),
    (message(expires=5), "expires"),
    (message(timelimit="x"), "timelimit"),
    (message(timelimit=["a", None]), "timelimit"),
    (message(retries="x"), "retries"),
    (message(eta="2026-12-01T10:00:00+00:00", retries=0), ""),
    (message() | {"headers": {}}, ""),
]


@pytest.mark.parametrize(("sent", "fault"), FAULTS)
def test_the_part_that_celery_can_not_read_is_named(sent: object, fault: str) -> None:
    assert message_fault(sent) == fault


def worker(servers: Servers, folder: Path) -> tuple[Program, Path]:
    """A worker of the queue `default`, and the file in which a task says that it began."""
    plain = worker_program(servers, "default")
    command = [word.replace("portal", "tests.servers.probe_app") for word in plain.command]
    environment = {**os.environ, "PROBE_FILE": str(folder / "probe")}
    began = folder / "probe"
    began.touch()
    return replace(plain, command=(sys.executable, *command[1:]), environment=environment), began


@pytest.fixture
def broker(servers: Servers) -> Iterator[Redis]:
    """A client of the broker's server, which is not the agents' one."""
    servers.valkey_ensure()
    with Redis.from_url(settings.BROKER_REDIS_URL) as client:
        client.flushdb()
        yield client


@pytest.mark.faults
@pytest.mark.usefixtures("django_db_setup")
def test_a_worker_outlives_every_bad_message(servers: Servers, broker: Redis, tmp_path: Path) -> None:
    program, began = worker(servers, tmp_path)
    bad = [b"nonsense", b"\xff", b"[" * 20_000, *(json.dumps(one).encode() for one, fault in FAULTS if fault)]
    process = start(program)
    try:
        for each in bad:
            broker.lpush("broker:default", each)
        probe.delay()
        wait_until(lambda: "began" in began.read_text(), seconds=40)
        assert process.poll() is None
        assert broker.llen("broker:default") == 0
    finally:
        group_kill(process.pid)
        process.wait()


@pytest.mark.faults
@pytest.mark.usefixtures("django_db_setup")
def test_a_worker_outlives_bad_messages_that_nobody_acknowledged(
    servers: Servers, broker: Redis, tmp_path: Path
) -> None:
    """They are put back into their queues by whoever comes next, and one that can't be is dropped."""
    program, began = worker(servers, tmp_path)
    good = json.dumps([message(id="good"), "", "default"]).encode()
    bad = [
        b"nonsense",
        b"\xff",
        b"[" * 20_000,
        b"{}",
        b"5",
        b"null",
        b"[]",
        b"[1, 2]",
        b"[1, 2, 3]",
        b"[{}, {}, {}]",
    ]
    bad += [json.dumps([one, "", "default"]).encode() for one, fault in FAULTS if fault]
    tags = {f"tag-{number}": each for number, each in enumerate([*bad, good])}
    broker.hset(UNACKED, mapping=cast("dict[Any, Any]", tags))
    # A place without its message, too.
    broker.zadd(f"{UNACKED}_index", dict.fromkeys([*tags, "without"], 0.0))
    process = start(program)
    try:
        # Not until there is none: the task that was put back has its own place as soon as it begins.
        old = {each.encode() for each in (*tags, "without")}
        wait_until(lambda: old.isdisjoint(broker.zrange(f"{UNACKED}_index", 0, -1)), seconds=60)
        wait_until(lambda: "began" in began.read_text(), seconds=40)
        assert process.poll() is None
    finally:
        group_kill(process.pid)
        process.wait()
    # The task that was put back is at work for good.
    assert broker.hkeys(UNACKED) == [b"t"]
