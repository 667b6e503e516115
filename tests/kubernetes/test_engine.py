"""The engine on an API server: a booking is a queue with its quota."""

import dataclasses

import pytest

import wire
from agent.kubernetes import api
from agent.kubernetes.names import ENDS, PAUSE_AT
from tests.agent.builders import HOUR
from tests.agent.desk import Desk, now, seen
from tests.agent.engine_process import EngineProcess
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import Site, quotas_of
from tests.kubernetes.store import JOBS

pytestmark = pytest.mark.faults

SLICE = 4
"""The index of the first slice of node n1."""


def nothing_left(server: ApiServer) -> bool:
    kinds = (api.CLUSTER_QUEUES, api.LOCAL_QUEUES, api.FLAVORS)
    return not any(server.store.all(kind) for kind in kinds)


def uid_of(server: ApiServer, workload: str) -> str | None:
    found = server.store.find(api.WORKLOADS, workload, TEAM)
    return None if found is None else str(found["metadata"]["uid"])


def notes_of(server: ApiServer, local: str) -> dict[str, str]:
    notes: dict[str, str] = server.store.get(api.LOCAL_QUEUES, local, TEAM)["metadata"]["annotations"]
    return notes


def stop_of(server: ApiServer, queue: str) -> str:
    return str(server.store.get(api.CLUSTER_QUEUES, queue)["spec"]["stopPolicy"])


def test_a_booking_is_a_queue_from_its_start_to_its_end(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    (enrolment,) = desk.portal.enrolments
    inventory = wire.inventory_from_plain(enrolment["inventory"])
    assert (inventory.hostname, inventory.engine, len(inventory.gpus)) == ("n1", "kubernetes", 11)
    models = {(gpu.name, gpu.memory_mb) for gpu in inventory.gpus}
    assert models == {("NVIDIA H100 80GB HBM3", 81559), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9984)}

    desk.book("BK-7", 0, 1)
    desk.await_ready("BK-7")
    assert quotas_of(server.store, "biology.bk-7")["biology.bk-7.n1"]["nvidia.com/gpu"] == "2"
    # Kueue admits what fits: the third job waits.
    for name, count in (("one", 1), ("two", 1), ("three", 2)):
        site.job(name, TEAM, "bk-7", count=count)
    seen(lambda: site.running(TEAM) == ["n1", "n1"])

    (_, first), _ = desk.bookings["BK-7"]
    desk.change("BK-7", ends=first.ends + HOUR)
    before = notes_of(server, "bk-7")[ENDS]
    seen(lambda: notes_of(server, "bk-7")[ENDS] > before)
    assert site.running(TEAM) == ["n1", "n1"]

    desk.release("BK-7")
    assert site.running(TEAM) == []
    seen(lambda: nothing_left(server))
    # The members' jobs are theirs: they wait.
    assert {each["spec"]["suspend"] for each in server.store.all(JOBS)} == {True}
    assert engine.stop() == 0


def test_a_pause_is_announced_and_the_work_goes_on_when_the_booking_returns(
    desk: Desk, server: ApiServer, site: Site
) -> None:
    desk.book("BK-8", 0)
    desk.await_ready("BK-8")
    site.job("train", TEAM, "bk-8")
    seen(lambda: site.running(TEAM) == ["n1"])

    notice = wire.Notice(id="p1", told=now(), at=now() + 60, method="stop")
    desk.change("BK-8", notice=notice, ends=now() + 60)
    seen(lambda: PAUSE_AT in notes_of(server, "bk-8"))
    (workload,) = server.store.all(api.WORKLOADS)
    (event,) = server.store.all(api.EVENTS)
    assert PAUSE_AT in workload["metadata"]["annotations"]
    assert (event["reason"], event["involvedObject"]["name"]) == ("PauseAnnounced", "bk-8")
    assert site.running(TEAM) == ["n1"]

    # The pause: drained, and the queue is kept, because the job waits in it.
    desk.release("BK-8")
    queue = server.store.get(api.CLUSTER_QUEUES, "biology.bk-8")
    assert (queue["spec"]["stopPolicy"], queue["spec"].get("resourceGroups")) == ("HoldAndDrain", None)
    assert site.running(TEAM) == []

    desk.bookings["BK-8"] = [(2, dataclasses.replace(desk_whole("BK-8"), id="again"))]
    desk.publish()
    seen(lambda: site.running(TEAM) == ["n1"])
    seen(lambda: PAUSE_AT not in notes_of(server, "bk-8"))
    site.finish("train", TEAM)
    desk.release("BK-8")
    seen(lambda: nothing_left(server))


