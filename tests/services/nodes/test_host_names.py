"""Hosts have names in the portal that are not those of their scheduler, and stand in racks."""

import dataclasses

import pytest

import wire
from allocation.features.engines.services import HostNow, engine_view
from allocation.models import Node
from tests.builders_allocation import NOW
from tests.roles import as_system
from tests.services.nodes.test_engine_agents import (
    KIND,
    Agent,
    Site,
    as_operators,
    code_of,
    inventory_of,
    site,
)

__all__ = ["site"]


def said(agent: Agent, **racks: str) -> wire.EngineAnswer:
    """What the portal answers when these hosts are in these racks."""
    found = tuple(dataclasses.replace(inventory_of(name), rack=rack) for name, rack in racks.items())
    return agent.says(*racks, inventories=found)


def hosts() -> dict[str, HostNow]:
    with as_operators():
        return {each.name: each for each in engine_view("main", NOW).hosts}


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gpu01", "gpu01"),
        ("GPU01", "gpu01"),
        ("ip-10-0-0-1.eu-central-1.compute.internal", "ip-10-0-0-1-eu-central-1-compute-internal"),
        ("node_7", "node-7"),
        ("A" * 64, f"{'a' * 51}-{'6'}"),
    ],
)
def test_names_of_hosts_become_names_of_nodes(host: str, name: str) -> None:
    found = wire.node_name(host)
    assert found == name or (len(found) == 60 and found.startswith(name[:52]))


def test_capitals_and_dots_join_and_come_and_go(site: Site) -> None:
    agent = site.enrol()
    names = {"GPU01": "", "gpu02.cluster.local": ""}
    said(agent, **names)
    assert site.approve(kind=KIND) == ["gpu01", "gpu02-cluster-local"]
    assert [each.node for each in said(agent, **names).hosts] == ["gpu01", "gpu02-cluster-local"]
    assert agent.reports("gpu01") == "applied"
    with as_system():
        assert set(Node.objects.values_list("name", "host_name", "state")) == {
            ("gpu01", "GPU01", "ready"),
            ("gpu02-cluster-local", "gpu02.cluster.local", "ready"),
        }
    assert {each.state for each in hosts().values()} == {"served"}
    agent.says("GPU01")
    assert {name: each.state for name, each in hosts().items()} == {
        "GPU01": "served",
        "gpu02.cluster.local": "gone",
    }


def test_two_hosts_with_one_name_in_the_portal(site: Site) -> None:
    agent = site.enrol()
    said(agent, **{"gpu.1": "", "gpu-1": ""})
    assert code_of(lambda: site.approve(kind=KIND)) == "no_host_of_kind"
    assert site.approve("gpu.1") == ["gpu-1"]
    assert code_of(lambda: site.approve("gpu-1")) == "host_taken"
    found = hosts()
    assert (found["gpu.1"].state, found["gpu-1"].state) == ("served", "refused")
    assert found["gpu-1"].why == "The node gpu-1 is the host gpu.1 of the engine main."


def test_hosts_of_one_engine_stand_in_several_racks(site: Site) -> None:
    agent = site.enrol()
    said(agent, n1="", n2="b2", n3="b2")
    assert {name: each.rack for name, each in hosts().items()} == {"n1": "a1", "n2": "b2", "n3": "b2"}
    site.approve(kind=KIND)

    def racks() -> dict[str, str]:
        with as_system():
            return dict(Node.objects.values_list("name", "rack__name"))

    assert racks() == {"n1": "a1", "n2": "b2", "n3": "b2"}
    # An operator says otherwise, also of a host that is a node already.
    said(agent, n1="", n2="b2", n3="b2", n4="b2")
    site.approve("n4", "n1", rack="c3")
    assert racks() == {"n1": "c3", "n2": "b2", "n3": "b2", "n4": "c3"}
