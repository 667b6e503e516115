"""Each node's account at Redis: what it reaches, how it ends, and that it comes back."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, TypeAlias, cast

import pytest
import redis
from django.db import transaction

import wire
from allocation.models import EnrolmentToken, Node
from allocation.services.inbox.consumer import Reader
from allocation.services.nodes import redis_accounts
from allocation.services.nodes.fleet import (
    enrolment_token_create,
    node_approve,
    node_enrol,
    node_key_rotate,
    node_revoke,
)
from allocation.services.nodes.redis_accounts import agent_accounts_ensure, agents_redis
from allocation.services.publish.publish import republish_all
from tenants.models import User
from tenants.platform.errors import Refused
from tests.builders import an_operator
from tests.builders_allocation import NOW, a_model
from tests.roles import as_system
from tests.servers.servers import Servers

INVENTORY = {
    "hostname": "n",
    "driver": "580",
    "agent": "0.1.0",
    "boot": "b",
    "cores": 1,
    "memory_mb": 1,
    "gpus": [],
}


Client: TypeAlias = Any
"""Redis's, which has no precise types."""


@dataclasses.dataclass
class Site:
    """Makes clients as agents would, from what enrolment answers."""

    stack: ExitStack
    operator: User

    def enrol(self, name: str) -> Client:
        with as_system():
            token = enrolment_token_create(node_name=name, rack_name="a1", now=NOW)
        answer = node_enrol(token=token, inventory=INVENTORY, now=NOW)
        client: Any = redis.Redis.from_url(str(answer["redis_url"]), protocol=2)
        return self.stack.enter_context(client)

    def revoke(self, name: str) -> None:
        with as_system(), transaction.atomic():
            node_revoke(operator=self.operator, node=Node.objects.get(name=name), now=NOW)


@pytest.fixture
def site(real_db: Servers) -> Iterator[Site]:
    a_model()
    with as_system():
        agent_accounts_ensure()
    with ExitStack() as stack:
        yield Site(stack, an_operator())


def refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except redis.exceptions.NoPermissionError:
        return True
    return False


def heard(client: Client, channel: str, command: str = "SUBSCRIBE") -> object:
    """What the server answers to listening to a channel."""
    connection = client.connection_pool.make_connection()
    try:
        connection.send_command(command, channel)
        return connection.read_response()
    finally:
        connection.disconnect()


def is_in(client: Client) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_an_agent_reaches_its_own_document_stream_and_channel_and_nothing_else(site: Site) -> None:
    one = site.enrol("gpu-a1-01")
    site.enrol("gpu-a1-02")
    with as_system():
        republish_all(NOW)
    own, other = "gpu-a1-01", "gpu-a1-02"

    assert one.get(wire.desired_key(own))
    assert one.xadd(wire.report_stream(own), {"body": "x"}, maxlen=1000)
    assert heard(one, wire.wake_channel(own))
    assert one.get(wire.lease_key(own)) is None
    attempts: dict[str, Callable[[], object]] = {
        "another's document": lambda: one.get(wire.desired_key(other)),
        "another's lease": lambda: one.get(wire.lease_key(other)),
        "writing its own lease": lambda: one.set(wire.lease_key(own), "x"),
        "another's stream": lambda: one.xadd(wire.report_stream(other), {"body": "x"}),
        "another's channel": lambda: heard(one, wire.wake_channel(other)),
        "a pattern of channels": lambda: heard(one, "agent:*", "PSUBSCRIBE"),
        "writing its own document": lambda: one.set(wire.desired_key(own), "x"),
        "reading its own stream": lambda: one.xrange(wire.report_stream(own)),
        "waking itself": lambda: one.publish(wire.wake_channel(own), "x"),
        "a task": lambda: one.lpush("default", "x"),
        "the names of keys": lambda: one.keys("*"),
        "the accounts": one.acl_list,
        "a script": lambda: one.eval("return 1", 0),
        "the configuration": lambda: one.config_get("*"),
        "emptying the server": one.flushall,
    }
    assert [name for name, attempt in attempts.items() if not refused(attempt)] == []


def test_names_that_only_begin_alike_are_different_nodes(site: Site) -> None:
    one = site.enrol("gpu-a1")
    site.enrol("gpu-a1-01")
    assert refused(lambda: one.get(wire.desired_key("gpu-a1-01")))


def test_without_its_own_rights_a_node_would_read_the_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: one pattern for all nodes, and A reads what is B's."""
    monkeypatch.setattr(wire, "desired_key", lambda _: "agent:*:desired")
    one = site.enrol("gpu-a1-01")
    monkeypatch.undo()
    assert not refused(lambda: one.get(wire.desired_key("gpu-a1-02")))


def test_a_revoked_agent_is_cut_off_in_the_middle_of_listening(site: Site) -> None:
    one, two = site.enrol("gpu-a1-01"), site.enrol("gpu-a1-02")
    listening = one.pubsub()
    listening.subscribe(wire.wake_channel("gpu-a1-01"))
    assert listening.get_message(timeout=5)
    held = one.connection_pool.get_connection()
    held.send_command("PING")
    assert held.read_response()

    site.revoke("gpu-a1-01")
    # The very socket is gone, not only the right to open another one.
    with pytest.raises(redis.ConnectionError):
        held.read_response(timeout=5)
    assert not is_in(one)
    assert is_in(two)
    assert not [client for client in agents_redis().client_list() if client["user"] == "agent-gpu-a1-01"]