def desk_whole(booking: str) -> wire.DesiredAllocation:
    return wire.DesiredAllocation(
        id=f"{booking}-again",
        booking=booking,
        tenant="biology",
        owner="ada",
        profile=None,
        profile_id=None,
        slot=0,
        size=8,
        starts=now(),
        ends=now() + HOUR,
        state="run",
    )


@pytest.mark.engines
def test_pods_of_others_take_places_and_are_never_ended(desk: Desk, server: ApiServer, site: Site) -> None:
    site.namespace("others")
    site.pod("theirs", "others", "n1", count=3)
    seen(lambda: len(desk.portal.reports()[-1].foreign) == 3)
    assert {each.users for each in desk.portal.reports()[-1].foreign} == {("others/theirs",)}
    desk.book("BK-9", 0, 1)
    seen(lambda: "preparing" in desk.states("BK-9"))
    desk.release("BK-9")
    assert site.running("others") == ["n1"]

    # A booked place that is idle can be taken behind the portal's back: that is reported, too.
    server.store.remove(api.PODS, "theirs", "others")
    desk.book("BK-10", 0, 1, 2, 3)
    desk.await_ready("BK-10")
    site.pod("more", "others", "n1", count=1)
    seen(lambda: any(each.booked for each in desk.portal.reports()[-1].foreign))
    desk.release("BK-10")
    assert site.running("others") == ["n1"]


