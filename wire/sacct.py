"""Jobs of Slurm as `sacct --parsable2` prints them, from version 22.05 on. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

FIELDS = (
    "JobID",
    "User",
    "Account",
    "Partition",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "State",
    "AllocTRES",
    "ReqTRES",
    "NodeList",
)
COMMAND = ("sacct", "--allusers", "--allocations", "--parsable2", "--format=" + ",".join(FIELDS))
"""Prints the jobs with their header; `--starttime` and `--endtime` say which."""
_GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)")
_NO_TIME = frozenset(("", "Unknown", "None", "N/A"))
# What a requeued job did before is another row of Slurm's, which is printed with `--duplicates` only.
_WAITING = frozenset(("PENDING", "REQUEUED", "RESV_DEL_HOLD", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"))


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job with GPUs of one type. A job with several types is one of these for each.

    `gpu_type` is empty where the cluster has no types. `submitted` distinguishes jobs of one number: a
    controller that lost its state gives numbers again. `limit_seconds` is None without a limit.
    """

    number: str
    gpu_type: str
    gpus: int
    user: str
    account: str
    partition: str
    state: str
    nodes: str
    submitted: datetime
    eligible: datetime
    started: datetime | None
    ended: datetime | None
    limit_seconds: int | None


def jobs_read(text: str, zone: tzinfo) -> Iterator[SlurmJob]:
    """Yields the jobs with GPUs of what `sacct` printed in a time zone; steps and other jobs are left out.

    Raises:
        ValueError: says the line and what is wrong with it, or which columns are missing.
    """
    lines = text.splitlines()
    names = lines[0].split("|") if lines else []
    if missing := [name for name in FIELDS if name not in names]:
        raise ValueError(f"the first line names no column {', '.join(missing)}")
    for at, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        values = line.split("|")
        if len(values) != len(names):
            raise ValueError(f"line {at} has {len(values)} columns, and the first line names {len(names)}")
        try:
            yield from _jobs(dict(zip(names, values, strict=True)), zone)
        except ValueError as error:
            raise ValueError(f"line {at}: {error}") from None


def gpus_read(tres: str) -> dict[str, int]:
    """Returns the GPUs of `cpu=8,gres/gpu:a100=2,gres/gpu=2` by type; the sum counts without types only."""
    found = {kind: int(count) for kind, count in _GPUS.findall(tres)}
    typed = {kind: count for kind, count in found.items() if kind}
    return {kind: count for kind, count in (typed or found).items() if count}


def _jobs(row: Mapping[str, str], zone: tzinfo) -> Iterator[SlurmJob]:
    if "." in row["JobID"] or "[" in row["JobID"]:
        # A step, or the rest of an array that waits: its jobs have rows of their own when they start.
        return
    gpus = gpus_read(row["AllocTRES"]) or gpus_read(row["ReqTRES"])
    state = row["State"].partition(" ")[0]
    submitted = _time(row["Submit"], zone)
    if submitted is None:
        raise ValueError(f"job {row['JobID']} has no time of submission")
    started = None if state in _WAITING else _time(row["Start"], zone)
    if started is not None:
        # A requeued job can have a later submission than start.
        started = max(started, submitted)
    ended = _time(row["End"], zone, after=started, seconds=int(row["ElapsedRaw"] or 0))
    limit = row["TimelimitRaw"]
    for kind, count in sorted(gpus.items()):
        yield SlurmJob(
            number=row["JobID"],
            gpu_type=kind,
            gpus=count,
            user=row["User"],
            account=row["Account"],
            partition=row["Partition"],
            state=state,
            nodes="" if row["NodeList"] == "None assigned" else row["NodeList"],
            submitted=submitted,
            eligible=max(submitted, _time(row["Eligible"], zone) or submitted),
            started=started,
            ended=ended if ended is None else max(ended, started or submitted),
            limit_seconds=60 * int(limit) if limit.isdecimal() else None,
        )


def _time(text: str, zone: tzinfo, after: datetime | None = None, seconds: int = 0) -> datetime | None:
    """Of an hour that a clock has twice, the instant that is so many seconds after another one."""
    if text in _NO_TIME:
        return None
    found = datetime.fromisoformat(text)
    if found.tzinfo is not None:
        return found.astimezone(UTC)
    both = [found.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    if after is None:
        return both[0]
    start = after.timestamp()
    return min(both, key=lambda each: abs(each.timestamp() - start - seconds))
