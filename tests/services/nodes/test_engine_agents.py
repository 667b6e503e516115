"""One identity for many hosts: what an engine may say, what it gets, and how its access ends."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
import redis
from django.db import IntegrityError, transaction

import wire
from allocation.models import EngineAgent, EngineHost, Gpu, Node
from allocation.services.inbox.account_guard import AccountGuard
from allocation.services.inbox.apply import message_apply
from allocation.services.nodes.engines import (
    engine_enrol,
    engine_hosts_approve,
    engine_hosts_take,
    engine_key_rotate,
    engine_revoke,
    engine_token_create,
)
from allocation.services.nodes.fleet import (
    enrolment_token_create,
    node_approve,
    node_enrol,
    node_flooded,
    node_key,
    node_revoke,
)
from allocation.services.nodes.redis_accounts import (
    agent_account_open,
    agent_accounts_ensure,
    agents_redis,
    excess_rights,
)
from allocation.services.publish.publish import republish_all
from tenants.models import User
from tenants.platform.errors import Refused
from tests.builders import an_operator
from tests.builders_allocation import NOW, a_model
from tests.roles import as_role, as_system
from tests.servers.servers import Servers

KIND = "2 × NVIDIA H100 80GB HBM3"
Client: TypeAlias = Any
"""Redis's, which has no precise types."""


def inventory_of(
    name: str, *, gpus: int = 2, model: str = "NVIDIA H100 80GB HBM3", engine: wire.Engine = "slurm"
) -> wire.Inventory:
    found = tuple(
        wire.InventoryGpu(
            index=index,
            uuid=f"GPU-{name}-{index}",
            name=model,
            memory_mb=81559,
            mig_capable=False,
            mode="whole",
            numa=None,
            pci="",
            nvlink_domain=None,
        )
        for index in range(gpus)
    )
    return wire.Inventory(
        hostname=name,
        driver="Slurm 22.05.8",
        agent="0.9.0",
        boot="b",
        cores=8,
        memory_mb=8000,
        gpus=found,
        engine=engine,
    )


def plain_of(name: str) -> object:
    """The inventory as an agent of the host's own sends it."""
    return json.loads(json.dumps(wire.inventory_to_plain(inventory_of(name))))


def device_of(name: str) -> object:
    """The inventory of a node without a scheduler."""
    return json.loads(json.dumps(wire.inventory_to_plain(inventory_of(name, engine="device"))))


def as_operators() -> AbstractContextManager[None]:
    """As the process of operators is."""
    return as_role("portal_ops")


class Agent:
    """The engine's side: its identity, and what it sends."""

    def __init__(self, answer: dict[str, Any], stack: ExitStack) -> None:
        self.name = str(answer["engine"])
        self.keys = {int(answer["key_version"]): bytes.fromhex(answer["key"])}
        self.url = str(answer["redis_url"])
        client: Any = redis.Redis.from_url(self.url, protocol=2)
        self.client: Client = stack.enter_context(client)
        self.password = self.url.partition("@")[0].rpartition(":")[2]
        self.seq = 0
        self.hosts: dict[str, tuple[int, bytes]] = {}

    def sealed(self, *names: str, **fields: Any) -> wire.Envelope:  # noqa: ANN401 (of the message)
        self.seq += 1
        inventories = fields.pop("inventories", tuple(inventory_of(name) for name in names))
        message = wire.EngineHosts(**{"seq": self.seq, "names": names, "inventories": inventories, **fields})
        return wire.seal(message, key=self.keys[max(self.keys)], key_version=max(self.keys))

    def says(self, *names: str, **fields: Any) -> wire.EngineAnswer:  # noqa: ANN401 (of the message)
        """Reports these hosts; takes in the answer as the engine does."""
        sealed = engine_hosts_take(password=self.password, envelope=self.sealed(*names, **fields), now=NOW)
        answer = wire.open_engine_answer(sealed, self.keys)
        key = self.keys[sealed.key_version]
        for host in answer.hosts:
            plain = wire.key_unwrap(old=key, hidden=host.hidden, node=host.node, version=host.key_version)
            self.hosts[host.node] = (host.key_version, plain)
        if answer.rotation is not None:
            version, node = answer.rotation.version, wire.engine_account(self.name)
            self.keys[version] = wire.key_unwrap(
                old=key, hidden=answer.rotation.hidden, node=node, version=version
            )
        return answer

    def reports(self, name: str, *, as_host: str | None = None) -> str:
        """What the portal makes of a heartbeat of a host, signed by the key of `as_host`."""
        version, key = self.hosts[as_host or name]
        with as_system():
            seq = Node.objects.get(name=name).heartbeat_seq + 1
            beat = wire.Heartbeat(seq=seq, observed_generation=0, sent_at=int(NOW.timestamp()))
            sealed = wire.seal(beat, key=key, key_version=version)
            return message_apply(node_name=name, envelope=sealed, now=NOW)


