"""Queues of Volcano, in this process: several nodes, other namespaces, groups of nodes, and lost ones."""

import dataclasses
from collections.abc import Iterator

import pytest

from agent.kubernetes import api
from agent.kubernetes.api import Access, KubernetesApi, Object
from agent.kubernetes.cluster import KubernetesCluster
from agent.kubernetes.names import NODE_GROUP
from agent.kubernetes.volcano import GangQueues
from tests.agent.builders import NOW, a_whole
from tests.agent.desk import seen
from tests.kubernetes.admission import HOLDERS
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import Site
from tests.kubernetes.store import VOLCANO_JOBS, Refusal
from tests.kubernetes.test_queues import OneNode
from wire import Notice

QUEUE = "gpu-portal.biology.bk-1"
GPU = "nvidia.com/gpu"


@pytest.fixture(autouse=True)
def _with_volcano(server: ApiServer, site: Site, controllers: Controllers) -> None:
    server.way, controllers.is_kueue_up, controllers.is_volcano_up = "volcano", False, True
    server.lacks = {api.KUEUE}
    site.volcano()


def a_gang_node(server: ApiServer, name: str, cluster: KubernetesCluster | None = None) -> OneNode:
    cluster = cluster or KubernetesCluster(KubernetesApi(Access(server.url)), way="volcano")
    return OneNode(
        server, name, cluster, parts=lambda settings: GangQueues(cluster, settings, namespace=HOLDERS)
    )


@pytest.fixture
def node(server: ApiServer, controllers: Controllers) -> Iterator[OneNode]:
    found = a_gang_node(server, "n1")
    yield found
    found.cluster.stop()


@pytest.fixture
def other(server: ApiServer, node: OneNode) -> OneNode:
    return a_gang_node(server, "n2", node.cluster)


def limits(server: ApiServer, of: str = GPU) -> str:
    found: dict[str, str] = server.store.get(api.GANG_QUEUES, QUEUE)["spec"]["capability"]
    return found[of]


def state(server: ApiServer) -> str | None:
    found = server.store.find(api.GANG_QUEUES, QUEUE)
    return None if found is None else found.get("status", {}).get("state")


def unchecked(server: ApiServer, group: Object, namespace: str) -> None:
    """Makes a group that no policy or webhook has seen."""
    admit, server.store.admit = server.store.admit, lambda resource, data: None
    server.store.create(api.GROUPS, group, namespace)
    server.store.admit = admit


def test_a_booking_begins_when_volcano_has_opened_its_queue(
    server: ApiServer, site: Site, node: OneNode, other: OneNode, controllers: Controllers
) -> None:
    controllers.is_volcano_up = False
    first, second = (0, a_whole("a", booking="BK-1")), (0, a_whole("b", booking="BK-1"))
    late = "Volcano has not opened its queue yet"
    seen(lambda: node.try_allow(first) == late)
    for said in ("Closed", "Closing", "Unknown"):
        server.store.patch(api.GANG_QUEUES, QUEUE, {"status": {"state": said}})
        seen(lambda said=said: node.cluster.view().gang_queues[QUEUE].state == said)  # type: ignore[misc]
        assert node.try_allow(first) == late
        # One command at a time.
        (command,) = server.store.all(api.COMMANDS)
        assert (command["action"], command["target"]["name"]) == ("OpenQueue", QUEUE)
    controllers.is_volcano_up = True
    node.allowed(first)
    other.allowed(second)
    seen(lambda: node.follow(first) == [] and limits(server) == "2")
    # Its pods end no pods of others.
    policies = {each["preemptionPolicy"] for each in server.store.all(api.RANKS)}
    assert policies == {"Never"}
    # What ends counts no more, also while Volcano has not closed the queue.
    controllers.is_volcano_up = False
    site.pod("train", TEAM, "n1")
    server.store.patch(api.PODS, "train", {"spec": {"priorityClassName": f"{QUEUE}.n1"}}, TEAM)
    site.ready("n1", ready=False)
    seen(lambda: len(node.queues.pods_of(node.cluster.view().parts[f"{QUEUE}.n1"], node.cluster.view())) == 1)
    node.follow(first, ending=True)
    node.queues.end(0, force=False)
    seen(lambda: other.follow(second) == [] and limits(server) == "1")
    assert "pods" not in server.store.get(api.GANG_QUEUES, QUEUE)["spec"]["capability"]


