"""Shards over Redis have the bytes of one decision, whatever workers and Redis do."""

import base64
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from pytest_django import Settings

from allocation.models import EventCounter
from allocation.services import shards
from allocation.services.shards import decide_of, shards_count
from allocation.services.shards import queue as leader
from allocation.services.shards.letters import BadLetter, answered, opened, sealed
from allocation.services.shards.queue import ShardQueue
from allocation.services.shards.task import key_of, shard_decide
from devtools.launch.embedded import free_port
from devtools.launch.processes import Program, group_kill, start
from devtools.launch.programs import SHARD_PROGRAM
from solver import Plan, Policy, Snapshot, encode
from solver import solve as solve_any
from solver.cycle.solve import solve as solve_whole
from tests.bench.solver.crowded import site_of
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers
from tests.servers.waiting import wait_until

solve = partial(solve_any, split_from=0)
POLICY = Policy(1)
Server = redis.Redis
Act = Callable[[Server, list[dict[str, Any]]], None]


@pytest.fixture(scope="module")
def site() -> Snapshot:
    """Four shards."""
    return site_of(64, 60, 4, 0.5, split=True)


@pytest.fixture(scope="module")
def expected(site: Snapshot) -> bytes:
    return encode(solve(site, POLICY))


@dataclass(frozen=True)
class Run:
    """A leader and the Valkey that it sends to."""

    server: Server
    url: str
    shards: ShardQueue
    patch: pytest.MonkeyPatch


