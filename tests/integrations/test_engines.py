"""The integrations inside real Airflow, Prefect and Snakemake; the portal answers over HTTP."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integrations.portal import FOLDER, Portal
from tests.servers.servers import ROOT

pytestmark = pytest.mark.engines
FLOWS = Path(__file__).parent / "flows"
ENDED = "POST /api/v1/bookings/BK-1/release"


def engine(portal: Portal, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program of the engines' environment, with the client of this tree."""
    binaries = ROOT / os.environ["ENGINES"] / "bin"
    paths = f"{ROOT}:{FOLDER / 'airflow'}" if "airflow" in words[-1] else f"{ROOT}:{FOLDER / 'prefect'}"
    environment = {
        **portal.environment(),
        "PYTHONPATH": paths,
        "AIRFLOW_HOME": str(portal.folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(FLOWS),
        "AIRFLOW_CONN_GPU_PORTAL": f"http://:secret@127.0.0.1:{portal.port}/http",
        "PREFECT_HOME": str(portal.folder / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "DO_NOT_TRACK": "1",
        **more,
    }
    environment["PATH"] = f"{portal.folder / 'bin'}:{binaries}:{os.environ['PATH']}"
    return subprocess.run(
        [str(binaries / words[0]), *words[1:]],
        env=environment,
        cwd=portal.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def airflow(portal: Portal) -> Portal:
    """With Airflow's own database."""
    made = engine(portal, "airflow", "db", "migrate")
    assert made.returncode == 0, made.stderr
    return portal


def test_airflow_books_waits_and_releases(airflow: Portal) -> None:
    airflow.active_after = 3
    done = engine(airflow, "python", str(FLOWS / "airflow_dag.py"))
    assert "run: success" in done.stdout, done.stdout + done.stderr
    assert "trains on BK-1" in done.stdout + done.stderr
    assert airflow.bodies[0] == {
        "project": "folding",
        "request": "1 h100 1h",
        "external_ref": "gpu",
        "labels": {"team": "vision"},
    }
    assert airflow.calls.count("GET /api/v1/bookings/BK-1") >= 3
    assert airflow.calls[-1] == ENDED


def test_airflow_releases_after_a_failed_task(airflow: Portal) -> None:
    airflow.active_after = 1
    done = engine(airflow, "python", str(FLOWS / "airflow_dag.py"), FAILS="1")
    assert "trains on BK-1" in done.stdout + done.stderr
    assert airflow.calls[-1] == ENDED


def test_airflow_does_not_retry_a_refusal(airflow: Portal) -> None:
    airflow.refusal = {"status": 409, "code": "budget_exceeded", "detail": "Nothing is left."}
    done = engine(airflow, "python", str(FLOWS / "airflow_dag.py"))
    assert "Nothing is left." in done.stdout + done.stderr
    assert airflow.calls == ["POST /api/v1/bookings"]


def test_airflow_retries_with_one_key_when_the_portal_fails(airflow: Portal) -> None:
    airflow.refusal = {"status": 503, "code": "busy", "detail": "Try again soon."}
    engine(airflow, "python", str(FLOWS / "airflow_dag.py"))
    assert airflow.calls.count("POST /api/v1/bookings") == 3
    assert len(set(airflow.keys)) == 1


def test_prefect_books_waits_and_releases(portal: Portal) -> None:
    portal.active_after = 3
    done = engine(portal, "python", str(FLOWS / "prefect_flow.py"))
    assert "trains on BK-1" in done.stdout, done.stderr
    assert portal.bodies[0] == {"project": "folding", "request": "1 h100 1h", "tier": "spot"}
    assert portal.calls[-1] == ENDED


def test_prefect_releases_after_a_failed_flow(portal: Portal) -> None:
    portal.active_after = 1
    done = engine(portal, "python", str(FLOWS / "prefect_flow.py"), FAILS="1")
    assert "no convergence" in done.stderr
    assert portal.calls[-1] == ENDED


def test_snakemake_runs_a_rule_on_booked_gpus(portal: Portal) -> None:
    shutil.copy(FLOWS / "Snakefile", portal.folder)
    (portal.folder / "integrations").symlink_to(FOLDER)
    profile = portal.folder / "integrations" / "snakemake"
    done = engine(portal, "snakemake", "--profile", str(profile), "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert (portal.folder / "out.txt").read_text() == "BK-1\n"
    assert portal.calls[-1] == ENDED