def test_a_job_of_volcano_begins_on_two_nodes_at_once(
    server: ApiServer, site: Site, node: OneNode, other: OneNode
) -> None:
    first = [(0, a_whole("a", booking="BK-1")), (1, a_whole("b", booking="BK-1"))]
    second = [(3, a_whole("c", booking="BK-1"))]
    node.allowed(*first)
    assert limits(server) == "2"
    # Its pod for n2 can't be made before the booking has its part there: neither runs.
    site.volcano_job("train", TEAM, QUEUE, {"n1": f"{QUEUE}.n1", "n2": f"{QUEUE}.n2"})
    seen(lambda: len(server.store.all(api.PODS)) == 1)
    assert site.running(TEAM) == []
    other.allowed(*second)
    seen(lambda: limits(server) == "3")
    seen(lambda: sorted(site.running(TEAM)) == ["n1", "n2"])

    # One node's part ends: the queue is closed, and the rest of the booking counts as drained.
    node.ended(*first)
    seen(lambda: state(server) == "Closing")
    seen(lambda: site.running(TEAM) == ["n2"])
    other.ended(*second)
    seen(lambda: node.follow() == other.follow() == [] and state(server) is None)
    assert site.running(TEAM) == []
    # Jobs are their owners': this one waits, without pods.
    assert len(server.store.all(VOLCANO_JOBS)) == 1


def test_a_booking_moves_to_another_node(
    server: ApiServer, site: Site, node: OneNode, other: OneNode
) -> None:
    before = (0, a_whole("a", booking="BK-1"))
    after = (2, a_whole("b", booking="BK-1", starts=NOW + 60))
    node.allowed(before)
    site.job("train", TEAM, "", rank=f"{QUEUE}.n1", node="n1", gang=QUEUE)
    seen(lambda: site.running(TEAM) == ["n1"])
    # The next run does not wait for the node that it has left, and its queue is not closed for it.
    node.follow(before, ending=True)
    node.queues.end(0, force=False)
    other.allowed(after)
    seen(lambda: node.is_empty(before))
    assert other.follow(after) == []
    seen(lambda: other.follow(after) == [] and (state(server), limits(server)) == ("Open", "1"))
    site.job("again", TEAM, "", rank=f"{QUEUE}.n2", node="n2", gang=QUEUE)
    seen(lambda: site.running(TEAM) == ["n2"])
    other.ended(after)
    seen(lambda: other.follow() == [] and state(server) is None)


def test_a_booking_begins_elsewhere_while_its_lost_node_is_not_empty(
    server: ApiServer, site: Site, node: OneNode, other: OneNode
) -> None:
    before, after = (0, a_whole("a", booking="BK-1")), (0, a_whole("b", booking="BK-1", starts=NOW + 60))
    node.allowed(before)
    site.job("train", TEAM, "", rank=f"{QUEUE}.n1", node="n1", gang=QUEUE)
    seen(lambda: site.running(TEAM) == ["n1"])
    site.ready("n1", ready=False)
    seen(lambda: node.cluster.view().nodes["n1"].damage is not None)
    node.follow(before, ending=True)
    node.queues.end(0, force=False)
    other.allowed(after)
    for _ in range(5):
        # Its former run, which hangs there, neither ends nor closes the queue.
        assert not node.is_empty(before)
        assert other.follow(after) == []
    assert (state(server), limits(server), site.running(TEAM)) == ("Open", "1", ["n1"])
    # Nor does it keep the next run from opening what somebody closed.
    server.store.patch(api.GANG_QUEUES, QUEUE, {"status": {"state": "Closed"}})
    seen(lambda: other.follow(after) == [] and state(server) == "Open")
    site.ready("n1", ready=True)
    seen(lambda: node.is_empty(before))
    assert (state(server), other.follow(after)) == ("Open", [])


def test_work_of_other_namespaces_is_refused_and_named(server: ApiServer, site: Site, node: OneNode) -> None:
    held = (0, a_whole("a", booking="BK-1"))
    site.namespace("physics", tenant="physics")
    # Made before there is such a queue, where Volcano's webhook is off.
    group = {"metadata": {"name": "early"}, "spec": {"queue": QUEUE, "minMember": 1}}
    unchecked(server, group, "physics")
    node.allowed(held)
    assert node.follow(held) == [f"{QUEUE} has work of other namespaces: physics/early"]
    # Later it is refused, and its pods can't have the class.
    with pytest.raises(Refusal, match="for another namespace"):
        server.store.create(api.GROUPS, {**group, "metadata": {"name": "late"}}, "physics")
    site.job("thief", "physics", "", rank=f"{QUEUE}.n1", node="n1", gang=QUEUE)
    site.job("owner", TEAM, "", rank=f"{QUEUE}.n1", node="n1", gang=QUEUE)
    seen(lambda: site.running(TEAM) == ["n1"])
    assert site.running("physics") == []
    # A pod in a queue of the booking that is not in its quota is one of others, and is never ended.
    site.pod("plain", TEAM, "n1")
    seen(lambda: f"pod {TEAM}/plain" in node.gpus.truth(node.gpus.gpus[3]).holders)
    node.follow(held, ending=True)
    node.queues.end(0, force=True)
    seen(lambda: node.follow(held, ending=True) == [] and server.store.all(api.RANKS) == [])
    assert site.running(TEAM) == ["n1"]
    # The other's group keeps no queue from being removed.
    seen(lambda: node.follow() == [] and state(server) is None)


