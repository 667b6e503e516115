"""The engine where the cluster has Volcano: a booking is a quota, and a queue whose work begins together."""

import random

import pytest

import wire
from agent.kubernetes import api
from agent.kubernetes.names import ENDS, PAUSE_AT
from tests.agent.builders import HOUR
from tests.agent.desk import Desk, now, seen
from tests.agent.engine_process import EngineProcess
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import VOLCANO, ApiServer
from tests.kubernetes.site import Site

pytestmark = pytest.mark.faults

SLICES = "nvidia.com/mig-1g.10gb"
FIRST_SLICE = 4


@pytest.fixture(autouse=True)
def _with_volcano(server: ApiServer, site: Site, controllers: Controllers) -> None:
    server.way, controllers.is_kueue_up, controllers.is_volcano_up = "volcano", False, True
    server.lacks = {api.KUEUE}
    site.volcano()


def queue_of(booking: str) -> str:
    return f"gpu-portal.biology.{booking.lower()}"


def work(
    site: Site,
    name: str,
    booking: str,
    *,
    count: int = 1,
    parallelism: int = 1,
    together: int = 1,
    stubborn: bool = False,
    resource: str = "nvidia.com/gpu",
) -> None:
    queue = queue_of(booking)
    site.job(
        *(name, TEAM, ""),
        resource=resource,
        count=count,
        parallelism=parallelism,
        stubborn=stubborn,
        rank=f"{queue}.n1",
        node="n1",
        gang=queue,
        together=together,
    )


def state_of(server: ApiServer, booking: str) -> str | None:
    found = server.store.find(api.GANG_QUEUES, queue_of(booking))
    return None if found is None else found.get("status", {}).get("state")


def spec_of(server: ApiServer, booking: str) -> dict[str, object]:
    found: dict[str, object] = server.store.get(api.GANG_QUEUES, queue_of(booking))["spec"]
    return found


def nothing_left(server: ApiServer) -> bool:
    kinds = (api.GANG_QUEUES, api.RANKS, api.QUOTAS, api.COMMANDS)
    return not any(server.store.all(kind) for kind in kinds)


