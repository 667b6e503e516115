"""A cluster of Kubernetes is adopted with one enrolment; labelled nodes come and go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.kubernetes import api
from agent.kubernetes.names import NODE
from tests.agent.engine_portal import KIND, EnginePortal
from tests.agent.engine_process import EngineProcess
from tests.builders_allocation import a_lab
from tests.kubernetes.controllers import Controllers
from tests.kubernetes.server import ENGINE_TOKEN, ApiServer
from tests.kubernetes.site import Site

pytestmark = pytest.mark.faults


@pytest.fixture
def adopting(live_portal: str) -> EnginePortal:
    a_lab("helix", gpus=0)
    return EnginePortal(live_portal)


@pytest.fixture
def engine(
    adopting: EnginePortal, server: ApiServer, controllers: Controllers, tmp_path: Path
) -> Iterator[EngineProcess]:
    token = tmp_path / "token"
    token.write_text(ENGINE_TOKEN)
    options = {
        "GPU_AGENT_ENGINE": "kubernetes",
        "GPU_AGENT_KUBERNETES_API": server.url,
        "GPU_AGENT_KUBERNETES_TOKEN": str(token),
    }
    found = EngineProcess(adopting, tmp_path / "state", options)
    yield found
    found.close()


def test_labelled_nodes_join_and_leave(adopting: EnginePortal, engine: EngineProcess, site: Site) -> None:
    # As the chart does: the token is in the environment of the service, which is all that is started.
    engine.start(GPU_AGENT_TOKEN=adopting.token())
    adopting.until(lambda: adopting.hosts() == {"n1": False, "n2": False})
    assert adopting.approve(kind=KIND) == ["n2"]
    adopting.until(lambda: adopting.connected() == {"n2"})
    site.node("n3", gpu=4)
    adopting.until(lambda: "n3" in adopting.hosts())
    adopting.approve(kind=KIND)
    adopting.until(lambda: adopting.connected() == {"n2", "n3"})
    site.store.patch(api.NODES, "n2", {"metadata": {"labels": {NODE: None}}})
    site.store.patch(api.NODES, "n1", {"metadata": {"labels": {NODE: None}}})
    adopting.until(lambda: adopting.hosts() == {"n2": True, "n3": False})
    # It needs the token once.
    assert engine.stop() == 0
    engine.start(GPU_AGENT_TOKEN="used", GPU_AGENT_PORTAL="")
    site.store.patch(api.NODES, "n2", {"metadata": {"labels": {NODE: ""}}})
    adopting.until(lambda: adopting.hosts() == {"n2": False, "n3": False})
