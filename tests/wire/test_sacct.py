"""What sacct prints becomes jobs with GPUs; anything else is said with its line."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from wire.sacct import FIELDS, gpus_read, jobs_read

HEAD = "|".join(FIELDS)
BERLIN = ZoneInfo("Europe/Berlin")


def line(**values: str) -> str:
    """A finished job of two GPUs, but for these columns."""
    usual = {
        "JobID": "4711",
        "User": "ada",
        "Account": "physics",
        "Partition": "gpu",
        "Submit": "2026-11-02T08:00:00",
        "Eligible": "2026-11-02T08:00:00",
        "Start": "2026-11-02T09:00:00",
        "End": "2026-11-02T11:30:00",
        "ElapsedRaw": "9000",
        "TimelimitRaw": "240",
        "State": "COMPLETED",
        "AllocTRES": "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1",
        "ReqTRES": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
        "NodeList": "gpu[01-02]",
    }
    return "|".join({**usual, **values}[name] for name in FIELDS)


def test_a_finished_job_has_its_times_in_the_zone_that_is_named() -> None:
    """Berlin is an hour ahead in November."""
    (job,) = jobs_read(f"{HEAD}\n{line()}\n", BERLIN)
    assert (job.number, job.gpu_type, job.gpus, job.account) == ("4711", "a100", 2, "physics")
    assert job.submitted == datetime(2026, 11, 2, 7, tzinfo=UTC)
    assert (job.started, job.ended) == (
        datetime(2026, 11, 2, 8, tzinfo=UTC),
        datetime(2026, 11, 2, 10, 30, tzinfo=UTC),
    )
    assert (job.limit_seconds, job.state) == (14_400, "COMPLETED")


@pytest.mark.parametrize(("elapsed", "ends"), [(1800, 0), (5400, 1)])
def test_an_end_in_an_hour_that_exists_twice_is_as_late_as_slurm_counted(elapsed: int, ends: int) -> None:
    """On 25 October 2026, 2:30 exists at 0:30 and at 1:30 UTC."""
    row = line(
        Submit="2026-10-25T01:00:00",
        Eligible="2026-10-25T01:00:00",
        Start="2026-10-25T02:00:00",
        End="2026-10-25T02:30:00",
        ElapsedRaw=str(elapsed),
    )
    (job,) = jobs_read(f"{HEAD}\n{row}", BERLIN)
    assert job.ended == datetime(2026, 10, 25, ends, 30, tzinfo=UTC)


def test_jobs_that_wait_run_or_were_cancelled_have_the_times_they_have() -> None:
    """Unknown times are none; what waits has not started, whatever Slurm expects."""
    rows = [
        line(State="PENDING", End="Unknown", AllocTRES="", NodeList="None assigned"),
        line(State="RUNNING", End="Unknown"),
        line(State="CANCELLED by 1001", Start="None", AllocTRES=""),
    ]
    waiting, running, cancelled = jobs_read("\n".join([HEAD, *rows]), UTC)
    assert (waiting.started, waiting.ended, waiting.nodes, waiting.gpu_type) == (None, None, "", "")
    assert running.started is not None
    assert running.ended is None
    assert (cancelled.state, cancelled.started) == ("CANCELLED", None)
    assert cancelled.ended is not None


def test_times_of_a_requeued_job_are_put_in_order() -> None:
    """One odd record refuses no history."""
    (job,) = jobs_read(f"{HEAD}\n{line(Submit='2026-11-02T10:00:00', End='2026-11-02T08:00:00')}", UTC)
    assert job.submitted == job.eligible == job.started == job.ended


def test_steps_rests_of_arrays_and_jobs_without_gpus_are_left_out() -> None:
    """Elements of an array have rows of their own."""
    rows = [
        line(JobID="1.batch"),
        line(JobID="2_[4-9]"),
        line(AllocTRES="cpu=1", ReqTRES="cpu=1"),
        line(JobID="2_3"),
    ]
    assert [job.number for job in jobs_read("\n".join([HEAD, *rows]), UTC)] == ["2_3"]


def test_a_job_with_two_types_is_one_of_each() -> None:
    """Without types the sum counts; with them it would count them twice."""
    assert gpus_read("gres/gpu=3,gres/gpu:a100=2,gres/gpu:1g.10gb=1") == {"a100": 2, "1g.10gb": 1}
    assert gpus_read("cpu=4,gres/gpu=3") == {"": 3}
    assert gpus_read("cpu=4,gres/gpu=0") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no column JobID"),
        ("JobID|User\n1|ada", "names no column Account"),
        (f"{HEAD}\n4711|ada", "line 2 has 2 columns"),
        (f"{HEAD}\n{line(Start='soon')}", "line 2: Invalid isoformat"),
        (f"{HEAD}\n{line(ElapsedRaw='x')}", "line 2: invalid literal"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, said: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match=said):
        list(jobs_read(text, UTC))
