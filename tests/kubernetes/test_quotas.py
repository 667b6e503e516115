"""The engine where the cluster has no Kueue: a booking is a quota, and pods that hold its devices."""

import random

import pytest

import wire
from agent.kubernetes import api
from agent.kubernetes.api import Access, KubernetesApi
from agent.kubernetes.cluster import KubernetesCluster, site_read
from agent.kubernetes.gpu import KubernetesGpus
from agent.kubernetes.holders import HeldQuotas
from agent.kubernetes.names import ENDS, HOLDS, PAUSE_AT
from agent.kubernetes.parts import PartSettings
from agent.plan.targets import GpuTarget, Task
from agent.ports.gpu import RetryLater
from tests.agent.builders import HOUR, a_whole
from tests.agent.desk import Desk, now, seen
from tests.agent.engine_process import EngineProcess
from tests.kubernetes.admission import HOLDERS
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import Site
from tests.kubernetes.store import JOBS, Refusal

pytestmark = pytest.mark.faults

SLICES = "nvidia.com/mig-1g.10gb"


@pytest.fixture(autouse=True)
def _without_kueue(server: ApiServer, site: Site, controllers: Controllers) -> None:
    server.way, controllers.is_kueue_up = "quota", False
    server.lacks.add(api.KUEUE)
    site.plain()


def rank_of(booking: str, node: str = "n1") -> str:
    return f"gpu-portal.biology.{booking.lower()}.{node}"


def work(site: Site, name: str, booking: str, *, count: int = 1, stubborn: bool = False) -> None:
    site.job(name, TEAM, "", count=count, stubborn=stubborn, rank=rank_of(booking), node="n1")


def holders(server: ApiServer, booking: str) -> int:
    """Returns how many pods hold devices of a booking on its node."""
    there = (each for each in server.store.all(api.PODS) if each["metadata"]["namespace"] == HOLDERS)
    mine = (each for each in there if each["metadata"]["labels"][HOLDS] == rank_of(booking))
    return sum("nodeName" in each["spec"] for each in mine)


def hard_of(server: ApiServer, quota: str) -> dict[str, str]:
    found: dict[str, str] = server.store.get(api.QUOTAS, quota, TEAM)["spec"]["hard"]
    return found


def notes_of(server: ApiServer, quota: str) -> dict[str, str]:
    found: dict[str, str] = server.store.get(api.QUOTAS, quota, TEAM)["metadata"]["annotations"]
    return found


def nothing_left(server: ApiServer) -> bool:
    ranks = [each["metadata"]["name"] for each in server.store.all(api.RANKS)]
    pods = [each for each in server.store.all(api.PODS) if each["metadata"]["namespace"] == HOLDERS]
    return ranks == ["gpu-portal-holder"] and not pods and not server.store.all(api.QUOTAS)


