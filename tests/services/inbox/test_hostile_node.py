"""A node that was let in turns on the others, with its own credentials and nothing else."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from django.db import OperationalError

import wire
from allocation.models import Node
from allocation.services.inbox import account_guard, report_streams
from allocation.services.inbox.account_guard import AccountGuard
from allocation.services.inbox.consumer import BATCH, Reader
from allocation.services.inbox.throttle import BYTES_PER_SECOND, FLOOD_SECONDS, Throttle
from allocation.services.nodes.fleet import enrolment_token_create, node_enrol
from allocation.services.nodes.redis_accounts import agent_accounts_ensure, agents_redis
from tests.builders_allocation import NOW, a_model
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.nodes.test_redis_accounts import INVENTORY, Client

NODE, OTHER = "gpu-a1-01", "gpu-a1-02"
STREAM = wire.report_stream(NODE)
MIB = 1 << 20
# Commands that the server answers for every connection, with any rights.
FOR_ALL = {"auth", "hello", "quit", "reset"}
ALLOWED = {"ping", "get", "xadd", "subscribe", "unsubscribe", "client|setname", "client|setinfo"}
BODY: dict[Any, Any] = {"body": b"x" * MIB, "key": "1", "mac": "y"}


class Rig:
    """Two nodes that were let in, the portal's guard and reader, and a clock that tests move."""

    def __init__(self, stack: ExitStack) -> None:
        self.now = NOW
        self.stack = stack
        self.url = self._enrol(NODE)
        self._enrol(OTHER)
        self.bad = self.connect()
        self.guard = AccountGuard(lambda: self.now, self.steady)
        self.reader = Reader("the test's", lambda: self.now, self.steady)

    def _enrol(self, name: str) -> str:
        with as_system():
            token = enrolment_token_create(node_name=name, rack_name="a1", now=NOW)
        return str(node_enrol(token=token, inventory=INVENTORY, now=NOW)["redis_url"])

    def connect(self) -> Client:
        return self.stack.enter_context(redis.Redis.from_url(self.url, protocol=2, retry=None))

    def steady(self) -> float:
        return self.now.timestamp()

    def look(self, seconds: float = 1) -> set[str]:
        self.now += timedelta(seconds=seconds)
        with as_system():
            return self.guard.look()

    def read(self) -> int:
        with as_system():
            return self.reader.turn(block_ms=0)

    def is_locked_out(self, name: str = NODE) -> bool:
        with as_system():
            node = Node.objects.get(name=name)
        return node.link_digest is None and agents_redis().acl_getuser(f"agent-{name}") is None


@pytest.fixture
def rig(real_db: Servers) -> Iterator[Rig]:
    a_model()
    with as_system():
        agent_accounts_ensure()
    with ExitStack() as stack:
        yield Rig(stack)


def allowed(client: Client, words: list[str]) -> bool:
    """Whether the server would do it, and not whether it makes sense."""
    try:
        client.execute_command(*words)
    except redis.exceptions.NoPermissionError:
        return False
    except redis.RedisError:
        return True
    return True


def granted(words: list[str]) -> bool:
    """Whether the account has the right: some commands are refused to all, before rights count."""
    server: Any = agents_redis()
    answer = server.execute_command("ACL DRYRUN", f"agent-{NODE}", *words)
    return bool(answer == b"OK")


def commands(server: Client) -> Iterator[tuple[str, int]]:
    """Every command and subcommand of the server, with how many words it takes at least."""
    for _, name, arity, *_, inner in walk(server):
        if not inner:
            yield name.decode(), abs(arity)


def walk(server: Client) -> Iterator[tuple[Any, ...]]:
    connection = server.connection_pool.make_connection()
    try:
        connection.send_command("COMMAND")
        rows = connection.read_response()
    finally:
        connection.disconnect()
    for row in rows:
        subcommands = row[9]
        yield (None, row[0], row[1], subcommands)
        for inner in subcommands:
            yield (None, inner[0], inner[1], [])


