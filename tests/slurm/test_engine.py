"""The engine on a real Slurm: a booking is a job."""

import subprocess

import pytest

import wire
from tests.agent.builders import HOUR
from tests.agent.desk import now, seen
from tests.slurm.cluster import OTHER, OWNER, RESERVATION, Cluster, as_account
from tests.slurm.desk import Desk
from tests.slurm.engine import Engine

pytestmark = pytest.mark.faults


def by(account: str, cluster: Cluster, command: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command of the shell as an account."""
    return subprocess.run(
        [*as_account(account), "sh", "-c", command],
        env=cluster.environment,
        cwd="/tmp",  # noqa: S108 (a folder that every account may enter)
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_booking_is_a_job_from_its_start_to_its_end(desk: Desk, engine: Engine, cluster: Cluster) -> None:
    inventory = wire.inventory_from_plain(desk.portal.enrolments[0]["inventory"])
    assert (inventory.hostname, inventory.engine, len(inventory.gpus)) == ("n1", "slurm", 4)
    assert {(gpu.name, gpu.memory_mb) for gpu in inventory.gpus} == {("NVIDIA H100 80GB HBM3", 81559)}

    desk.book("BK-7", 0, 1)
    job = desk.ready("BK-7")
    (line,) = cluster.jobs("R")
    assert line.startswith(f"{job} RUNNING {OWNER} n1 portal:n1:biology.BK-7:")
    assert cluster.used("n1") == "gpu:h100:2(IDX:0-1)"
    # Its owner works in it.
    inside = by(OWNER, cluster, f"srun --jobid={job} --overlap sh -c 'echo $CUDA_VISIBLE_DEVICES; id -gn'")
    assert inside.stdout == f"0,1\n{OWNER}\n", inside.stderr

    # A later end is the job's, too.
    (_, first), _ = desk.bookings["BK-7"]
    desk.change("BK-7", ends=first.ends + HOUR)
    seen(lambda: cluster.limit(job) > 115)

    desk.release("BK-7")
    assert cluster.jobs() == []
    assert engine.stop() == 0


def test_a_notice_reaches_the_programs_that_handle_it(desk: Desk, cluster: Cluster) -> None:
    desk.book("BK-8", 0)
    job = desk.ready("BK-8")
    heard = cluster.root / "heard"
    heard.touch()
    heard.chmod(0o666)
    handles = f'trap "echo heard >> {heard}" USR1; echo up >> {heard}; while :; do sleep 0.1; done'
    program = cluster.step(OWNER, job, handles)
    other = cluster.step(OWNER, job, f"echo up >> {heard}; exec sleep 60")
    seen(lambda: heard.read_text() == "up\nup\n")

    notice = wire.Notice(id="p1", told=now(), at=now() + 60, method="stop")
    desk.change("BK-8", notice=notice, ends=now() + 60)
    seen(lambda: "heard" in heard.read_text())
    assert (program.poll(), other.poll()) == (None, None)

    # The pause itself: programs get TERM, and the device counts as taken until the job has left.
    desk.release("BK-8")
    assert cluster.jobs() == []
    assert {program.wait(10) != 0, other.wait(10) != 0} == {True}


def test_a_job_that_is_cancelled_behind_the_portals_back_has_failed(desk: Desk, cluster: Cluster) -> None:
    desk.book("BK-9", 0, 1)
    job = desk.ready("BK-9")
    cluster.run("scancel", str(job))
    seen(lambda: desk.states("BK-9") == {"failed"})
    (error,) = {each.error for each in desk.portal.reports()[-1].allocations}
    assert error is not None
    assert error.startswith(f"job {job} of Slurm ended as CANCELLED")
    desk.release("BK-9")


@pytest.mark.engines
def test_jobs_of_others_take_places_and_are_never_ended(desk: Desk, cluster: Cluster) -> None:
    cluster.run("scontrol", "update", f"ReservationName={RESERVATION}", f"Users+={OTHER}")
    foreign = by(
        OTHER,
        cluster,
        f"sbatch --parsable --reservation={RESERVATION} --nodelist=n1 --gres=gpu:3 -o /dev/null"
        " --wrap 'sleep 100'",
    ).stdout.strip()
    seen(lambda: len(desk.portal.reports()[-1].foreign) == 3)
    assert {each.users for each in desk.portal.reports()[-1].foreign} == {(OTHER,)}
    desk.book("BK-10", 0, 1)
    seen(lambda: "preparing" in desk.states("BK-10"))
    desk.release("BK-10")
    assert [line.split()[0] for line in cluster.jobs()] == [foreign]
    cluster.run("scancel", foreign)
    seen(lambda: desk.portal.reports()[-1].foreign == ())
    cluster.run("scontrol", "update", f"ReservationName={RESERVATION}", f"Users-={OTHER}")


@pytest.mark.engines
def test_a_node_that_slurm_drains_is_withheld_and_its_work_continues(desk: Desk, cluster: Cluster) -> None:
    desk.book("BK-11", 3)
    desk.ready("BK-11")
    cluster.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=a test")
    seen(lambda: all(gpu.withheld for gpu in desk.portal.reports()[-1].gpus))
    assert "(a test)" in (desk.portal.reports()[-1].gpus[0].withheld or "")
    assert desk.states("BK-11") == {"ready"}
    cluster.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    seen(lambda: not any(gpu.withheld for gpu in desk.portal.reports()[-1].gpus))
    desk.release("BK-11")


def test_an_engine_that_was_killed_finds_its_jobs(desk: Desk, engine: Engine, cluster: Cluster) -> None:
    desk.book("BK-12", 0, 1, 2)
    job = desk.ready("BK-12")
    engine.kill()
    # Its owner gives the job another name; the booking gets another end.
    cluster.run("scontrol", "update", f"JobId={job}", "JobName=mine")
    engine.start()
    seen(lambda: desk.portal.reports()[-1].seq > 0)
    desk.book("BK-13", 3)
    assert (desk.ready("BK-13"), desk.ready("BK-12")) == (job + 1, job)
    assert len(cluster.jobs("R")) == 2
    engine.kill()
    desk.change("BK-12", state="release")
    engine.start()
    seen(lambda: desk.states("BK-12") == {"empty"})
    desk.release("BK-13")
    assert cluster.jobs() == []


@pytest.mark.engines
def test_a_controller_that_is_away_changes_nothing(desk: Desk, cluster: Cluster) -> None:
    desk.book("BK-14", 0)
    job = desk.ready("BK-14")
    cluster.saved()
    cluster.kill("slurmctld")
    # What it can't read counts as occupied.
    desk.change("BK-14", state="release")
    seen(lambda: "Slurm does not answer" in (desk.portal.reports()[-1].error or ""))
    assert desk.states("BK-14") == {"ending"}
    cluster.controller_start()
    seen(lambda: desk.states("BK-14") == {"empty"}, seconds=40)
    assert not [line for line in cluster.jobs("R,CG,PD") if line.startswith(f"{job} ")]


@pytest.mark.engines
def test_a_node_that_is_lost_comes_back(desk: Desk, cluster: Cluster) -> None:
    desk.book("BK-15", 0)
    desk.ready("BK-15")
    cluster.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=no power")
    seen(lambda: desk.states("BK-15") == {"failed"})
    seen(lambda: desk.portal.reports()[-1].gpus == ())
    assert "no power" in (desk.portal.reports()[-1].error or "")
    known = len([said for said in desk.portal.messages() if isinstance(said, wire.Inventory)])
    cluster.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    seen(lambda: len(desk.portal.reports()[-1].gpus) == 4)
    # The portal learns by an inventory that they are there again.
    said = [said for said in desk.portal.messages() if isinstance(said, wire.Inventory)]
    assert len(said) == known + 1
    desk.release("BK-15")
