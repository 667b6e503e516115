"""Steps of CI and workflow engines: what they send over HTTP, and what becomes of the booking."""

import subprocess

import pytest
import yaml

from tests.integrations.portal import FOLDER, Portal
from tests.servers.servers import ROOT

pytestmark = pytest.mark.turn


def test_the_github_step_books_runs_and_releases(portal: Portal) -> None:
    action = yaml.safe_load((FOLDER / "github" / "action.yml").read_text(encoding="utf-8"))
    step = action["runs"]["steps"][-1]
    words = "echo $GPU_BOOKING 'two  words' \"$PWD\"; exit 7"
    done = portal.run(
        "bash",
        "-e",
        "-c",
        step["run"],
        GITHUB_ACTION_PATH=str(FOLDER / "github"),
        GPU_REQUEST="1 h100 1h",
        GPU_COMMAND=words,
        GPU_JOB_NAME="a job",
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"BK-1 two  words {portal.folder}\n"
    assert "BK-1 runs on gpu-a1-01." in done.stderr
    assert portal.bodies[0] == {"project": "folding", "request": "1 h100 1h", "name": "a job"}
    assert portal.calls[0] == "POST /api/v1/bookings"
    assert portal.calls[-1] == "POST /api/v1/bookings/BK-1/release"
    given = {"url", "token", "project", "request", "run", "wait"}
    assert set(action["inputs"]) == given
    assert all(f"inputs.{name} " in str(step["env"].values()) for name in given)


def test_a_refused_booking_ends_the_step_with_the_api_s_words(portal: Portal) -> None:
    portal.refusal = {"status": 409, "code": "budget_exceeded", "detail": "Nothing is left."}
    done = portal.run(str(FOLDER / "gpu-job"), "1 h100 1h", "true")
    assert (done.returncode, done.stderr) == (3, "Nothing is left.\n")
    assert portal.calls == ["POST /api/v1/bookings"]


def test_snakemake_submits_asks_and_learns_the_end(portal: Portal) -> None:
    # A refusal is the shortest job; the GitHub step above goes all the way.
    portal.refusal = {"status": 409, "code": "budget_exceeded", "detail": "Nothing is left."}
    tool = str(FOLDER / "snakemake" / "gpu-snakemake")
    name = portal.run(tool, "submit", "1 h100 1h", "job.sh").stdout.strip()
    jobs = portal.folder / ".snakemake" / "gpu-jobs"
    process = int((jobs / f"{name}.pid").read_text())
    assert portal.run(tool, "status", name).stdout in ("running\n", "failed\n")
    # Not a child of this process, so it can't be waited for by its id.
    subprocess.run(["tail", f"--pid={process}", "-s", "0.05", "-f", "/dev/null"], check=True)
    assert portal.run(tool, "status", name).stdout == "failed\n"
    assert (jobs / f"{name}.log").read_text() == "Nothing is left.\n"
    (jobs / f"{name}.exit").write_text("0")
    assert portal.run(tool, "status", name).stdout == "success\n"


def test_every_integration_is_short_and_names_what_is_there() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) >= 6
    assert {path.name for path in files if len(path.read_text().splitlines()) > 150} == set()
    job = yaml.safe_load((FOLDER / "gitlab" / "gpu.yml").read_text(encoding="utf-8"))[".gpu"]
    assert 'integrations/gpu-job" "$GPU_REQUEST" bash -c "$GPU_COMMAND"' in job["script"][0]
    profile = yaml.safe_load((FOLDER / "snakemake" / "config.yaml").read_text(encoding="utf-8"))
    for name in ("submit", "status", "cancel"):
        command = profile[f"cluster-generic-{name}-cmd"].split()
        assert (ROOT / command[0]).is_file()
        assert command[1] == name