@pytest.fixture
def run(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    servers.valkey_ensure()
    url = f"{servers.access.url}/0"
    with redis.Redis.from_url(url) as client:
        yield Run(client, url, ShardQueue(url, most_seconds=30), monkeypatch)


def messages(server: Server) -> list[dict[str, Any]]:
    """What workers find in the queue, the first one first."""
    found = []
    while isinstance(raw := server.rpop("shards:decide"), bytes):
        body = json.loads(raw)["body"]
        found.append(json.loads(base64.b64decode(body))[1])
    return found


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Something happens while the leader decides its first shard, after it has sent the others."""
    waiting = [act]

    def solve_slowly(snapshot: Snapshot, policy: Policy) -> Plan:
        if waiting:
            waiting.pop()()
        return solve_whole(snapshot, policy)

    monkeypatch.setattr(leader, "solve_whole", solve_slowly)


def honest(server: Server, found: list[dict[str, Any]]) -> None:
    for each in found:
        shard_decide(server, **each)


def twice(server: Server, found: list[dict[str, Any]]) -> None:
    """Delivered again: the second has no claim. An answer that is there twice counts once."""
    honest(server, found + found)
    (answers,) = server.keys("shards:*:answers:")
    assert server.llen(answers) == len(found)
    server.rpush(answers, *server.lrange(answers, 0, -1))


def other_code(server: Server, found: list[dict[str, Any]]) -> None:
    """A worker says so at once; one that is wrong about its input or code is not believed."""
    first, second, third = found
    shard_decide(server, **first | {"code": "older"})
    data = server.get(key_of(second["job"], "input", second["shard"]))
    assert isinstance(data, bytes)
    plan = solve_whole(*opened(data, second["digest"]))
    answers = key_of(first["job"], "answers")
    server.rpush(answers, answered(second["shard"], first["digest"], plan))
    server.rpush(answers, answered(third["shard"], third["digest"], plan, code="older"))


def damaged(server: Server, found: list[dict[str, Any]]) -> None:
    answers = key_of(found[0]["job"], "answers")
    header = answered(found[0]["shard"], found[0]["digest"], None)
    for each in (b"", b"[]\n", b'{"shard": 1}\n', b"\x80\x04K\x01.", header, header + b"x\x9c"):
        server.rpush(answers, each)


def of_another_job(server: Server, found: list[dict[str, Any]]) -> None:
    """A late answer goes to a key that nobody reads."""
    plan = solve_whole(site_of(64, 10, 1, 0.5), POLICY)
    server.rpush(key_of("over", "answers"), answered(0, found[0]["digest"], plan))


def flushed(server: Server, found: list[dict[str, Any]]) -> None:
    server.set(key_of(found[0]["job"], "claim", found[0]["shard"]), "worker")
    server.flushall()
    honest(server, found)


@pytest.mark.parametrize(
    ("act", "counted"),
    [
        (honest, (3, 0)),
        (twice, (3, 0)),
        (other_code, (0, 3)),
        (damaged, (0, 6)),
        (of_another_job, (0, 0)),
        (flushed, (0, 0)),
    ],
)
def test_the_bytes_are_the_same_whatever_a_worker_answers(
    act: Act, counted: tuple[int, int], site: Snapshot, expected: bytes, run: Run
) -> None:
    answers, _ = counted
    meanwhile(run.patch, lambda: act(run.server, messages(run.server)))
    counts = run.shards.counts
    assert encode(solve(site, POLICY, run.shards.decide)) == expected
    assert (counts["answered"], counts["unusable"]) == counted
    assert counts["here"] == 4 - answers
    # Nothing stays, and the same leader continues: also after everything was flushed.
    kept = {key for key in run.server.keys("shards:*") if b"_kombu" not in key}
    assert kept <= {b"shards:over:answers:"}
    assert encode(solve(site, POLICY, run.shards.decide)) == expected
    assert counts["here"] == 8 - answers, "nobody works at the queue, so the leader does"
    assert run.server.llen("shards:decide") == 0


def test_a_worker_that_never_answers_is_given_up(site: Snapshot, expected: bytes, run: Run) -> None:
    """It renews its claims, so only the deadline helps."""

    def claimed() -> None:
        for each in messages(run.server):
            run.server.set(key_of(each["job"], "claim", each["shard"]), "worker")

    shards = ShardQueue(run.url, most_seconds=1)
    meanwhile(run.patch, claimed)
    assert encode(solve(site, POLICY, shards.decide)) == expected
    assert (shards.counts["too_late"], shards.counts["here"]) == (3, 4)


def test_what_is_too_large_or_has_no_redis_is_decided_here(site: Snapshot, expected: bytes, run: Run) -> None:
    small = ShardQueue(run.url, most_seconds=30, most_bytes=1)
    assert encode(solve(site, POLICY, small.decide)) == expected
    assert small.counts == {"too_large": 3, "here": 4, "sent": 0}
    gone = ShardQueue(f"redis://127.0.0.1:{free_port()}/0", most_seconds=30)
    assert encode(solve(site, POLICY, gone.decide)) == expected
    assert gone.counts == {"lost": 1, "here": 4}


@pytest.mark.django_db
def test_the_settings_name_the_queue_and_metrics_count_its_shards(
    site: Snapshot, expected: bytes, run: Run, settings: Settings
) -> None:
    settings.SOLVER_SHARDS = "queue"
    assert decide_of(site) is None, "a small site is not divided"
    run.patch.setattr(shards, "SPLIT_FROM", 1)
    settings.BROKER_REDIS_URL = run.url
    assert encode(solve(site, POLICY, decide_of(site))) == expected
    with as_system():
        shards_count()
        shards_count()
        assert dict(EventCounter.objects.values_list("name", "count")) == {
            "shards:sent": 3,
            "shards:here": 4,
        }
    settings.SOLVER_SHARDS = "here"
    assert decide_of(site) is None


def test_an_input_is_opened_only_with_its_digest(site: Snapshot) -> None:
    letter = sealed(site, POLICY)
    assert encode(opened(letter.data, letter.digest)[0]) == encode(site)
    with pytest.raises(BadLetter):
        opened(letter.data, "0" * 64)
    with pytest.raises(BadLetter):
        opened(letter.data[:-1], letter.digest)


@pytest.mark.faults
@pytest.mark.long
def test_a_worker_process_that_is_killed_costs_only_time(servers: Servers, run: Run) -> None:
    """A worker without database, key and settings decides what it takes; kill -9 while it computes
    is noticed, because its claim runs out."""
    site = site_of(128, 200, 2, 0.5, split=True)
    expected = encode(solve(site, POLICY))
    worker = start(worker_of(servers, run.server))
    keys, counts = run.server.keys, run.shards.counts
    try:
        meanwhile(run.patch, lambda: wait_until(lambda: len(keys("shards:*:answers:")) == 1, seconds=60))
        assert encode(solve(site, POLICY, run.shards.decide)) == expected
        assert counts == {"sent": 1, "answered": 1, "here": 1}
        counts.clear()

        def killed() -> None:
            wait_until(lambda: len(keys("shards:*:claim:*")) == 1, seconds=60, every=0.005)
            group_kill(worker.pid)

        meanwhile(run.patch, killed)
        assert encode(solve(site, POLICY, run.shards.decide)) == expected
        assert counts == {"sent": 1, "here": 2}
        assert worker.wait() == -signal.SIGKILL
    finally:
        group_kill(worker.pid)
        worker.wait()
        run.server.acl_deluser("shards")


def worker_of(servers: Servers, server: Server) -> Program:
    """A worker as on another machine: it knows Redis alone, by the account in deployment.md."""
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    rights = page.partition("ACL SETUSER shards on '>password' ")[2].partition("\n")[0].split()
    assert "~shards:*" in rights
    run: Callable[..., object] = server.execute_command  # redis-py has no type for it
    run("ACL", "SETUSER", "shards", "reset", "on", ">word", *rights)
    address = urlsplit(servers.access.url)
    url = f"redis://shards:word@{address.hostname}:{address.port}"
    return Program(
        name="shards",
        command=(sys.executable, *SHARD_PROGRAM.arguments, "-c", "1"),
        environment={"PATH": os.environ["PATH"], "REDIS_URL": url},
        folder=ROOT,
    )