def test_a_booking_is_a_queue_of_its_quota_from_its_start_to_its_end(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    (enrolment,) = desk.portal.enrolments
    assert wire.inventory_from_plain(enrolment["inventory"]).engine == "volcano"
    desk.book("BK-7", 0, 1)
    desk.await_ready("BK-7")
    spec = spec_of(server, "BK-7")
    assert (spec["reclaimable"], spec["capability"]) == (False, spec["deserved"])
    # The quarter of the node that the GPUs are, of places: 2 of 11.
    counts = {"nvidia.com/gpu": "2", SLICES: "0", "cpu": "11636m"}
    assert counts.items() <= dict(spec["capability"]).items()  # type: ignore[call-overload]
    # Two that begin together, and one that has no room then.
    work(site, "pair", "BK-7", parallelism=2, together=2)
    seen(lambda: site.running(TEAM) == ["n1", "n1"])
    work(site, "third", "BK-7")

    (_, first), _ = desk.bookings["BK-7"]
    notes = server.store.get(api.GANG_QUEUES, queue_of("BK-7"))["metadata"]["annotations"]
    desk.change("BK-7", ends=first.ends + HOUR)
    seen(
        lambda: (
            server.store.get(api.GANG_QUEUES, queue_of("BK-7"))["metadata"]["annotations"][ENDS] > notes[ENDS]
        )
    )
    assert site.running(TEAM) == ["n1", "n1"]
    desk.release("BK-7")
    assert site.running(TEAM) == []
    seen(lambda: nothing_left(server))
    assert engine.stop() == 0


def test_a_group_begins_as_a_whole_or_not_at_all(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-1", 0, 1)
    desk.await_ready("BK-1")
    # The quota has room for two of its three pods.
    work(site, "three", "BK-1", parallelism=3, together=3)
    seen(lambda: len(server.store.all(api.PODS)) == 2 and len(server.store.all(api.GROUPS)) == 1)
    desk.book("BK-1", 0, 1, 2)
    seen(lambda: site.running(TEAM) == ["n1"] * 3)
    desk.release("BK-1")


def test_a_notice_reaches_groups_and_a_pause_keeps_the_queue_of_work_that_waits(
    desk: Desk, server: ApiServer, site: Site
) -> None:
    desk.book("BK-8", 0)
    desk.await_ready("BK-8")
    work(site, "train", "BK-8")
    seen(lambda: site.running(TEAM) == ["n1"])
    notice = wire.Notice(id="p1", told=now(), at=now() + 60, method="stop")
    desk.change("BK-8", notice=notice, ends=now() + 60)

    def noted(kind: api.Resource) -> bool:
        return all(PAUSE_AT in each["metadata"].get("annotations", {}) for each in server.store.all(kind))

    seen(lambda: all(map(noted, (api.GANG_QUEUES, api.GROUPS, api.QUOTAS))))
    events = {(each["reason"], each["involvedObject"]["kind"]) for each in server.store.all(api.EVENTS)}
    assert events == {("PauseAnnounced", kind) for kind in ("Pod", "PodGroup", "ResourceQuota")}
    assert site.running(TEAM) == ["n1"]

    # The pause. The queue is closed, and stays, because a Job waits in it.
    desk.release("BK-8")
    assert site.running(TEAM) == []
    seen(lambda: (state_of(server, "BK-8"), server.store.all(api.RANKS)) == ("Closing", []))
    # It returns: the Job makes its pod again.
    desk.book("BK-8", 2)
    seen(lambda: site.running(TEAM) == ["n1"])
    seen(lambda: not noted(api.GANG_QUEUES) and not noted(api.GROUPS))
    assert state_of(server, "BK-8") == "Open"
    desk.release("BK-8")
    seen(lambda: nothing_left(server))


def test_an_engine_that_was_killed_finds_its_queues(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    desk.book("BK-12", 0, 1)
    desk.await_ready("BK-12")
    work(site, "train", "BK-12")
    seen(lambda: site.running(TEAM) == ["n1"])
    kept = (api.PODS, api.GROUPS)
    before = {each["metadata"]["uid"] for kind in kept for each in server.store.all(kind)}
    uid = server.store.get(api.GANG_QUEUES, queue_of("BK-12"))["metadata"]["uid"]
    engine.kill()
    desk.change("BK-12", ends=now() + 3 * HOUR)
    engine.start()
    desk.book("BK-13", 2)
    desk.await_ready("BK-13")
    assert desk.states("BK-12") == {"ready"}
    assert {each["metadata"]["uid"] for kind in kept for each in server.store.all(kind)} == before
    assert server.store.get(api.GANG_QUEUES, queue_of("BK-12"))["metadata"]["uid"] == uid
    engine.kill()
    desk.change("BK-12", state="release")
    engine.start()
    seen(lambda: desk.states("BK-12") == {"empty"})
    assert site.running(TEAM) == []
    seen(lambda: (state_of(server, "BK-12"), state_of(server, "BK-13")) == (None, "Open"))


@pytest.mark.engines
def test_slices_are_booked_by_their_profile(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-14", FIRST_SLICE, FIRST_SLICE + 1)
    desk.await_ready("BK-14")
    counts = spec_of(server, "BK-14")["capability"]
    assert {SLICES: "2", "nvidia.com/gpu": "0"}.items() <= dict(counts).items()  # type: ignore[call-overload]
    work(site, "whole", "BK-14")
    work(site, "sliced", "BK-14", parallelism=2, together=2, resource=SLICES)
    seen(lambda: site.running(TEAM) == ["n1", "n1"])
    assert {each["metadata"]["generateName"] for each in server.store.all(api.PODS)} == {"sliced-"}
    desk.release("BK-14")


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


@pytest.mark.engines
def test_what_is_deleted_or_closed_behind_the_portals_back_is_made_again(
    desk: Desk, server: ApiServer, site: Site, controllers: Controllers
) -> None:
    desk.book("BK-19", 0)
    desk.await_ready("BK-19")
    work(site, "train", "BK-19")
    seen(lambda: site.running(TEAM) == ["n1"])
    (pod,) = server.store.all(api.PODS)
    server.store.remove(api.GANG_QUEUES, queue_of("BK-19"))
    seen(lambda: state_of(server, "BK-19") == "Open")
    server.store.patch(api.GANG_QUEUES, queue_of("BK-19"), {"status": {"state": "Closing"}})
    seen(lambda: state_of(server, "BK-19") == "Open")
    server.store.remove(api.QUOTAS, "bk-19.n1", TEAM)
    seen(lambda: server.store.find(api.QUOTAS, "bk-19.n1", TEAM) is not None)
    server.store.remove(api.RANKS, f"{queue_of('BK-19')}.n1")
    seen(lambda: server.store.find(api.RANKS, f"{queue_of('BK-19')}.n1") is not None)
    assert desk.states("BK-19") == {"ready"}
    assert [each["metadata"]["uid"] for each in server.store.all(api.PODS)] == [pod["metadata"]["uid"]]
    server.store.remove(api.NAMESPACES, TEAM)
    seen(lambda: desk.states("BK-19") == {"failed"})
    (said,) = desk.portal.reports()[-1].allocations
    assert said.error == f"the namespace {TEAM} was deleted"


@pytest.mark.engines
def test_a_volcano_that_is_away_starts_nothing_and_keeps_nothing_from_ending(
    desk: Desk, server: ApiServer, site: Site, controllers: Controllers
) -> None:
    desk.book("BK-5", 0)
    desk.await_ready("BK-5")
    work(site, "train", "BK-5")
    seen(lambda: site.running(TEAM) == ["n1"])
    controllers.is_volcano_up = False
    desk.book("BK-6", 1)
    seen(
        lambda: (
            state_of(server, "BK-6") is None and bool(server.store.find(api.GANG_QUEUES, queue_of("BK-6")))
        )
    )
    assert desk.states("BK-6") == {"preparing"}
    # The proof is the API server's.
    desk.release("BK-5")
    assert site.running(TEAM) == []
    assert state_of(server, "BK-5") == "Open"
    controllers.is_volcano_up = True
    desk.await_ready("BK-6")
    seen(lambda: state_of(server, "BK-5") is None)


@pytest.mark.engines
def test_a_lost_node_and_a_silent_server_are_never_empty(desk: Desk, server: ApiServer, site: Site) -> None:
    desk.book("BK-16", 0)
    desk.await_ready("BK-16")
    work(site, "train", "BK-16")
    seen(lambda: site.running(TEAM) == ["n1"])
    site.ready("n1", ready=False)
    seen(lambda: desk.states("BK-16") == {"failed"})
    desk.change("BK-16", state="release")
    seen(lambda: server.store.get(api.QUOTAS, "bk-16.n1", TEAM)["spec"]["hard"].get("pods") == "0")
    assert (desk.states("BK-16"), site.running(TEAM)) == ({"ending"}, ["n1"])
    server.away()
    site.ready("n1", ready=True)
    seen(lambda: "Kubernetes does not answer" in (desk.portal.reports()[-1].error or ""))
    assert desk.states("BK-16") == {"ending"}
    server.back()
    seen(lambda: desk.states("BK-16") == {"empty"})
    seen(lambda: nothing_left(server))


@pytest.mark.engines
@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_write_that_is_refused_for_now_is_done_later(
    desk: Desk, server: ApiServer, site: Site, status: int
) -> None:
    def writes(method: str, path: str) -> bool:
        return method in ("POST", "PATCH", "DELETE")

    server.fail(writes, status, count=4, Retry_After="1")
    desk.book("BK-4", 0, 1)
    desk.await_ready("BK-4")
    work(site, "train", "BK-4", count=2)
    seen(lambda: site.running(TEAM) == ["n1"])
    server.fail(writes, status, count=4, Retry_After="1")
    desk.release("BK-4")
    assert site.running(TEAM) == []
    seen(lambda: nothing_left(server))


@pytest.mark.engines
def test_watches_that_break_and_forget_lose_nothing(desk: Desk, server: ApiServer, site: Site) -> None:
    def gone(method: str, path: str) -> bool:
        return method == "GET" and path.endswith(("/queues", "/podgroups"))

    for turn, disturb in enumerate((server.break_watches, server.store.compact, server.break_watches)):
        name = f"BK-{turn + 1}"
        server.fail(gone, 410, count=2)
        disturb()
        desk.book(name, 0, 1)
        server.store.compact()
        server.break_watches()
        desk.await_ready(name)
        work(site, f"job-{turn}", name, parallelism=2, together=2)
        server.break_watches()
        seen(lambda: site.running(TEAM) == ["n1", "n1"])
        server.store.compact()
        server.break_watches()
        desk.release(name)
        assert site.running(TEAM) == []
    seen(lambda: nothing_left(server))


def test_queues_of_the_site_are_left_alone(desk: Desk, server: ApiServer, site: Site) -> None:
    theirs = {"metadata": {"name": queue_of("BK-3")}, "spec": {"weight": 3}}
    server.store.create(api.GANG_QUEUES, theirs)
    # Somebody's may even have the label.
    labelled = {"name": "labelled", "labels": {"gpu-portal/booking": "biology.bk-2"}}
    server.store.create(api.GANG_QUEUES, {"metadata": labelled, "spec": {}})
    # Or be a copy of a booking's.
    copy = {**labelled, "name": "copy", "annotations": {"gpu-portal/namespace": TEAM}}
    server.store.create(api.GANG_QUEUES, {"metadata": copy, "spec": {}})
    desk.book("BK-3", 0)
    text = f"there is a queue {queue_of('BK-3')} of Volcano that is not the portal's"
    seen(lambda: any(text in (each.error or "") for each in desk.portal.reports()[-1].allocations))
    desk.release("BK-3")
    seen(lambda: server.store.all(api.RANKS) == server.store.all(api.QUOTAS) == [])
    found = {each["metadata"]["name"]: each for each in server.store.all(api.GANG_QUEUES)}
    assert found.keys() == {queue_of("BK-3"), "labelled", "copy"}
    assert found[queue_of("BK-3")]["spec"]["weight"] == 3
    assert not [each for each in server.writes if "commands" in each or "delete queues" in each]


@pytest.mark.engines
def test_volcano_is_used_where_kueue_is_served_only_if_the_site_asks_for_it(
    server: ApiServer, site: Site, engine: EngineProcess, desk: Desk
) -> None:
    assert VOLCANO[0] not in server.lacks
    desk.book("BK-1", 0)
    desk.await_ready("BK-1")
    engine.kill()
    # Somebody installs Kueue. Bookings stay what the options say.
    server.lacks = set()
    engine.start(GPU_AGENT_KUBERNETES_BOOKINGS="volcano")
    desk.book("BK-2", 1)
    desk.await_ready("BK-2")
    assert (state_of(server, "BK-1"), state_of(server, "BK-2")) == ("Open", "Open")
    assert server.store.all(api.CLUSTER_QUEUES) == []
    desk.release("BK-1")
    desk.release("BK-2")
    seen(lambda: nothing_left(server))


@pytest.mark.engines
@pytest.mark.timeout(600)
def test_an_engine_that_is_killed_again_and_again_loses_nothing(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    """At each step: while bookings begin, run, pause, return and end."""
    chance = random.Random(36)  # noqa: S311 (the same test each time)

    def killed() -> None:
        engine.kill_after(chance.uniform(0, 1.5))
        engine.start()

    for turn in range(8):
        first, second = f"BK-{2 * turn}", f"BK-{2 * turn + 1}"
        desk.book(first, 0, 1)
        desk.book(second, 2)
        killed()
        desk.await_ready(first)
        desk.await_ready(second)
        work(site, first.lower(), first, parallelism=2, together=2)
        work(site, second.lower(), second)
        seen(lambda: site.running(TEAM) == ["n1"] * 3)
        notice = wire.Notice(id=f"p{turn}", told=now() - 60, at=now() - 1, method="stop")
        desk.change(second, notice=notice, ends=now() - 1)
        desk.change(first, state="release")
        killed()
        desk.release(first)
        desk.release(second)
        assert site.running(TEAM) == []
        # The queue of the paused one waits for its return, and is opened then.
        desk.book(second, 3)
        killed()
        seen(lambda: site.running(TEAM) == ["n1"])
        desk.change(second, state="release")
        killed()
        desk.release(second)
        seen(lambda: nothing_left(server))
    assert all(not report.foreign for report in desk.portal.reports())
