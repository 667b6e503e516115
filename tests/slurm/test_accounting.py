"""A Slurm that asks for associations: who lacks one is named before anything is submitted."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.desk import seen
from tests.agent.processes import Portal
from tests.slurm.accounting import AccountedCluster, lacking
from tests.slurm.cluster import OWNER, Cluster
from tests.slurm.desk import Desk
from tests.slurm.engine import Engine

pytestmark = [pytest.mark.faults, pytest.mark.engines]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if missing := lacking():
        pytest.fail(f"{', '.join(missing)} are not installed: run `make slurm` as root", pytrace=False)
    with tempfile.TemporaryDirectory(prefix="gpup-slurm-") as folder:
        found = AccountedCluster(Path(folder))
        try:
            found.start()
            yield found
        finally:
            found.stop()


@pytest.fixture
def engine(portal: Portal, cluster: Cluster, tmp_path: Path) -> Iterator[Engine]:
    found = Engine(portal, cluster, tmp_path / "state", GPU_AGENT_SLURM_ACCOUNT="biology=chem")
    yield found
    found.close()
    cluster.empty()


def errors(desk: Desk) -> str:
    return " ".join(each.error or "" for each in desk.portal.reports()[-1].allocations)


def test_a_missing_association_is_named_and_the_booking_starts_when_it_is_there(
    desk: Desk, cluster: Cluster
) -> None:
    desk.book("BK-30", 0)
    wanted = f"{OWNER} has no association in Slurm: sacctmgr add user {OWNER} account=chem"
    seen(lambda: wanted in errors(desk))
    assert desk.states("BK-30") == {"preparing"}
    assert cluster.jobs() == []
    words = ("doctor", "--engine", "slurm", "--state", str(cluster.root / "doctor"))
    done = subprocess.run(
        [sys.executable, "-m", "agent", *words],
        env={**cluster.environment, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "AccountingStorageEnforce is associations; accounts without users: none given" in done.stdout

    cluster.run("sacctmgr", "--immediate", "add", "user", OWNER, "account=chem")
    # They are read once a minute.
    seen(lambda: desk.states("BK-30") == {"ready"}, seconds=90)
    assert cluster.run("squeue", "--noheader", "--Format=Account").strip() == "chem"
    desk.release("BK-30")
