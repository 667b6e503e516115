"""A real Slurm for a module of tests, and the engine on it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.desk import seen
from tests.agent.portal_fixture import portal
from tests.agent.processes import Portal
from tests.slurm.cluster import Cluster, missing
from tests.slurm.desk import Desk
from tests.slurm.engine import Engine

__all__ = ["portal"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.fail("jobs run as other accounts: run the tests of Slurm as root", pytrace=False)
    lacking = missing()
    if lacking:
        pytest.fail(f"{', '.join(lacking)} are not installed: run `make slurm` as root", pytrace=False)
    # Other accounts must reach it: the folders of pytest are root's.
    with tempfile.TemporaryDirectory(prefix="gpup-slurm-") as folder:
        found = Cluster(Path(folder))
        try:
            found.start()
            yield found
        finally:
            found.stop()


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