def test_an_engine_that_was_killed_finds_its_queues(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    desk.book("BK-12", 0, 1)
    desk.await_ready("BK-12")
    site.job("train", TEAM, "bk-12", count=2)
    seen(lambda: site.running(TEAM) == ["n1"])
    (pod,) = server.store.all(api.PODS)
    engine.kill()
    desk.change("BK-12", ends=now() + 3 * HOUR)
    engine.start()
    desk.book("BK-13", 2)
    desk.await_ready("BK-13")
    assert desk.states("BK-12") == {"ready"}
    assert server.store.all(api.PODS) == [pod]


@pytest.mark.engines
def test_an_engine_that_was_killed_ends_what_is_over(desk: Desk, engine: EngineProcess, site: Site) -> None:
    desk.book("BK-12", 0, 1)
    desk.await_ready("BK-12")
    site.job("train", TEAM, "bk-12", count=2)
    seen(lambda: site.running(TEAM) == ["n1"])
    engine.kill()
    desk.change("BK-12", state="release")
    engine.start()
    seen(lambda: desk.states("BK-12") == {"empty"})
    assert site.running(TEAM) == []


@pytest.mark.engines
def test_slices_are_booked_by_their_profile(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-14", SLICE, SLICE + 1)
    desk.await_ready("BK-14")
    quotas = quotas_of(server.store, "biology.bk-14")["biology.bk-14.n1"]
    assert quotas["nvidia.com/mig-1g.10gb"] == "2"
    assert "nvidia.com/gpu" not in quotas
    site.job("whole", TEAM, "bk-14")
    site.job("sliced", TEAM, "bk-14", resource="nvidia.com/mig-1g.10gb", parallelism=2)
    seen(lambda: site.running(TEAM) == ["n1", "n1"])
    assert {each["metadata"]["generateName"] for each in server.store.all(api.PODS)} == {"sliced-"}
    desk.release("BK-14")
    assert site.running(TEAM) == []


@pytest.mark.engines
def test_what_still_runs_after_the_grace_time_is_deleted(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-15", 0)
    desk.await_ready("BK-15")
    site.job("stubborn", TEAM, "bk-15", stubborn=True)
    seen(lambda: site.running(TEAM) == ["n1"])
    notice = wire.Notice(id="p2", told=now() - 60, at=now() - 1, method="stop")
    desk.change("BK-15", notice=notice, ends=now() - 1)
    seen(lambda: desk.states("BK-15") == {"ending"})
    # Its pod has 30 s by itself, and gets 3 after a notice.
    began = now()
    seen(lambda: desk.states("BK-15") == {"empty"})
    assert 2 <= now() - began < 15
    assert site.running(TEAM) == []


@pytest.mark.engines
def test_a_node_that_hangs_is_never_empty(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-16", 0)
    desk.await_ready("BK-16")
    site.job("train", TEAM, "bk-16")
    seen(lambda: site.running(TEAM) == ["n1"])
    site.ready("n1", ready=False)
    seen(lambda: desk.states("BK-16") == {"failed"})
    assert "n1 is not ready (Kubelet stopped posting node status.)" in (desk.portal.reports()[-1].error or "")
    desk.change("BK-16", state="release")
    seen(lambda: desk.states("BK-16") == {"ending"})
    # The API server still lists the pod: its kubelet has not said that it has ended.
    seen(lambda: stop_of(server, "biology.bk-16") == "HoldAndDrain")
    assert site.running(TEAM) == ["n1"]
    site.ready("n1", ready=True)
    seen(lambda: desk.states("BK-16") == {"empty"})
    seen(lambda: len(desk.portal.reports()[-1].gpus) == 11)


@pytest.mark.engines
def test_a_cordoned_node_is_withheld_and_its_work_goes_on(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-17", 3)
    desk.await_ready("BK-17")
    site.job("train", TEAM, "bk-17")
    seen(lambda: site.running(TEAM) == ["n1"])
    site.cordon("n1", cordoned=True)
    seen(lambda: all(gpu.withheld for gpu in desk.portal.reports()[-1].gpus))
    assert desk.portal.reports()[-1].gpus[0].withheld == "n1 is cordoned in Kubernetes"
    assert desk.states("BK-17") == {"ready"}
    desk.book("BK-18", 0)
    seen(lambda: desk.states("BK-18") == {"preparing"})
    site.cordon("n1", cordoned=False)
    desk.await_ready("BK-18")
    assert site.running(TEAM) == ["n1"]


@pytest.mark.engines
def test_what_is_deleted_behind_the_portals_back_is_made_again(
    desk: Desk, server: ApiServer, site: Site
) -> None:
    desk.book("BK-19", 0)
    desk.await_ready("BK-19")
    site.job("train", TEAM, "bk-19")
    seen(lambda: site.running(TEAM) == ["n1"])
    # A workload: Kueue makes another one of the job. The booking continues.
    before = uid_of(server, "train")
    server.store.remove(api.WORKLOADS, "train", TEAM)
    seen(lambda: uid_of(server, "train") not in (None, before))
    seen(lambda: site.running(TEAM) == ["n1"])
    # The queues.
    server.store.remove(api.LOCAL_QUEUES, "bk-19", TEAM)
    seen(lambda: server.store.find(api.LOCAL_QUEUES, "bk-19", TEAM) is not None)
    server.store.remove(api.CLUSTER_QUEUES, "biology.bk-19")
    seen(lambda: server.store.find(api.CLUSTER_QUEUES, "biology.bk-19") is not None)
    assert desk.states("BK-19") == {"ready"}
    # The namespace: there is nowhere to work in.
    server.store.remove(api.NAMESPACES, TEAM)
    seen(lambda: desk.states("BK-19") == {"failed"})
    (said,) = desk.portal.reports()[-1].allocations
    assert said.error == f"the namespace {TEAM} was deleted"
