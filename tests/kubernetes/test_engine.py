"""The engine on an API server: a booking is a queue with its quota."""

import pytest

import wire
from agent.kubernetes import api
from tests.agent.desk import Desk, seen
from tests.agent.engine_process import EngineProcess
from tests.kubernetes.conftest import TEAM
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import Site

pytestmark = pytest.mark.faults


def test_a_booking_is_a_queue_from_its_start_to_its_end(
    desk: Desk, engine: EngineProcess, server: ApiServer, site: Site
) -> None:
    (enrolment,) = desk.portal.enrolments
    inventory = wire.inventory_from_plain(enrolment["inventory"])
    assert (inventory.hostname, inventory.engine, len(inventory.gpus)) == ("n1", "kubernetes", 11)

    desk.book("BK-7", 0, 1)
    desk.await_ready("BK-7")
    queue = server.store.get(api.CLUSTER_QUEUES, "biology.bk-7")
    (group,) = queue["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    quotas = {each["name"]: each["nominalQuota"] for each in flavor["resources"]}
    assert quotas["nvidia.com/gpu"] == "2"

    site.job("train", TEAM, "bk-7", count=2)
    seen(lambda: site.running(TEAM) == ["n1"])
    site.job("more", TEAM, "bk-7")
    desk.release("BK-7")
    assert site.running(TEAM) == []
    seen(lambda: server.store.all(api.CLUSTER_QUEUES) + server.store.all(api.FLAVORS) == [])
    assert server.store.all(api.LOCAL_QUEUES) == []
    assert engine.stop() == 0