def test_of_all_commands_of_the_server_a_node_may_use_seven(rig: Rig) -> None:
    """As the account itself, with as many words as each takes, on the node's own keys."""
    found, tried = set(), 0
    for name, words in commands(agents_redis()):
        parts = name.split("|")
        key = STREAM if name == "xadd" else wire.desired_key(NODE)
        key = wire.wake_channel(NODE) if "subscribe" in name else key
        client = rig.connect()
        said = [*parts, *[key] * (words - len(parts))]
        tried += 1
        if allowed(client, said) and granted(said):
            found.add(name)
    assert tried > 300
    assert found - FOR_ALL == ALLOWED


def test_no_other_database_is_within_reach(rig: Rig) -> None:
    assert not allowed(rig.bad, ["SELECT", "0"])
    assert not allowed(rig.bad, ["SELECT", "3"])
    assert agents_redis().config_get("databases") == {"databases": "1"}


def test_a_node_shares_no_server_with_tasks_sessions_and_live_pages(rig: Rig, valkey_url: str) -> None:
    assert valkey_url.rpartition("@")[2] not in rig.url
    place = rig.url.replace(rig.url.rpartition("@")[2], valkey_url.rpartition("@")[2])
    with redis.Redis.from_url(place) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_the_server_refuses_what_does_not_fit_and_ends_who_sends_too_large_a_command(
    rig: Rig,
) -> None:
    with pytest.raises(redis.RedisError):
        rig.bad.xadd(STREAM, {"body": b"x" * (4 * MIB)})
    assert agents_redis().xlen(STREAM) == 0
    many = {f"field-{number}": b"x" * MIB for number in range(100)}
    with pytest.raises(redis.RedisError):
        rig.connect().xadd(STREAM, many)
    assert agents_redis().xlen(STREAM) == 0
    found: Any = agents_redis().config_get("maxmemory*")
    assert int(found["maxmemory"]) > 0
    assert found["maxmemory-policy"] == "noeviction"


def fill(client: Client, megabytes: int) -> None:
    with client.pipeline(transaction=False) as pipe:
        for _ in range(megabytes):
            pipe.xadd(STREAM, BODY)
        pipe.execute()


def test_what_is_too_large_is_never_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    rig.read()
    monkeypatch.setattr(
        "allocation.services.inbox.consumer.messages_apply",
        lambda said, _: seen.append(sum(len(one.envelope.body) for one in said)),
    )
    fill(rig.bad, 30)
    assert rig.read() == 0
    assert sum(seen) == 0
    assert agents_redis().xlen(STREAM) == 0
    with as_system():
        assert Node.objects.get(name=NODE).throttled == 1
    assert not rig.is_locked_out()


