"""A pool on a real slurmrestd: what holds for one by Slurm's commands holds for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.engine_portal import EnginePortal
from tests.agent.engine_process import EngineProcess
from tests.slurm.cluster import Cluster, running
from tests.slurm.engine import options_of
from tests.slurm.test_pool import (
    lab,
    portal,
    test_many_bookings_at_once_on_an_engine_that_is_killed,
    test_slurm_chooses_the_node_and_the_plan_of_slots_holds,
)
from tests.slurm.test_rest import access_of

__all__ = [
    "lab",
    "portal",
    "test_many_bookings_at_once_on_an_engine_that_is_killed",
    "test_slurm_chooses_the_node_and_the_plan_of_slots_holds",
]
pytestmark = [pytest.mark.faults, pytest.mark.engines]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for found in running(names=("n1", "n2", "n3", "n4"), has_rest=True):
        found.run("scontrol", "update", "ReservationName=portal", "Nodes=n1,n2,n3", "Flags+=FLEX")
        yield found


@pytest.fixture
def engine(portal: EnginePortal, cluster: Cluster, tmp_path: Path) -> Iterator[EngineProcess]:
    options = options_of(cluster, tmp_path / "state", nodes="") | access_of(cluster)
    pool = {"GPU_AGENT_TOKEN": "", "GPU_AGENT_GRANULARITY": "pool"}
    found = EngineProcess(portal, tmp_path / "state", {**options, **pool})
    yield found
    found.close()
    cluster.empty()
