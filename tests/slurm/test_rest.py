"""The engine on a real slurmrestd, without Slurm's commands: what holds for these holds for it."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.slurm.access import slurm_open
from agent.slurm.commands import SlurmCommands
from tests.agent.processes import Portal
from tests.slurm.cluster import OWNER, RESERVATION, Cluster, running
from tests.slurm.engine import Engine
from tests.slurm.test_engine import (
    test_a_booking_is_a_job_from_its_start_to_its_end,
    test_a_controller_that_is_away_changes_nothing,
    test_a_job_that_is_cancelled_behind_the_portals_back_has_failed,
    test_a_node_that_is_lost_comes_back,
    test_a_node_that_slurm_drains_is_withheld_and_its_work_continues,
    test_a_notice_reaches_the_programs_that_handle_it,
    test_an_engine_that_was_killed_finds_its_jobs,
    test_jobs_of_others_take_places_and_are_never_ended,
)
from tests.slurm.test_scripts import test_a_script_runs_in_the_job_and_its_end_comes_back

__all__ = [
    "test_a_booking_is_a_job_from_its_start_to_its_end",
    "test_a_controller_that_is_away_changes_nothing",
    "test_a_job_that_is_cancelled_behind_the_portals_back_has_failed",
    "test_a_node_that_is_lost_comes_back",
    "test_a_node_that_slurm_drains_is_withheld_and_its_work_continues",
    "test_a_notice_reaches_the_programs_that_handle_it",
    "test_a_script_runs_in_the_job_and_its_end_comes_back",
    "test_an_engine_that_was_killed_finds_its_jobs",
    "test_jobs_of_others_take_places_and_are_never_ended",
]
pytestmark = [pytest.mark.faults, pytest.mark.engines]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from running(has_rest=True)


def access_of(cluster: Cluster) -> dict[str, str]:
    """The options that lead to slurmrestd; Slurm's commands find no configuration."""
    return {
        "GPU_AGENT_SLURMRESTD": f"unix:{cluster.socket}",
        "GPU_AGENT_SLURM_TOKEN": str(cluster.token),
        "GPU_AGENT_SLURM_CLUSTER": "portaltest",
        "SLURM_CONF": "/nonexistent",
    }


@pytest.fixture
def engine(portal: Portal, cluster: Cluster, tmp_path: Path) -> Iterator[Engine]:
    found = Engine(portal, cluster, tmp_path / "state", **access_of(cluster))
    yield found
    found.close()
    cluster.empty()


def test_it_says_what_the_commands_say(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster.environment[name])
    one, two = ("sbatch", "--parsable", f"--uid={OWNER}", f"--reservation={RESERVATION}"), "--wrap=sleep 60"
    cluster.run(*one, "--gres=gpu:h100:2", "--nodelist=n2", "-o", "/dev/null", two)
    cluster.run(*one, "--hold", "-o", "/dev/null", two)
    cluster.run("scontrol", "update", "NodeName=n1", "AvailableFeatures=rack=b2")
    options = argparse.Namespace(
        slurmrestd=f"unix:{cluster.socket}",
        slurm_token=cluster.token,
        slurm_cluster="portaltest",
        reservation=RESERVATION,
    )
    rest, commands = slurm_open(options), SlurmCommands(RESERVATION)
    assert rest.version().split()[-1] == commands.version().split()[-1]
    assert rest.cluster() == commands.cluster()
    assert rest.reserved() == commands.reserved()

    def nodes(slurm: object) -> list[tuple[object, ...]]:
        found = slurm.nodes()  # type: ignore[attr-defined]
        return sorted(
            (n.name, n.states, n.types, n.used, n.cores, n.memory_mb, n.reason, n.rack) for n in found
        )

    assert nodes(rest) == nodes(commands)

    def jobs(slurm: object) -> list[tuple[object, ...]]:
        found = slurm.jobs()  # type: ignore[attr-defined]
        return sorted(
            (j.id, j.state, j.user, j.nodes, j.reservation, j.gpus, j.submitted, j.name, j.is_held)
            for j in found
        )

    assert jobs(rest) == jobs(commands)
    cluster.empty()


def test_doctor_says_what_it_can_not_ask(cluster: Cluster, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent", "doctor", "--engine", "slurm", "--json", "--state", str(tmp_path)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), **access_of(cluster)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = {each["name"]: each for each in json.loads(done.stdout)["checks"]}
    assert found["Slurm"]["state"] == "ok"
    assert found["reservation"]["seen"] == f"portal holds n1,n2 for root,{OWNER}"
    assert found["cgroups of jobs"]["state"] == "unknown"
    assert found["token of slurmrestd"]["seen"] == "of root, for 23 h"
    assert found["token of slurmrestd"]["state"] == "warn"
