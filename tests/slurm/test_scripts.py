"""Scripts that come with bookings, on a real Slurm: they run in the job, as the booking's owner."""

import dataclasses

import pytest

import wire
from tests.agent.builders import HOUR, a_whole
from tests.agent.desk import now, seen
from tests.slurm.cluster import OWNER, Cluster
from tests.slurm.desk import Desk
from tests.slurm.engine import Engine

pytestmark = pytest.mark.faults

TENANT = "biology"
ENDS_ITSELF = """\
#!/bin/bash
echo "$(id -un):$(id -Gn) in $GPU_BOOKING_TENANT's $GPU_BOOKING with $CUDA_VISIBLE_DEVICES"
printf 'and \\033[1ma line\\n'
exit 7
"""


def script(booking: str, text: str) -> wire.DesiredScript:
    return wire.DesiredScript(booking=booking, tenant=TENANT, text=text)


def said(desk: Desk, booking: str) -> wire.ReportedScript | None:
    """What the newest report says of the script of a booking."""
    ids = {each.id for _, each in desk.bookings[booking]}
    reports = desk.portal.reports()
    scripts = [each.script for each in reports[-1].allocations if each.id in ids and each.script]
    assert len(scripts) <= 1
    return scripts[0] if scripts else None


def ended(desk: Desk, booking: str) -> bool:
    found = said(desk, booking)
    return found is not None and found.exit_code is not None


def test_a_script_runs_in_the_job_and_its_end_comes_back(desk: Desk, cluster: Cluster) -> None:
    desk.scripts = (script("BK-20", ENDS_ITSELF),)
    desk.book("BK-20", 0, 1)
    seen(lambda: ended(desk, "BK-20"))
    found = said(desk, "BK-20")
    assert found is not None
    assert (found.exit_code, found.ended) == (7, "FAILED")
    assert found.log == f"{OWNER}:{OWNER} in biology's BK-20 with 0,1\nand [1ma line\n"

    # The owner has the output and what ran, and nobody else.
    logs = [each for each in cluster.logs.iterdir() if each.name.startswith("biology.BK-20.")]
    assert found.file in {str(each) for each in logs}
    assert {each.suffix for each in logs} == {".exit", ".log", ".sh"}
    assert {(each.owner(), each.stat().st_mode & 0o077) for each in logs} == {(OWNER, 0)}

    # The devices are the booking's until the portal ends it: it is no failure.
    seen(lambda: desk.states("BK-20") == {"ready"})
    assert cluster.jobs() == []
    started = cluster.started()
    desk.release("BK-20")
    assert cluster.started() == started


def test_a_pause_starts_a_script_anew_and_a_kill_does_not(
    desk: Desk, engine: Engine, cluster: Cluster
) -> None:
    seconds = "#!/bin/sh\necho up\ntrap 'echo warned' USR1\nwhile :; do sleep 0.1; done\n"
    desk.scripts = (script("BK-21", seconds),)
    desk.book("BK-21", 2)
    first = desk.ready("BK-21")
    log = cluster.logs / f"biology.BK-21.{first}.log"
    seen(lambda: log.exists() and log.read_text() == "up\n")
    running = said(desk, "BK-21")
    assert running is not None
    assert (running.exit_code, running.file) == (None, str(log))

    # A program in the job gets the notice; the engine that was killed finds the job again.
    notice = wire.Notice(id="p1", told=now(), at=now() + 60, method="stop")
    desk.change("BK-21", notice=notice, ends=now() + 60)
    seen(lambda: log.read_text() == "up\nwarned\n")
    engine.kill()
    engine.start()
    desk.release("BK-21")
    assert cluster.jobs() == []

    # It resumes as another allocation, with a job and an output of its own.
    again = a_whole("BK-21-again", booking="BK-21", starts=now(), ends=now() + HOUR)
    desk.bookings["BK-21"] = [(2, dataclasses.replace(again))]
    desk.publish()
    second = desk.ready("BK-21")
    assert second != first
    seen(lambda: (cluster.logs / f"biology.BK-21.{second}.log").read_text() == "up\n")

    # A job that somebody cancels is lost, as it is without a script.
    cluster.run("scancel", str(second))
    seen(lambda: desk.states("BK-21") == {"failed"})
    assert said(desk, "BK-21") is None
    desk.release("BK-21")
