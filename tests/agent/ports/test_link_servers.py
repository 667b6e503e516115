"""A node whose address names several servers uses the one that admits it and takes its messages."""

import hashlib
import queue
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

import wire
from agent.ports.link import Arrival, Delivered, DocumentRead, Link, Outgoing, servers_of
from allocation.services.nodes.redis_accounts import agent_account_open
from devtools.launch.embedded import ValkeyAccess, free_port, server_home_make, valkey_prepare
from devtools.launch.processes import start, stop
from tests.agent.builders import NODE
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

PASSWORD = "b" * 64


class Other:
    """A second server, which at first does not know the node."""

    def __init__(self, folder: Path) -> None:
        self.access = ValkeyAccess(free_port(), "q" * 32, for_agents=True)
        self._program = valkey_prepare(server_home_make(folder), self.access, durable=False).program
        self._process = start(self._program)
        self.client: Any = redis.Redis.from_url(self.access.url, protocol=2)

    def follow(self, port: int, password: str) -> None:
        """Becomes the replica of another server."""
        self.client.config_set("masteruser", "portal")
        self.client.config_set("masterauth", password)
        self.client.execute_command("REPLICAOF", "127.0.0.1", port)
        wait_until(lambda: self.client.info("replication")["master_link_status"] == "up", seconds=20)

    def admit(self) -> None:
        """Opens an account that may do everything: what it may do is tested elsewhere."""
        rules = ("on", f">{PASSWORD}", "~*", "&*", "+@all")
        self.client.execute_command("ACL", "SETUSER", f"agent-{NODE}", *rules)

    def close(self) -> None:
        """Ends the server."""
        self.client.close()
        stop(self._process, self._program)


@pytest.fixture
def other(servers: Servers) -> Iterator[Other]:
    found = Other(servers.folder / "other")
    try:
        yield found
    finally:
        found.close()


class Node:
    """The link of a node with what arrived, and what it sends."""

    def __init__(self, *ports: int) -> None:
        places = ",".join(f"127.0.0.1:{port}" for port in ports)
        self._arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        url = f"redis://agent-{NODE}:{PASSWORD}@{places}/0"
        self.link = Link(url=url, node=NODE, deliver=self._arrived.put)
        self._sent = 0
        self.link.start()

    def delivers(self) -> bool:
        """Sends a report, and waits until a server has it."""
        self._sent += 1
        beat = wire.Heartbeat(seq=self._sent, observed_generation=0, sent_at=0)
        body = wire.seal(beat, key=b"k" * 32, key_version=1)
        self.link.send(Outgoing("report", body, self._sent))
        return self._came(lambda each: isinstance(each, Delivered) and each.seq == self._sent)

    def reads(self, raw: bytes) -> bool:
        """Waits until this document has been read."""
        return self._came(lambda each: isinstance(each, DocumentRead) and each.raw == raw)

    def _came(self, is_it: object) -> bool:
        with suppress(queue.Empty):
            while True:
                if is_it(self._arrived.get(timeout=15)):  # type: ignore[operator]
                    return True
        return False


@pytest.fixture
def first(servers: Servers, redis_client: "redis.Redis") -> int:
    agent_account_open(NODE, hashlib.sha256(PASSWORD.encode()).digest())
    return servers.agents_access.port


def test_an_address_has_an_account_for_each_of_its_servers() -> None:
    assert servers_of("rediss://n:p@one:1,two:2/0?ssl_ca_certs=x") == [
        "rediss://n:p@one:1/0?ssl_ca_certs=x",
        "rediss://n:p@two:2/0?ssl_ca_certs=x",
    ]
    assert servers_of("redis://n:p@one:1/0") == ["redis://n:p@one:1/0"]


def test_a_server_that_does_not_admit_the_node_is_passed_over(first: int, other: Other) -> None:
    node = Node(other.access.port, first)
    try:
        assert node.delivers()
        assert other.client.exists(wire.report_stream(NODE)) == 0
    finally:
        node.link.stop()


@pytest.mark.turn
def test_a_node_leaves_a_primary_that_became_a_replica(
    servers: Servers, first: int, other: Other, redis_client: "redis.Redis"
) -> None:
    """It reads on there as well, but what it sends is refused."""
    other.admit()
    node = Node(other.access.port, first)
    try:
        assert node.delivers()
        other.follow(first, servers.agents_access.portal)
        assert node.delivers()
        redis_client.set(wire.desired_key(NODE), b"newest")
        assert node.reads(b"newest")
    finally:
        node.link.stop()
