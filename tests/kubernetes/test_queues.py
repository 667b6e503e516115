"""The queues of bookings, in this process: several nodes, namespaces, and what others have made."""

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from agent.kubernetes import api
from agent.kubernetes.api import Access, KubernetesApi
from agent.kubernetes.cluster import KubernetesCluster, site_read
from agent.kubernetes.gpu import KubernetesGpus
from agent.kubernetes.parts import BookingParts, PartSettings
from agent.kubernetes.queues import BookingQueues
from agent.plan.targets import GpuTarget, Task
from agent.ports.gpu import GpuError, RetryLater
from tests.agent.builders import NOW, a_whole
from tests.agent.desk import seen
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import Site, quotas_of
from wire import DesiredAllocation, Notice


class OneNode:
    """The ports of one node, with what is to run there."""

    def __init__(
        self,
        server: ApiServer,
        name: str,
        cluster: KubernetesCluster | None = None,
        parts: Callable[[PartSettings], BookingParts] | None = None,
    ) -> None:
        self.cluster = cluster or KubernetesCluster(KubernetesApi(Access(server.url)))
        self.gpus = KubernetesGpus(self.cluster, name, site_read(self.cluster.api), {})
        settings = PartSettings(node=name, slot_of=self.gpus.slot, resource_of=self.gpus.resource)
        self.queues = BookingQueues(self.cluster, settings) if parts is None else parts(settings)
        self.gpus.queues = self.queues

    def follow(self, *wanted: tuple[int, DesiredAllocation], ending: bool = False) -> list[str]:
        """Takes in what is to run, or to end, by the index of its place."""
        uuids = self.gpus.gpus
        targets = (
            GpuTarget(uuids[slot], "whole", (Task(each, ending, given=True, emptied=False),))
            for slot, each in wanted
        )
        return self.queues.follow(targets, known=True)

    def allowed(self, *wanted: tuple[int, DesiredAllocation]) -> None:
        """Waits until all of them are handed over."""
        seen(lambda: self.try_allow(*wanted) is None)

    def try_allow(self, *wanted: tuple[int, DesiredAllocation]) -> str | None:
        self.follow(*wanted)
        try:
            for slot, each in wanted:
                self.queues.allow(each, self.gpus.gpus[slot], ())
        except RetryLater as later:
            return str(later)
        return None

    def ended(self, *wanted: tuple[int, DesiredAllocation]) -> None:
        """Ends them and waits until their places are empty."""
        self.follow(*wanted, ending=True)
        for slot, _ in wanted:
            self.queues.end(slot, force=False)
        seen(lambda: self.is_empty(*wanted))

    def is_empty(self, *wanted: tuple[int, DesiredAllocation]) -> bool:
        assert self.follow(*wanted, ending=True) == []
        return not any(self.gpus.pids(self.gpus.gpus[slot], None) for slot, _ in wanted)


@pytest.fixture
def node(server: ApiServer, controllers: Controllers) -> Iterator[OneNode]:
    found = OneNode(server, "n1")
    yield found
    found.cluster.stop()


def refused(call: Callable[[], object], error: type[Exception]) -> str:
    with pytest.raises(error) as found:
        call()
    return str(found.value)


