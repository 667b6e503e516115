"""A real Slurm for a module of tests, and the engine on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.desk import seen
from tests.agent.portal_fixture import portal
from tests.agent.processes import Portal
from tests.slurm.cluster import Cluster, running
from tests.slurm.desk import Desk
from tests.slurm.engine import Engine

__all__ = ["portal"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from running()


@pytest.fixture
def engine(portal: Portal, cluster: Cluster, tmp_path: Path) -> Iterator[Engine]:
    found = Engine(portal, cluster, tmp_path / "state")
    yield found
    found.close()
    cluster.empty()


@pytest.fixture
def desk(portal: Portal, engine: Engine) -> Desk:
    engine.start()
    seen(lambda: len(portal.reports()) > 0)
    return Desk(portal)