def test_a_revoked_node_waits_in_quarantine_and_its_word_and_tokens_are_worthless(
    site: Site,
) -> None:
    site.enrol("gpu-a1-01")
    with as_system():
        spare = enrolment_token_create(node_name="gpu-a1-01", rack_name="a1", now=NOW)
        before = Node.objects.get()
    site.revoke("gpu-a1-01")
    with as_system():
        after = Node.objects.get()
        assert (after.state, after.link_digest) == (Node.State.QUARANTINED, None)
        assert after.key_version == after.key_confirmed == before.key_version + 1
        assert not EnrolmentToken.objects.filter(used_at=None).exists()
        assert republish_all(NOW) == 0
        for act in (node_revoke, node_approve, node_key_rotate):
            with pytest.raises(Refused, match="enrol-again") as refused, transaction.atomic():
                act(operator=site.operator, node=after, now=NOW)
            assert refused.value.code == "node_locked_out"
    with pytest.raises(Refused, match="enrolment_refused"):
        node_enrol(token=spare, inventory=INVENTORY, now=NOW)

    assert is_in(site.enrol("gpu-a1-01"))
    with as_system():
        assert Node.objects.get().state == Node.State.QUARANTINED
        node_approve(operator=site.operator, node=Node.objects.get(), now=NOW)
        assert Node.objects.get().state == Node.State.READY


def test_an_agent_that_is_enrolled_again_replaces_the_one_before(site: Site) -> None:
    old = site.enrol("gpu-a1-01")
    assert is_in(old)
    # A lease that the old key has signed would be refused by the new agent.
    lease = wire.lease_key("gpu-a1-01")
    agents_redis().set(lease, b"signed with the old key")
    new = site.enrol("gpu-a1-01")
    assert new.get(lease) is None
    assert is_in(new)
    assert not is_in(old)


def test_a_server_that_forgot_its_accounts_gets_them_back_from_the_reader(site: Site) -> None:
    one = site.enrol("gpu-a1-01")
    agents_redis().acl_deluser("agent-gpu-a1-01")
    assert not is_in(one)
    with as_system():
        Reader("the test's", clock=lambda: NOW + timedelta(seconds=1)).turn(block_ms=0)
    assert is_in(one)
    with as_system():
        assert agent_accounts_ensure() == 0


def test_what_was_revoked_while_redis_was_away_ends_when_it_is_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = site.enrol("gpu-a1-01")

    def away(_: str) -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(redis_accounts, "_close", away)
    site.revoke("gpu-a1-01")
    assert is_in(one)
    monkeypatch.undo()
    with as_system():
        assert agent_accounts_ensure() == 1
    assert not is_in(one)


def test_an_account_with_another_password_is_set_right(site: Site) -> None:
    one, server = site.enrol("gpu-a1-01"), cast(Any, agents_redis())
    server.execute_command("ACL SETUSER", "agent-gpu-a1-01", "resetpass", ">guessed")
    with as_system():
        assert agent_accounts_ensure() == 1
    one.connection_pool.disconnect()
    assert is_in(one)
    url = redis_accounts.account_url("gpu-a1-01", "guessed")
    with redis.Redis.from_url(url, protocol=2) as client:
        assert not is_in(client)


def test_a_server_that_does_not_know_how_clients_introduce_themselves_serves_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis 7.0 refuses an account with a subcommand that it does not have."""
    monkeypatch.setattr(redis_accounts, "_INTRODUCTION", "+client|setinfo-of-tomorrow")
    one = site.enrol("gpu-a1-01")
    assert is_in(one)
    assert one.xadd(wire.report_stream("gpu-a1-01"), {"body": "x"})


def test_the_portals_own_account_is_never_told_to_an_agent(site: Site) -> None:
    url = redis_accounts.account_url("gpu-a1-01", "secret")
    assert url.startswith("redis://agent-gpu-a1-01:secret@127.0.0.1:")
    assert "portal" not in url
    assert url.endswith("/0")


@pytest.mark.parametrize("name", ["*", "gpu-*", "gpu?", "[a]", "a b", "a:b", "GPU", "", "-a"])
def test_a_name_that_could_mean_other_nodes_is_refused(site: Site, name: str) -> None:
    with as_system(), pytest.raises(Refused, match="node_name_invalid"):
        enrolment_token_create(node_name=name, rack_name="a1", now=NOW)


def test_an_account_of_an_older_portal_gets_what_it_lacks(site: Site) -> None:
    one, server = site.enrol("gpu-a1-01"), cast(Any, agents_redis())
    server.execute_command(
        *["ACL SETUSER", "agent-gpu-a1-01", "resetkeys"],
        *[f"%R~{wire.desired_key('gpu-a1-01')}", f"%W~{wire.report_stream('gpu-a1-01')}"],
    )
    assert refused(lambda: one.get(wire.lease_key("gpu-a1-01")))
    with as_system():
        assert agent_accounts_ensure() == 1
        assert not refused(lambda: one.get(wire.lease_key("gpu-a1-01")))
        assert agent_accounts_ensure() == 0