def test_what_is_read_at_once_is_bounded_in_bytes_and_the_next_is_another_node(rig: Rig) -> None:
    rig.read()
    small = {**BODY, "body": b"x" * (MIB // 2)}
    for name in (NODE, OTHER):
        for _ in range(20):
            agents_redis().xadd(wire.report_stream(name), small)
    streams = [wire.report_stream(name) for name in (NODE, OTHER)]
    assert report_streams.BYTES_AT_ONCE == 32 * MIB
    entries, large = report_streams.streams_read("one", streams, BATCH)
    assert large == []
    assert sum(entry.size for entry in entries) <= report_streams.BYTES_AT_ONCE
    for name in (NODE, OTHER):
        for _ in range(20):
            agents_redis().xadd(wire.report_stream(name), {**small, "body": b"x" * 800_000})
    entries, _ = report_streams.streams_read("one", streams[::-1], BATCH)
    assert {entry.stream for entry in entries} <= {streams[1]}


def test_a_stream_far_beyond_its_quota_costs_the_node_its_place_at_once(rig: Rig) -> None:
    rig.read()
    fill(rig.bad, 70)
    assert rig.look(0.25) == {NODE}
    assert rig.is_locked_out()
    assert not rig.is_locked_out(OTHER)
    assert agents_redis().xlen(STREAM) == 0
    with pytest.raises(redis.RedisError):
        rig.bad.xadd(STREAM, {"body": "x"})


def test_the_reader_alone_locks_it_out_too(rig: Rig) -> None:
    rig.read()
    fill(rig.bad, 70)
    assert rig.read() == 0
    assert rig.is_locked_out()


def test_so_does_a_stream_of_very_many_small_entries(rig: Rig) -> None:
    rig.read()
    with rig.bad.pipeline(transaction=False) as pipe:
        for _ in range(report_streams.FAR_OVER * report_streams.ENTRIES_MOST + 1):
            pipe.xadd(STREAM, {"x": "y"})
        pipe.execute()
    assert rig.look(0.25) == {NODE}
    assert rig.is_locked_out()


def until_cut(rig: Rig, action: Callable[[], object]) -> int:
    """Seconds of doing so until the node is cut off."""
    for second in range(1, 2 * FLOOD_SECONDS):
        action()
        if rig.look():
            return second
    raise AssertionError("it was not cut off")


def test_who_trims_its_own_flood_is_found_by_what_it_sent(rig: Rig) -> None:
    def trimmed() -> None:
        for _ in range(5):
            rig.bad.xadd(STREAM, BODY, maxlen=1, approximate=False)

    assert until_cut(rig, trimmed) >= FLOOD_SECONDS
    assert rig.is_locked_out()


def test_so_is_who_reads_its_own_document_all_the_time(rig: Rig) -> None:
    agents_redis().set(wire.desired_key(NODE), b"x" * MIB)

    def greedy() -> None:
        with rig.bad.pipeline(transaction=False) as pipe:
            for _ in range(5):
                pipe.get(wire.desired_key(NODE))
            pipe.execute()

    assert until_cut(rig, greedy) >= FLOOD_SECONDS


def test_so_is_who_asks_for_nothing_very_often(rig: Rig) -> None:
    def pings() -> None:
        with rig.bad.pipeline(transaction=False) as pipe:
            for _ in range(2 * account_guard.COMMANDS_PER_SECOND):
                pipe.ping()
            pipe.execute()

    assert until_cut(rig, pings) >= FLOOD_SECONDS


def test_a_node_that_takes_all_connections_loses_them(rig: Rig) -> None:
    clients = [rig.connect() for _ in range(account_guard.CONNECTIONS_MOST)]
    for client in clients:
        client.ping()
    rig.bad.ping()
    assert rig.look(0.25) == {NODE}
    assert rig.is_locked_out()


def test_an_agent_as_it_is_meant_is_never_cut_off(rig: Rig) -> None:
    """Three connections, a burst of news and a report now and then."""
    lines = [rig.connect() for _ in range(3)]
    for second in range(3 * FLOOD_SECONDS):
        for line in lines:
            line.ping()
        rig.bad.xadd(STREAM, {**BODY, "body": b"x" * 20_000}, maxlen=1000)
        if second % 10 == 0:
            fill(rig.bad, 3)
        assert rig.look() == set()
        rig.read()
    assert not rig.is_locked_out()


def test_without_the_database_the_flood_ends_all_the_same(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.read()
    assert rig.look() == set()

    def gone(**_: object) -> None:
        raise OperationalError("the connection is gone")

    monkeypatch.setattr(account_guard, "node_flooded", gone)
    # The name in that module alone: the fixture's own connection is closed as ever.
    monkeypatch.setattr(account_guard, "connections", SimpleNamespace(close_all=lambda: None))
    fill(rig.bad, 70)
    assert rig.look() == {NODE}
    assert agents_redis().xlen(STREAM) == 0
    with pytest.raises(redis.RedisError):
        rig.bad.xadd(STREAM, {"body": "x"})


def test_bytes_use_up_a_second_as_messages_do() -> None:
    watch = Throttle()
    assert not watch.count("one", 1, BYTES_PER_SECOND - 1, 7.0)
    assert watch.count("one", 1, 1, 7.1)
    assert not watch.may_send("one", 7.2)
    assert watch.may_send("two", 7.2)
    for second in range(8, 8 + FLOOD_SECONDS):
        watch.count("one", 1, BYTES_PER_SECOND, second)
    assert watch.floods("one")