def test_a_booking_is_a_quota_whose_devices_are_held_until_people_use_them(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    (enrolment,) = desk.portal.enrolments
    assert wire.inventory_from_plain(enrolment["inventory"]).engine == "quota"
    desk.book("BK-7", 0, 1)
    desk.await_ready("BK-7")
    hard = hard_of(server, "bk-7.n1")
    # Nothing that the node offers is without a limit.
    assert (hard["requests.nvidia.com/gpu"], hard[f"requests.{SLICES}"]) == ("2", "0")
    assert set(hard) == {f"requests.{name}" for name in ("nvidia.com/gpu", SLICES, "cpu", "memory")}
    assert holders(server, "BK-7") == 2
    # A pod of others finds the free devices, and not the booked ones.
    site.namespace("others")
    site.job("much", "others", "", count=3, node="n1")
    work(site, "one", "BK-7")
    seen(lambda: site.running(TEAM) == ["n1"])
    seen(lambda: holders(server, "BK-7") == 1)
    work(site, "two", "BK-7")
    work(site, "three", "BK-7")
    seen(lambda: site.running(TEAM) == ["n1", "n1"])
    seen(lambda: holders(server, "BK-7") == 0)
    assert site.running("others") == []
    assert not desk.portal.reports()[-1].foreign

    # One of them ends: its device is held again, or the third one's.
    site.finish("one", TEAM)
    seen(
        lambda: sum(each["metadata"]["name"].startswith("three") for each in server.store.all(api.PODS)) == 1
    )
    (_, first), _ = desk.bookings["BK-7"]
    before = notes_of(server, "bk-7.n1")[ENDS]
    desk.change("BK-7", ends=first.ends + HOUR)
    seen(lambda: notes_of(server, "bk-7.n1")[ENDS] > before)

    desk.release("BK-7")
    assert site.running(TEAM) == []
    seen(lambda: nothing_left(server))
    # Its devices are free for all now.
    seen(lambda: site.running("others") == ["n1"])
    assert engine.stop() == 0


def test_a_notice_is_an_event_and_a_pause_ends_the_pods(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-8", 0)
    desk.await_ready("BK-8")
    work(site, "train", "BK-8")
    seen(lambda: site.running(TEAM) == ["n1"])
    notice = wire.Notice(id="p1", told=now(), at=now() + 60, method="stop")
    desk.change("BK-8", notice=notice, ends=now() + 60)
    seen(lambda: PAUSE_AT in notes_of(server, "bk-8.n1"))
    events = server.store.all(api.EVENTS)
    assert {(each["reason"], each["involvedObject"]["kind"]) for each in events} == {
        ("PauseAnnounced", "Pod"),
        ("PauseAnnounced", "ResourceQuota"),
    }
    assert site.running(TEAM) == ["n1"]
    desk.release("BK-8")
    assert site.running(TEAM) == []
    seen(lambda: nothing_left(server))

    # It returns to the node: its Job, which is still there, makes its pod again.
    desk.book("BK-8", 2)
    seen(lambda: site.running(TEAM) == ["n1"])
    # It never ran without a quota.
    assert PAUSE_AT not in notes_of(server, "bk-8.n1")
    desk.release("BK-8")


@pytest.mark.engines
def test_what_still_runs_after_the_grace_time_is_deleted(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-15", 0)
    desk.await_ready("BK-15")
    work(site, "stubborn", "BK-15", stubborn=True)
    seen(lambda: site.running(TEAM) == ["n1"])
    notice = wire.Notice(id="p2", told=now() - 60, at=now() - 1, method="stop")
    desk.change("BK-15", notice=notice, ends=now() - 1)
    seen(lambda: desk.states("BK-15") == {"ending"})
    began = now()
    seen(lambda: desk.states("BK-15") == {"empty"})
    # Its pod has 30 s by itself, and gets 3 after a notice.
    assert 2 <= now() - began < 15
    assert site.running(TEAM) == []


def test_an_engine_that_was_killed_finds_its_quotas(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    desk.book("BK-12", 0, 1)
    desk.await_ready("BK-12")
    work(site, "train", "BK-12")
    seen(lambda: site.running(TEAM) == ["n1"] and holders(server, "BK-12") == 1)
    before = {each["metadata"]["uid"] for each in server.store.all(api.PODS)}
    engine.kill()
    desk.change("BK-12", ends=now() + 3 * HOUR)
    engine.start()
    desk.book("BK-13", 2)
    desk.await_ready("BK-13")
    assert desk.states("BK-12") == {"ready"}
    assert before <= {each["metadata"]["uid"] for each in server.store.all(api.PODS)}
    engine.kill()
    desk.change("BK-12", state="release")
    engine.start()
    seen(lambda: desk.states("BK-12") == {"empty"})
    assert (site.running(TEAM), holders(server, "BK-13")) == ([], 1)


@pytest.mark.engines
def test_devices_of_two_bookings_on_a_node_are_kept_apart(desk: Desk, server: ApiServer, site: Site) -> None:
    """The scheduler ends any pod that holds a device: each booking has its own again."""
    desk.book("BK-1", 0, 1)
    desk.book("BK-2", 2, 3)
    desk.await_ready("BK-1")
    desk.await_ready("BK-2")
    work(site, "first", "BK-2", count=2)
    seen(lambda: site.running(TEAM) == ["n1"])
    seen(lambda: (holders(server, "BK-1"), holders(server, "BK-2")) == (2, 0))
    work(site, "second", "BK-1", count=2)
    seen(lambda: site.running(TEAM) == ["n1", "n1"])
    assert {*desk.states("BK-1"), *desk.states("BK-2")} == {"ready"}
    assert all(not report.foreign for report in desk.portal.reports())
    desk.release("BK-1")
    assert site.running(TEAM) == ["n1"]
    # What the first booking had is not the second one's.
    work(site, "third", "BK-2")
    seen(lambda: server.store.find(JOBS, "third", TEAM) is not None)
    desk.release("BK-2")
    assert not any(each["metadata"]["name"].startswith("third") for each in server.store.all(api.PODS))


@pytest.mark.engines
def test_nothing_begins_where_pods_of_others_would_end_for_it(
    desk: Desk, server: ApiServer, site: Site
) -> None:
    site.namespace("others")
    site.pod("theirs", "others", "n1")
    seen(lambda: all(gpu.withheld for gpu in desk.portal.reports()[-1].gpus))
    assert desk.portal.reports()[-1].gpus[0].withheld == (
        "pods of others use GPUs of n1, and would end for a booking's: others/theirs"
    )
    desk.book("BK-9", 0, 1)
    seen(lambda: "preparing" in desk.states("BK-9"))
    assert nothing_left(server)
    server.store.remove(api.PODS, "theirs", "others")
    desk.await_ready("BK-9")


def test_a_class_is_for_pods_of_its_namespace_on_its_node(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-3", 0)
    desk.await_ready("BK-3")
    site.namespace("others")
    work(site, "own", "BK-3")
    site.job("elsewhere", TEAM, "", rank=rank_of("BK-3"), node="n2")
    site.job("thief", "others", "", rank=rank_of("BK-3"), node="n1")
    site.job("holder", "others", "", rank="gpu-portal-holder", node="n1")
    seen(lambda: site.running(TEAM) == ["n1"])
    assert site.running("others") == []
    # No more than what is booked.
    (pod,) = (each for each in server.store.all(api.PODS) if each["metadata"]["namespace"] == TEAM)
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    with pytest.raises(Refusal, match=r"exceeded quota: bk-3\.n1"):
        server.store.create(api.PODS, {"metadata": {"name": "more"}, "spec": spec}, TEAM)
    # Nor anything of another kind.
    uses = {SLICES: "1", "cpu": "1m", "memory": "1Mi"}
    spec["containers"][0]["resources"] = {"requests": uses, "limits": uses}
    with pytest.raises(Refusal, match=r"exceeded quota: bk-3\.n1"):
        server.store.create(api.PODS, {"metadata": {"name": "other"}, "spec": spec}, TEAM)
    desk.release("BK-3")


@pytest.mark.engines
def test_what_is_deleted_behind_the_portals_back_is_made_again(
    desk: Desk, server: ApiServer, site: Site
) -> None:
    desk.book("BK-19", 0)
    desk.await_ready("BK-19")
    server.store.remove(api.QUOTAS, "bk-19.n1", TEAM)
    seen(lambda: server.store.find(api.QUOTAS, "bk-19.n1", TEAM) is not None)
    server.store.remove(api.PODS, f"{rank_of('BK-19')}.0", HOLDERS)
    seen(lambda: holders(server, "BK-19") == 1)
    server.store.remove(api.RANKS, rank_of("BK-19"))
    seen(lambda: server.store.find(api.RANKS, rank_of("BK-19")) is not None)
    assert desk.states("BK-19") == {"ready"}
    server.store.remove(api.NAMESPACES, TEAM)
    seen(lambda: desk.states("BK-19") == {"failed"})
    (said,) = desk.portal.reports()[-1].allocations
    assert said.error == f"the namespace {TEAM} was deleted"


@pytest.mark.engines
@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_write_that_is_refused_for_now_is_done_later(
    desk: Desk, server: ApiServer, site: Site, status: int
) -> None:
    def writes(method: str, path: str) -> bool:
        return method in ("POST", "PATCH", "DELETE")

    server.fail(writes, status, count=3, Retry_After="1")
    desk.book("BK-4", 0, 1)
    desk.await_ready("BK-4")
    work(site, "train", "BK-4", count=2)
    seen(lambda: site.running(TEAM) == ["n1"])
    server.fail(writes, status, count=3, Retry_After="1")
    desk.release("BK-4")
    assert site.running(TEAM) == []
    seen(lambda: nothing_left(server))


@pytest.mark.engines
def test_watches_that_break_and_forget_lose_nothing(desk: Desk, server: ApiServer, site: Site) -> None:
    for turn, disturb in enumerate((server.break_watches, server.store.compact, server.break_watches)):
        name = f"BK-{turn + 1}"
        disturb()
        desk.book(name, 0, 1)
        server.store.compact()
        server.break_watches()
        desk.await_ready(name)
        work(site, f"job-{turn}", name, count=2)
        server.break_watches()
        seen(lambda: site.running(TEAM) == ["n1"])
        server.store.compact()
        server.break_watches()
        desk.release(name)
        assert site.running(TEAM) == []
    seen(lambda: nothing_left(server))


@pytest.mark.engines
def test_a_lost_node_and_a_silent_server_are_never_empty(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-16", 0)
    desk.await_ready("BK-16")
    work(site, "train", "BK-16")
    seen(lambda: site.running(TEAM) == ["n1"])
    site.ready("n1", ready=False)
    seen(lambda: desk.states("BK-16") == {"failed"})
    desk.change("BK-16", state="release")
    seen(lambda: hard_of(server, "bk-16.n1").get("pods") == "0")
    assert (desk.states("BK-16"), site.running(TEAM)) == ({"ending"}, ["n1"])
    server.away()
    site.ready("n1", ready=True)
    seen(lambda: "Kubernetes does not answer" in (desk.portal.reports()[-1].error or ""))
    assert desk.states("BK-16") == {"ending"}
    server.back()
    seen(lambda: desk.states("BK-16") == {"empty"})
    seen(lambda: nothing_left(server))


def test_no_class_is_made_before_its_quota_is_in_force(server: ApiServer, controllers: Controllers) -> None:
    controllers.counts_quotas = False
    cluster = KubernetesCluster(KubernetesApi(Access(server.url)), way="quota")
    gpus = KubernetesGpus(cluster, "n1", site_read(cluster.api), {})
    settings = PartSettings(node="n1", slot_of=gpus.slot, resource_of=gpus.resource)
    gpus.queues = quotas = HeldQuotas(cluster, settings, namespace=HOLDERS, image="pause")
    wanted = a_whole("a", booking="BK-1")

    def try_allow() -> str:
        task = Task(wanted, ending=False, given=False, emptied=False)
        quotas.follow((GpuTarget(gpus.gpus[0], "whole", (task,)),), known=True)
        try:
            quotas.allow(wanted, gpus.gpus[0], ())
        except RetryLater as later:
            return str(later)
        return ""

    assert try_allow() == try_allow() == "Kubernetes has not taken its quota yet"
    assert [each["metadata"]["name"] for each in server.store.all(api.RANKS)] == ["gpu-portal-holder"]
    controllers.counts_quotas = True
    seen(lambda: try_allow() == "")
    cluster.stop()


@pytest.mark.engines
@pytest.mark.timeout(600)
def test_an_engine_that_is_killed_again_and_again_loses_nothing(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    chance = random.Random(256)  # noqa: S311 (the same test each time)
    for turn in range(8):
        first, second = f"BK-{2 * turn}", f"BK-{2 * turn + 1}"
        desk.book(first, 0, 1)
        desk.book(second, 2)
        engine.kill_after(chance.uniform(0, 1.5))
        engine.start()
        desk.await_ready(first)
        desk.await_ready(second)
        work(site, first.lower(), first)
        work(site, second.lower(), second)
        seen(lambda: site.running(TEAM) == ["n1", "n1"])
        engine.kill_after(chance.uniform(0, 1.0))
        engine.start()
        seen(lambda first=first, second=second: (holders(server, first), holders(server, second)) == (1, 0))  # type: ignore[misc]
        desk.change(first, state="release")
        desk.change(second, state="release")
        engine.kill_after(chance.uniform(0, 1.0))
        engine.start()
        desk.release(first)
        desk.release(second)
        assert site.running(TEAM) == []
        seen(lambda: nothing_left(server))
    assert all(not report.foreign for report in desk.portal.reports())