def test_a_booking_on_two_nodes_has_one_queue_with_a_quota_for_each(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    other = OneNode(server, "n2", node.cluster)
    first = [(0, a_whole("a", booking="BK-1")), (1, a_whole("b", booking="BK-1"))]
    second = [(3, a_whole("c", booking="BK-1"))]
    node.allowed(*first)
    other.allowed(*second)
    quotas = quotas_of(server.store, "biology.bk-1")
    counts = {flavor: each["nvidia.com/gpu"] for flavor, each in quotas.items()}
    assert counts == {"biology.bk-1.n1": "2", "biology.bk-1.n2": "1"}
    site.job("two", TEAM, "bk-1", count=2)
    seen(lambda: site.running(TEAM) == ["n1"])
    site.job("one", TEAM, "bk-1", count=1)
    seen(lambda: sorted(site.running(TEAM)) == ["n1", "n2"])

    # One node's part ends: the booking is drained on both, and a new run waits until all has left.
    node.ended(*first)
    again = [(0, a_whole("d", booking="BK-1", starts=NOW + 60))]
    assert node.try_allow(*again) == "its former run has not left its other nodes"
    other.ended(*second)
    node.allowed(*again)
    assert quotas_of(server.store, "biology.bk-1").keys() == {"biology.bk-1.n1"}


def test_a_booking_begins_elsewhere_while_its_lost_node_is_not_empty(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    other = OneNode(server, "n2", node.cluster)
    before, after = (0, a_whole("a", booking="BK-1")), (0, a_whole("b", booking="BK-1", starts=NOW + 60))
    node.allowed(before)
    site.job("train", TEAM, "bk-1")
    seen(lambda: site.running(TEAM) == ["n1"])
    assert other.try_allow(after) == "its former run has not left its other nodes"
    site.ready("n1", ready=False)
    seen(lambda: node.cluster.view().nodes["n1"].damage is not None)
    other.allowed(after)
    assert quotas_of(server.store, "biology.bk-1").keys() == {"biology.bk-1.n2"}

    # The node comes back: what is left there ends, and the new run is not touched.
    site.ready("n1", ready=True)
    node.follow(before, ending=True)
    node.queues.end(0, force=False)
    assert not node.is_empty(before)
    node.queues.end(0, force=True)
    seen(lambda: server.store.find(api.FLAVORS, "biology.bk-1.n1") is None or node.is_empty(before))
    queue = server.store.get(api.CLUSTER_QUEUES, "biology.bk-1")
    assert (queue["spec"]["stopPolicy"], other.follow(after)) == ("None", [])


def test_a_namespace_is_of_one_organisation_and_a_project_may_have_its_own(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    site.namespace("llm", tenant="biology", project="llm")
    seen(lambda: len(node.cluster.view().namespaces) == 2)
    node.allowed(
        (0, dataclasses.replace(a_whole("a", booking="BK-1"), project="llm")),
        (1, dataclasses.replace(a_whole("b", booking="BK-2"), project="other")),
    )
    assert server.store.find(api.LOCAL_QUEUES, "bk-1", "llm") is not None
    assert server.store.find(api.LOCAL_QUEUES, "bk-2", TEAM) is not None

    foreign = (2, dataclasses.replace(a_whole("c", booking="BK-1"), tenant="physics"))
    text = refused(lambda: node.try_allow(foreign), OSError)
    assert text == "no namespace is labelled gpu-portal/tenant=physics"
    site.namespace("p1", tenant="physics")
    site.namespace("p2", tenant="physics")
    seen(lambda: len(node.cluster.view().namespaces) == 4)
    text = refused(lambda: node.try_allow(foreign), OSError)
    assert text == "several namespaces are labelled gpu-portal/tenant=physics: p1, p2"


def test_people_of_another_organisation_get_nothing_by_pointing_at_a_queue(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    node.allowed((0, a_whole("a", booking="BK-1")))
    site.namespace("physics", tenant="physics")
    body = {"metadata": {"name": "mine"}, "spec": {"clusterQueue": "biology.bk-1"}}
    server.store.create(api.LOCAL_QUEUES, body, "physics")
    site.job("thief", "physics", "mine")
    site.job("owner", TEAM, "bk-1")
    seen(lambda: site.running(TEAM) == ["n1"])
    assert site.running("physics") == []


def test_a_pod_that_only_says_it_is_a_bookings_is_one_of_others(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    held = (0, a_whole("a", booking="BK-1"))
    node.allowed(held)
    site.namespace("physics", tenant="physics")
    site.pod("liar", "physics", "n1", marked="biology.bk-1")
    seen(lambda: "pod physics/liar" in node.gpus.truth(node.gpus.gpus[3]).holders)
    node.ended(held)
    assert site.running("physics") == ["n1"]


def test_work_beyond_its_booking_takes_places_of_its_own(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    node.allowed((0, a_whole("a", booking="BK-1")))
    site.pod("much", TEAM, "n1", count=3, marked="biology.bk-1")
    seen(lambda: node.gpus.truth(node.gpus.gpus[3]).processes == 1)
    found = [node.gpus.truth(gpu).processes for gpu in node.gpus.gpus[:4]]
    assert found == [2, 0, 1, 1]


def test_a_queue_of_somebody_else_is_left_alone(server: ApiServer, site: Site, node: OneNode) -> None:
    body = {"metadata": {"name": "bk-1"}, "spec": {"clusterQueue": "theirs"}}
    server.store.create(api.LOCAL_QUEUES, body, TEAM)
    text = refused(lambda: node.allowed((0, a_whole("a", booking="BK-1"))), OSError)
    assert text == f"there is a LocalQueue {TEAM}/bk-1 that is not the portal's"
    assert server.store.get(api.LOCAL_QUEUES, "bk-1", TEAM)["spec"] == {"clusterQueue": "theirs"}


def test_what_no_booking_wants_is_removed_once_a_document_is_known(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    node.allowed((0, a_whole("a", booking="BK-1")))
    site.job("train", TEAM, "bk-1")
    seen(lambda: site.running(TEAM) == ["n1"])
    # An agent that has lost its state, and has no document yet.
    late = OneNode(server, "n1")
    late.queues.follow((), known=False)
    assert server.store.get(api.CLUSTER_QUEUES, "biology.bk-1")["spec"]["stopPolicy"] == "None"
    seen(lambda: late.follow() == [] and server.store.all(api.FLAVORS) == [])
    assert site.running(TEAM) == []
    assert server.store.all(api.CLUSTER_QUEUES) == []
    late.cluster.stop()


def test_the_queue_of_a_pause_goes_when_nothing_waits_in_it(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    booked = a_whole("a", booking="BK-1")
    node.allowed((0, booked))
    site.job("train", TEAM, "bk-1")
    seen(lambda: site.running(TEAM) == ["n1"])
    node.ended((0, dataclasses.replace(booked, notice=Notice(id="p", told=1, at=2, method="stop"))))
    node.follow()
    assert server.store.get(api.CLUSTER_QUEUES, "biology.bk-1")["spec"]["stopPolicy"] == "HoldAndDrain"
    server.store.remove(api.WORKLOADS, "train", TEAM)
    site.finish("train", TEAM)
    seen(lambda: node.follow() == [] and server.store.all(api.CLUSTER_QUEUES) == [])
    assert server.store.all(api.LOCAL_QUEUES) == []


def test_unhealthy_gpus_take_no_new_work(server: ApiServer, site: Site, node: OneNode) -> None:
    server.store.patch(api.NODES, "n1", {"status": {"allocatable": {"nvidia.com/gpu": "3"}}})
    last = node.gpus.gpus[3]
    seen(lambda: node.gpus.truth(last).withheld is not None)
    assert node.gpus.truth(last).withheld == "n1 says that 1 of its 4 nvidia.com/gpu are unhealthy"
    assert node.gpus.truth(node.gpus.gpus[2]).withheld is None


def test_pods_of_bookings_tolerate_the_taint_of_the_nodes(
    server: ApiServer, site: Site, node: OneNode
) -> None:
    taint = {"key": "gpu-portal/node", "value": "", "effect": "NoSchedule"}
    for name in ("n1", "n2"):
        server.store.patch(api.NODES, name, {"spec": {"taints": [taint]}})
    node.allowed((0, a_whole("a", booking="BK-1")))
    site.namespace("others")
    site.job("theirs", "others", "")
    site.job("train", TEAM, "bk-1")
    seen(lambda: site.running(TEAM) == ["n1"])
    assert site.running("others") == []


def test_a_share_is_refused(node: OneNode) -> None:
    shared = dataclasses.replace(a_whole("a", booking="BK-1"), share=500)
    assert "whole GPUs" in refused(lambda: node.queues.allow(shared, node.gpus.gpus[0], ()), GpuError)