@dataclasses.dataclass
class Site:
    """Enrols engines and approves their hosts."""

    stack: ExitStack
    operator: User

    def enrol(self, name: str = "main", scheduler: str = "slurm") -> Agent:
        with as_operators():
            token = engine_token_create(engine=name, rack="a1", now=NOW)
        return Agent(engine_enrol(token=token, scheduler=scheduler, agent="0.9.0", now=NOW), self.stack)

    def approve(self, *names: str, kind: str = "", engine: str = "main", rack: str = "") -> list[str]:
        with as_operators(), transaction.atomic():
            return engine_hosts_approve(
                operator=self.operator, engine_name=engine, names=names, kind=kind, rack=rack, now=NOW
            )

    def revoke(self) -> None:
        with as_operators(), transaction.atomic():
            engine_revoke(operator=self.operator, engine_name="main", now=NOW)


@pytest.fixture
def site(real_db: Servers) -> Iterator[Site]:
    a_model()
    with as_system():
        agent_accounts_ensure()
    with ExitStack() as stack:
        yield Site(stack, an_operator())


def code_of(attempt: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        attempt()
    return refused.value.code


def denied(attempt: Callable[[], object]) -> bool:
    """Whether the agents' server refuses it to the account, or the account."""
    try:
        attempt()
    except (redis.exceptions.NoPermissionError, redis.ConnectionError):
        return True
    return False


def writes(agent: Agent, name: str) -> bool:
    return not denied(lambda: agent.client.xadd(wire.report_stream(name), {"body": "x"}, maxlen=10))


def states() -> dict[str, str]:
    with as_system():
        return dict(Node.objects.order_by("name").values_list("name", "state"))


def reported() -> dict[str, bool]:
    """The hosts that are known, and whether each is gone."""
    with as_system():
        return {row.name: row.gone is not None for row in EngineHost.objects.all()}


def test_one_enrolment_adopts_all_hosts_of_a_kind_with_one_press(site: Site) -> None:
    agent = site.enrol()
    others = (inventory_of("n1"), inventory_of("n2"), inventory_of("n3", gpus=4))
    assert agent.says("n1", "n2", "n3", inventories=others).hosts == ()
    assert states() == {}
    assert denied(agent.client.ping)

    assert site.approve(kind=KIND) == ["n1", "n2"]
    assert states() == {"n1": "ready", "n2": "ready"}
    with as_system():
        rows = list(Node.objects.order_by("name"))
        assert {(row.engine, row.engine_agent_id, row.gpus.count()) for row in rows} == {("slurm", "main", 2)}
        republish_all(NOW)

    # Each host has its own document, signed by its own key, which only the engine can read.
    answer = agent.says("n1", "n2", "n3", inventories=())
    assert [host.node for host in answer.hosts] == ["n1", "n2"]
    for row in rows:
        version, key = agent.hosts[row.name]
        raw = agent.client.get(wire.desired_key(row.name))
        document = wire.open_desired(wire.Envelope.from_json(raw), {version: key})
        assert document.node == row.name
        assert agent.reports(row.name) == "applied"
        assert writes(agent, row.name)
    assert not writes(agent, "n3")

    assert site.approve("n3") == ["n3"]
    assert writes(agent, "n3")


def test_hosts_come_and_go_with_the_cluster(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1", "n2")
    site.approve("n1")
    answer = agent.says("n3", inventories=())
    # One that waited is forgotten, and one that is a node is gone until it comes back.
    assert reported() == {"n1": True, "n3": False}
    assert [host.node for host in answer.hosts] == ["n1"]
    assert answer.wanted == ("n3",)
    with as_system():
        assert set(Gpu.objects.values_list("health", "health_reason")) == {
            ("draining", "Nothing new starts on it: its engine no longer reports the host.")
        }
    assert code_of(lambda: site.approve("n3")) == "not_found"
    assert agent.says("n1", "n3").wanted == ()
    assert reported() == {"n1": False, "n3": False}


def test_a_host_is_of_one_identity(site: Site) -> None:
    agent, other = site.enrol(), site.enrol("other")
    with as_system():
        token = enrolment_token_create(node_name="own", rack_name="a1", now=NOW)
    node_enrol(token=token, inventory=device_of("own"), now=NOW)
    agent.says("n1")
    site.approve("n1")
    other.says("n1", "own")
    for name in ("n1", "own"):
        assert code_of(lambda name=name: site.approve(name, engine="other")) == "host_taken"  # type: ignore[misc]
    assert code_of(lambda: site.approve(kind=KIND, engine="other")) == "no_host_of_kind"
    # After its agent was locked out an operator may hand it over, by name.
    with as_system(), transaction.atomic():
        node_revoke(operator=site.operator, node=Node.objects.get(name="own"), now=NOW)
    assert code_of(lambda: site.approve(kind=KIND, engine="other")) == "no_host_of_kind"
    assert site.approve("own", engine="other") == ["own"]
    assert states()["own"] == "ready"
    # An agent that enrols as a host takes it from the engine.
    with as_system():
        token = enrolment_token_create(node_name="n1", rack_name="a1", now=NOW)
    node_enrol(token=token, inventory=device_of("n1"), now=NOW)
    assert not writes(agent, "n1")
    assert agent.says("n1").hosts == ()
    # The database itself keeps hosts and engines together.
    with as_system(), pytest.raises(IntegrityError, match="another account"), transaction.atomic():
        Node.objects.filter(name="n1").update(engine_agent="main")


def test_an_engine_speaks_for_its_own_hosts_only(site: Site) -> None:
    agent, other = site.enrol(), site.enrol("other")
    agent.says("n1")
    other.says("n2")
    site.approve("n1")
    site.approve("n2", engine="other")
    agent.says("n1", "n2")
    other.says("n2")
    assert "n2" not in agent.hosts
    assert not writes(agent, "n2")
    # One host's key does not speak for another, and neither does that of an engine.
    assert agent.reports("n2", as_host="n1") == "refused"
    agent.hosts["n2"] = (other.hosts["n2"][0], agent.keys[max(agent.keys)])
    assert agent.reports("n2") == "refused"
    # Its message is taken from its account only, once, and with its key.
    stolen = agent.sealed("n1", "n9")
    many = agent.sealed(*(f"n{number}" for number in range(1025)), inventories=())
    for password, envelope, code in (
        (other.password, stolen, "engine_message_invalid"),
        ("0" * 64, stolen, "engine_locked_out"),
        (agent.password, dataclasses.replace(stolen, mac="0" * 64), "engine_message_invalid"),
        (agent.password, agent.sealed("n1", seq=1), "engine_message_old"),
        (agent.password, agent.sealed("n1", inventories=(inventory_of("n2"),)), "engine_message_invalid"),
        (agent.password, agent.sealed("n1", "n1"), "engine_message_invalid"),
        (agent.password, many, "engine_message_invalid"),
    ):
        assert (
            code_of(
                lambda p=password, e=envelope: engine_hosts_take(password=p, envelope=e, now=NOW)  # type: ignore[misc]
            )
            == code
        )
    bare = dataclasses.replace(inventory_of("n1"), engine="device")
    assert code_of(lambda: agent.says("n1", inventories=(bare,))) == "engine_message_invalid"
    assert reported() == {"n1": False, "n2": False}


def test_what_it_says_of_a_node_changes_nothing_of_the_node(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1")
    site.approve("n1")
    with as_system():
        before = list(Gpu.objects.order_by("uuid").values())
    agent.says("n1", inventories=(inventory_of("n1", gpus=4),))
    with as_system():
        assert list(Gpu.objects.order_by("uuid").values()) == before
    # A GPU that another node has quarantines the new host: it does not move.
    forged = dataclasses.replace(inventory_of("n2"), gpus=inventory_of("n1").gpus)
    agent.says("n1", "n2", inventories=(forged,))
    site.approve("n2")
    assert states() == {"n1": "ready", "n2": "quarantined"}
    with as_system():
        assert set(Gpu.objects.values_list("node__name", flat=True)) == {"n1"}


def test_lock_out_is_of_the_whole_and_so_is_the_return(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1", "n2")
    site.approve(kind=KIND)
    agent.says("n1", "n2")
    site.revoke()
    assert states() == {"n1": "quarantined", "n2": "quarantined"}
    assert (writes(agent, "n1"), agent.reports("n1")) == (False, "refused")
    assert code_of(lambda: agent.says("n1")) == "engine_locked_out"
    assert code_of(lambda: site.approve("n1")) == "engine_not_enrolled"
    assert code_of(site.revoke) == "engine_not_enrolled"
    with as_system(), pytest.raises(Refused, match="node_locked_out"), transaction.atomic():
        node_approve(operator=site.operator, node=Node.objects.get(name="n1"), now=NOW)

    again = site.enrol()
    answer = again.says("n1", "n2")
    assert [host.node for host in answer.hosts] == ["n1", "n2"]
    assert (again.reports("n1"), writes(again, "n1"), writes(agent, "n1")) == ("applied", True, False)
    # An operator returns them to service.
    assert set(states().values()) == {"quarantined"}
    assert site.approve(kind=KIND) == ["n1", "n2"]
    assert set(states().values()) == {"ready"}


def test_one_host_alone_can_be_locked_out(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1", "n2")
    site.approve(kind=KIND)
    agent.says("n1", "n2")
    with as_system(), transaction.atomic():
        node_revoke(operator=site.operator, node=Node.objects.get(name="n1"), now=NOW)
    assert (writes(agent, "n1"), writes(agent, "n2")) == (False, True)
    assert [host.node for host in agent.says("n1", "n2").hosts] == ["n2"]
    assert agent.reports("n1") == "refused"
    # A new enrolment of the engine does not bring it back, and neither does the approval of its kind.
    again = site.enrol()
    again.says("n1", "n2")
    assert [host.node for host in again.says("n1", "n2").hosts] == ["n2"]
    assert code_of(lambda: site.approve(kind=KIND)) == "no_host_of_kind"
    site.approve("n1")
    again.says("n1", "n2")
    assert (again.reports("n1"), writes(again, "n1")) == ("applied", True)


def test_keys_are_rotated_for_the_whole(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1")
    site.approve("n1")
    agent.says("n1")
    with as_operators(), transaction.atomic():
        engine_key_rotate(operator=site.operator, engine_name="main", now=NOW)
    old = dict(agent.keys)
    answer = agent.says("n1")
    assert answer.rotation is not None
    with as_operators():
        row, node = EngineAgent.objects.get(), Node.objects.get()
        assert (row.key_version - row.key_confirmed, node.key_version - node.key_confirmed) == (1, 1)
        # The host's document has its new key; until it is used a rotation runs.
        again = {"operator": site.operator, "engine_name": "main", "now": NOW}
        assert code_of(lambda: engine_key_rotate(**again)) == "rotation_running"  # type: ignore[arg-type]
        new = node_key(node)
    assert agent.says("n1").rotation is None
    agent.keys = old
    assert code_of(lambda: agent.says("n1")) == "engine_message_invalid"
    agent.hosts["n1"] = (node.key_version, new)
    assert agent.reports("n1") == "applied"


def test_the_server_gets_the_accounts_back_and_loses_what_is_too_much(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1", "n2")
    site.approve(kind=KIND)
    server: Any = agents_redis()
    server.execute_command("ACL DELUSER", "agent-engine.main")
    with as_system():
        assert agent_accounts_ensure() == 1
        assert agent_accounts_ensure() == 0
        row = EngineAgent.objects.get()
        agent_account_open("engine.main", bytes(row.link_digest or b""), ["n1", "n2", "n9"])
        assert agent_accounts_ensure() == 1
    assert not writes(agent, "n9")
    assert excess_rights(server.acl_list()) == {}
    server.execute_command("ACL SETUSER", "agent-engine.main", "%W~agent:*:report")
    assert set(excess_rights(server.acl_list())) == {"agent-engine.main"}


def test_a_flood_locks_out_the_engine_that_sends_it(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1", "n2")
    site.approve(kind=KIND)
    with as_system():
        node_flooded(node_name="n1", lock_out=False, now=NOW)
        assert states() == {"n1": "ready", "n2": "ready"}
        node_flooded(node_name="n1", lock_out=True, now=NOW)
    assert states() == {"n1": "quarantined", "n2": "quarantined"}
    assert not writes(agent, "n2")


def test_an_account_with_too_many_connections_for_its_hosts_is_cut_off(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1", "n2")
    site.approve(kind=KIND)
    with as_system(), ExitStack() as stack:
        guard = AccountGuard(lambda: NOW, lambda: 0.0)

        def connect(count: int) -> None:
            for _ in range(count):
                client: Any = redis.Redis.from_url(agent.url, protocol=2)
                stack.enter_context(client).ping()

        connect(40)
        assert guard.look() == set()
        connect(20)
        assert guard.look() == {"engine.main"}
    assert states() == {"n1": "quarantined", "n2": "quarantined"}


def test_a_token_enrols_what_it_is_for(site: Site) -> None:
    with as_operators():
        engine = engine_token_create(engine="main", rack="a1", now=NOW)
        node = enrolment_token_create(node_name="n1", rack_name="a1", now=NOW)
        assert code_of(lambda: engine_token_create(engine="a.b", rack="a1", now=NOW)) == "engine_name_invalid"
    enrol = {"scheduler": "slurm", "agent": "0.9.0"}
    assert code_of(lambda: engine_enrol(token=node, now=NOW, **enrol)) == "enrolment_refused"
    plain = plain_of("n1")
    assert code_of(lambda: node_enrol(token=engine, inventory=plain, now=NOW)) == "enrolment_refused"
    late = NOW + timedelta(minutes=16)
    assert code_of(lambda: engine_enrol(token=engine, now=late, **enrol)) == "enrolment_refused"
    assert engine_enrol(token=engine, now=NOW, **enrol)["engine"] == "main"
    assert code_of(lambda: engine_enrol(token=engine, now=NOW, **enrol)) == "enrolment_refused"


def test_an_engine_with_hosts_stays_with_its_scheduler(site: Site) -> None:
    agent = site.enrol()
    agent.says("n1")
    site.approve("n1")
    assert code_of(lambda: site.enrol(scheduler="kubernetes")) == "engine_other"
