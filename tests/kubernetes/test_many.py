"""Many bookings on an engine that is killed again and again: nothing runs twice, nothing is lost."""

import random

import pytest

from agent.kubernetes import api
from tests.agent.desk import Desk, seen
from tests.agent.engine_process import EngineProcess
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import Site
from tests.kubernetes.store import JOBS

pytestmark = [pytest.mark.faults, pytest.mark.engines]

BOOKINGS = 100


@pytest.mark.timeout(1500)
def test_each_of_many_bookings_is_one_queue(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    """Each turn starts a booking on each GPU, kills the engine at a random moment, and ends them."""
    chance = random.Random(36)  # noqa: S311 (the same test each time)
    ran: list[str] = []
    for first in range(0, BOOKINGS, 4):
        turn = {f"BK-{first + gpu}": gpu for gpu in range(4)}
        for name, gpu in turn.items():
            site.job(name.lower(), TEAM, name.lower())
            desk.book(name, gpu)
        engine.kill_after(chance.uniform(0, 1.5))
        engine.start()
        for name in turn:
            desk.await_ready(name)
        seen(lambda: site.running(TEAM) == ["n1"] * 4)
        ran += [each["metadata"]["generateName"].rstrip("-") for each in server.store.all(api.PODS)]
        for name in turn:
            desk.change(name, state="release")
        engine.kill_after(chance.uniform(0, 1.0))
        engine.start()
        for name in turn:
            desk.release(name)
        assert site.running(TEAM) == []
        seen(lambda: not any(server.store.all(kind) for kind in (api.CLUSTER_QUEUES, api.FLAVORS)))
        for name in turn:
            server.store.remove(JOBS, name.lower(), TEAM)
    assert sorted(ran) == sorted(f"bk-{number}" for number in range(BOOKINGS))
    made = [each for each in server.writes if each.startswith("create clusterqueues")]
    pods = server.store.kinds[api.PODS].changes
    assert len([change for _, change, _ in pods if change == "ADDED"]) == BOOKINGS
    assert len(made) >= BOOKINGS
