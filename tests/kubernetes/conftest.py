"""The API server of the tests with its controllers, and the engine on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.kubernetes.api import OF_SCHEDULER, RIGHTS, Way
from tests.agent.desk import Desk, seen
from tests.agent.engine_process import EngineProcess
from tests.agent.portal_fixture import portal
from tests.agent.processes import Portal
from tests.kubernetes.admission import HOLDERS
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import ENGINE_TOKEN, ApiServer
from tests.kubernetes.site import Site

__all__ = ["portal"]

TEAM = "biology-llm"
"""The namespace of the organisation of the tests."""


def granted(way: Way) -> set[tuple[str, str, str]]:
    """Returns the rights of the engine: verb, group and resource."""
    found = RIGHTS[way]
    more = OF_SCHEDULER if way == "volcano" else ()
    rights = (*found.everywhere, *found.in_projects, *found.own, *more)
    return {(verb, each.group, each.plural) for each, verbs in rights for verb in verbs}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Node n1 has four GPUs and seven slices, n2 four GPUs."""
    found = ApiServer()
    site = Site(found.store)
    site.namespace("kube-system")
    site.namespace(HOLDERS)
    site.namespace(TEAM, tenant="biology")
    site.node("n1", gpu=4, mig_1g_10gb=7)
    site.node("n2", gpu=4)
    yield found
    found.stop()
    assert found.store.problems == []
    assert found.asked <= granted(found.way)
    for made in ("create pods ", "create commands "):
        assert {each for each in found.writes if each.startswith(made)} <= {f"{made}{HOLDERS}/"}


@pytest.fixture
def controllers(server: ApiServer) -> Iterator[Controllers]:
    found = Controllers(server.store)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def site(server: ApiServer) -> Site:
    return Site(server.store)


@pytest.fixture
def engine(
    portal: Portal, server: ApiServer, controllers: Controllers, tmp_path: Path
) -> Iterator[EngineProcess]:
    token = tmp_path / "token"
    token.write_text(ENGINE_TOKEN)
    options = {
        "GPU_AGENT_ENGINE": "kubernetes",
        "GPU_AGENT_NODES": "n1",
        "GPU_AGENT_KUBERNETES_API": server.url,
        "GPU_AGENT_KUBERNETES_TOKEN": str(token),
    }
    found = EngineProcess(portal, tmp_path / "state", options)
    yield found
    found.close()


@pytest.fixture
def desk(portal: Portal, engine: EngineProcess) -> Desk:
    engine.start()
    seen(lambda: len(portal.reports()) > 0)
    return Desk(portal)
