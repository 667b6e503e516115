"""The engine on an API server that fails in the ways of real ones."""

import pytest

import wire
from agent.kubernetes import api
from tests.agent.builders import HOUR, a_whole
from tests.agent.desk import Desk, now, seen
from tests.agent.engine_process import EngineProcess
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import Site

pytestmark = [pytest.mark.faults, pytest.mark.engines]


def running(desk: Desk, site: Site, name: str, *gpus: int) -> str:
    """Starts a booking with a job; returns its queue."""
    desk.book(name, *gpus)
    desk.await_ready(name)
    site.job(f"job-{name.lower()}", TEAM, name.lower(), count=len(gpus))
    seen(lambda: "n1" in site.running(TEAM))
    return f"biology.{name.lower()}"


def test_watches_that_break_and_forget_lose_nothing(desk: Desk, server: ApiServer, site: Site) -> None:
    for turn, disturb in enumerate((server.break_watches, server.store.compact, server.break_watches)):
        name = f"BK-{turn + 1}"
        disturb()
        desk.book(name, 0, 1)
        server.store.compact()
        server.break_watches()
        desk.await_ready(name)
        site.job(f"job-{turn}", TEAM, name.lower(), count=2)
        server.break_watches()
        seen(lambda: site.running(TEAM) == ["n1"])
        server.store.compact()
        server.break_watches()
        desk.release(name)
        assert site.running(TEAM) == []


def test_a_watch_that_is_refused_with_410_is_listed_again(desk: Desk, server: ApiServer, site: Site) -> None:
    server.fail(lambda method, path: path.endswith("/pods") and method == "GET", 410, count=2)
    server.break_watches()
    site.namespace("others")
    site.pod("theirs", "others", "n1", count=2)
    seen(lambda: len(desk.portal.reports()[-1].foreign) == 2)


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_write_that_is_refused_for_now_is_done_later(
    desk: Desk, server: ApiServer, site: Site, status: int
) -> None:
    def writes(method: str, path: str) -> bool:
        return method in ("POST", "PATCH", "DELETE")

    server.fail(writes, status, count=3, Retry_After="1")
    desk.book("BK-4", 0, 1)
    desk.await_ready("BK-4")
    site.job("train", TEAM, "bk-4", count=2)
    seen(lambda: site.running(TEAM) == ["n1"])
    server.fail(writes, status, count=3, Retry_After="1")
    desk.release("BK-4")
    assert site.running(TEAM) == []
    seen(lambda: server.store.all(api.CLUSTER_QUEUES) == [])


def test_a_server_that_asks_for_a_pause_gets_it(desk: Desk, server: ApiServer) -> None:
    server.fail(lambda method, path: method == "POST", 429, Retry_After="3")
    began = now()
    desk.book("BK-5", 0)
    desk.await_ready("BK-5")
    assert now() - began >= 3


def test_an_api_server_that_is_away_changes_nothing(desk: Desk, server: ApiServer, site: Site) -> None:
    running(desk, site, "BK-6", 0)
    server.away()
    # What it can't read counts as occupied.
    desk.change("BK-6", state="release")
    seen(lambda: "Kubernetes does not answer" in (desk.portal.reports()[-1].error or ""))
    assert desk.states("BK-6") == {"ending"}
    assert site.running(TEAM) == ["n1"]
    server.back()
    seen(lambda: desk.states("BK-6") == {"empty"})
    assert site.running(TEAM) == []


def test_a_booking_is_not_empty_while_kueue_still_has_its_work(
    desk: Desk, server: ApiServer, site: Site, controllers: Controllers
) -> None:
    running(desk, site, "BK-7", 0)
    controllers.is_kueue_up = False
    desk.change("BK-7", state="release")
    seen(lambda: desk.states("BK-7") == {"ending"})
    # Its pods are deleted after the grace time, and its job makes others.
    seen(lambda: sum("delete pods" in each for each in server.writes) >= 2)
    assert desk.states("BK-7") == {"ending"}
    controllers.is_kueue_up = True
    seen(lambda: desk.states("BK-7") == {"empty"})
    assert site.running(TEAM) == []


def test_leased_work_ends_with_its_lease(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    seen(lambda: any(isinstance(each, wire.Heartbeat) for each in desk.portal.messages()))
    desk.portal.grant()
    starts = now()
    leased = a_whole("leased", booking="BK-8", starts=starts, ends=starts + HOUR)
    desk.bookings["BK-8"] = [(0, leased)]
    desk.change("BK-8", lease=True)
    desk.await_ready("BK-8")
    site.job("train", TEAM, "bk-8")
    seen(lambda: site.running(TEAM) == ["n1"])
    # Nobody renews it.
    seen(lambda: desk.states("BK-8") == {"failed"})
    (said,) = desk.portal.reports()[-1].allocations
    assert said.error == wire.LEASE_EXPIRED
    assert site.running(TEAM) == []