def test_the_queue_follows_the_groups_of_its_nodes(
    server: ApiServer, site: Site, node: OneNode, other: OneNode, controllers: Controllers
) -> None:
    controllers.volcano.has_groups = True
    first, second = (0, a_whole("a", booking="BK-1")), (0, a_whole("b", booking="BK-1"))

    def labelled(name: str, group: str | None) -> None:
        server.store.patch(api.NODES, name, {"metadata": {"labels": {NODE_GROUP: group}}})
        seen(lambda: node.cluster.view().nodes[name].labels.get(NODE_GROUP) == group)

    def groups() -> list[str]:
        affinity = server.store.get(api.GANG_QUEUES, QUEUE)["spec"].get("affinity", {})
        found: list[str] = affinity.get("nodeGroupAffinity", {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution", []
        )
        return found

    node.allowed(first)
    assert groups() == []
    labelled("n1", "a100")
    seen(lambda: node.follow(first) == [] and groups() == ["a100"])
    site.job("train", TEAM, "", rank=f"{QUEUE}.n1", node="n1", gang=QUEUE)
    seen(lambda: site.running(TEAM) == ["n1"])
    labelled("n2", "h100")
    other.allowed(second)
    seen(lambda: groups() == ["a100", "h100"])
    # A node leaves its group: what runs there continues.
    labelled("n1", None)
    seen(lambda: node.follow(first) == other.follow(second) == [] and groups() == ["h100"])
    assert site.running(TEAM) == ["n1"]
    labelled("n2", None)
    seen(lambda: node.follow(first) == other.follow(second) == [] and groups() == [])


def test_what_no_booking_wants_is_removed_once_a_document_is_known(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    node.allowed((0, a_whole("a", booking="BK-1")))
    site.job("train", TEAM, "", rank=f"{QUEUE}.n1", node="n1", gang=QUEUE)
    seen(lambda: site.running(TEAM) == ["n1"])
    # An agent that has lost its state, and has no document yet.
    late = a_gang_node(server, "n1")
    late.queues.follow((), known=False)
    assert (state(server), site.running(TEAM)) == ("Open", ["n1"])
    seen(lambda: late.follow() == [] and server.store.all(api.RANKS) == [])
    seen(lambda: late.follow() == [] and state(server) is None)
    assert site.running(TEAM) == []
    late.cluster.stop()


def test_the_queue_of_a_pause_goes_when_nothing_waits_in_it(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    booked = a_whole("a", booking="BK-1")
    node.allowed((0, booked))
    site.job("train", TEAM, "", rank=f"{QUEUE}.n1", node="n1", gang=QUEUE)
    seen(lambda: site.running(TEAM) == ["n1"])
    node.ended((0, dataclasses.replace(booked, notice=Notice(id="p", told=1, at=2, method="stop"))))
    seen(lambda: node.follow() == [] and state(server) == "Closing")
    for _ in range(5):
        assert (node.follow(), state(server)) == ([], "Closing")
    # What somebody else has in it keeps it not.
    site.namespace("physics", tenant="physics")
    unchecked(server, {"metadata": {"name": "early"}, "spec": {"queue": QUEUE}}, "physics")
    group = next(each for each in server.store.all(api.GROUPS) if each["metadata"]["namespace"] == TEAM)
    site.finish("train", TEAM)
    server.store.remove(api.GROUPS, group["metadata"]["name"], TEAM)
    seen(lambda: node.follow() == [] and state(server) is None)


def test_a_queue_whose_pods_have_places_is_not_deleted_yet(
    server: ApiServer, site: Site, node: OneNode, controllers: Controllers
) -> None:
    booked = (0, a_whole("a", booking="BK-1"))
    node.allowed(booked)
    controllers.is_volcano_up = False
    server.store.patch(api.GANG_QUEUES, QUEUE, {"status": {"state": "Closed", "allocated": {"pods": "1"}}})
    seen(lambda: node.cluster.view().gang_queues[QUEUE].pods == 1)
    node.follow(booked, ending=True)
    node.queues.end(0, force=False)
    seen(lambda: node.is_empty(booked))
    for _ in range(5):
        assert (node.follow(), state(server), node.queues.is_waiting) == ([], "Closed", True)
    server.store.patch(api.GANG_QUEUES, QUEUE, {"status": {"allocated": {"pods": "0"}}})
    seen(lambda: node.follow() == [] and state(server) is None)
