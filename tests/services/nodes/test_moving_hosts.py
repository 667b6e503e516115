"""Hosts of engines that version 1.0 enrolled one by one get the identity of their engine."""

from typing import Any

import pytest
import redis

from allocation.features.engines.services import engine_view
from allocation.models import Node
from allocation.services.nodes.fleet import enrolment_token_create, node_enrol
from tests.builders_allocation import NOW
from tests.roles import as_system
from tests.services.nodes.test_engine_agents import (
    KIND,
    Site,
    as_operators,
    code_of,
    device_of,
    inventory_of,
    plain_of,
    site,
)

__all__ = ["site"]


def test_hosts_that_were_enrolled_one_by_one_move(site: Site) -> None:
    """Version 1.0 gave each host of an engine an identity of its own, too; none gets one any more."""
    with as_system():
        token = enrolment_token_create(node_name="n1", rack_name="a9", now=NOW)
    assert code_of(lambda: node_enrol(token=token, inventory=plain_of("n1"), now=NOW)) == "host_of_engine"
    old = node_enrol(token=token, inventory=device_of("n1"), now=NOW)
    with as_system():
        Node.objects.update(engine="slurm")
        before = Node.objects.get()
    agent, other = site.enrol(), site.enrol("k8s", scheduler="kubernetes")
    agent.says("n1")
    other.says("n1", inventories=(inventory_of("n1", engine="kubernetes"),))
    with as_operators():
        view = engine_view("main", NOW)
    assert (view.hosts[0].state, view.moving, view.waits) == ("waiting", ("n1",), 1)
    # By name only, and only to an engine of its scheduler.
    assert code_of(lambda: site.approve(kind=KIND)) == "no_host_of_kind"
    assert code_of(lambda: site.approve("n1", engine="k8s")) == "host_taken"
    assert site.approve("n1") == ["n1"]
    assert [each.node for each in agent.says("n1").hosts] == ["n1"]
    with as_system():
        node = Node.objects.get()
        assert (node.id, node.state, node.engine_agent_id, node.rack.name) == (
            before.id,
            "ready",
            "main",
            "a9",
        )
        assert node.gpus.count() == 2
    # The identity that it had is worth nothing.
    client: Any = redis.Redis.from_url(str(old["redis_url"]), protocol=2)
    with client, pytest.raises(redis.AuthenticationError):
        client.ping()
