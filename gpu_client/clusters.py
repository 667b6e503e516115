"""Commands that send the portal what other systems have run."""

import dataclasses
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from gpu_client.output import error_print, json_print, line_print
from gpu_client.problems import USAGE
from gpu_client.session import Json, Zone, portal
from wire import kubectl as pods
from wire.kubectl import KubernetesPod
from wire.sacct import COMMAND, SlurmJob, jobs_read

AT_ONCE = 1_000
_LENGTH = re.compile(r"(\d{1,4})([hd])")
_UNITS = {"h": "hours", "d": "days"}
_STANDARD_INPUT = "-"

import_app = typer.Typer(no_args_is_help=True, help="Send records of other clusters (operators).")


@import_app.command()
def sacct(
    file: Annotated[str, typer.Argument(help="What sacct printed; `-`: standard input.")] = "",
    cluster: Annotated[str, typer.Option(help="The name of the cluster in the portal.")] = "slurm",
    since: Annotated[str, typer.Option(help="Without a file: run sacct for so long, such as 2d.")] = "2d",
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Send Slurm's jobs with GPUs. The same jobs can be sent again.

    Without a file it runs sacct here, in UTC. Times of a file are in --zone, without it in UTC.
    """
    try:
        text = _read(file) if file else _ran(since)
        jobs = list(jobs_read(text, ZoneInfo(zone) if zone and file else UTC))
    except (ValueError, OSError) as error:
        error_print(f"sacct: {error}")
        raise SystemExit(USAGE) from None
    _send(cluster, "slurm", jobs, is_json=is_json)


@import_app.command()
def kubernetes(
    file: Annotated[str, typer.Argument(help="What kubectl printed; `-`: standard input.")] = "",
    cluster: Annotated[str, typer.Option(help="The name of the cluster in the portal.")] = "kubernetes",
    is_json: Json = False,
) -> None:
    """Send the pods of Kubernetes that have GPUs, but for those of bookings.

    The same pods can be sent again. Without a file it runs kubectl here, which reads nodes and pods.
    Kubernetes forgets pods, so repeat it often.
    """
    try:
        found = list(pods.pods_read(_read(file) if file else _printed(pods.COMMAND)))
    except (ValueError, OSError) as error:
        error_print(f"kubectl: {error}")
        raise SystemExit(USAGE) from None
    _send(cluster, "kubernetes", found, is_json=is_json)


def _send(
    cluster: str, engine: str, jobs: Sequence[SlurmJob] | Sequence[KubernetesPod], *, is_json: bool
) -> None:
    kept, types, accounts = 0, set[str](), set[str]()
    with portal(is_json=is_json) as client:
        for batch in _batches(jobs):
            found = client.cluster_jobs(cluster, batch, engine)
            kept += found["jobs"]
            types.update(found["types"])
            accounts.update(found["accounts"])
    if is_json:
        json_print({"jobs": kept, "types": sorted(types), "accounts": sorted(accounts)})
        return
    line_print(f"{kept} job{'' if kept == 1 else 's'} with GPUs sent to {cluster}.")
    if types:
        line_print(f"Types without a class, in no forecast: {', '.join(map(_named, sorted(types)))}")
    if accounts:
        line_print(f"Accounts without a project: {', '.join(map(_named, sorted(accounts)))}")


def _read(file: str) -> str:
    return sys.stdin.read() if file == _STANDARD_INPUT else Path(file).read_text(encoding="utf-8")


def _ran(since: str) -> str:
    """Runs sacct. Raises ValueError, OSError."""
    length = _LENGTH.fullmatch(since)
    if length is None:
        raise ValueError("--since is a length such as 12h or 90d")
    command = [*COMMAND, f"--starttime=now-{length[1]}{_UNITS[length[2]]}", "--endtime=now"]
    return _printed(command)


def _printed(command: Sequence[str]) -> str:
    """Runs a command. Raises ValueError, OSError."""
    environment = {**os.environ, "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603
    if done.returncode:
        # kubectl says the same several times before it.
        said = done.stderr.strip().splitlines()
        raise ValueError(said[-1] if said else f"it ended with {done.returncode}")
    return done.stdout


def _batches(jobs: Sequence[SlurmJob] | Sequence[KubernetesPod]) -> Iterator[list[dict[str, Any]]]:
    rows = (
        {name: _plain(value) for name, value in dataclasses.asdict(job).items() if value is not None}
        for job in jobs
    )
    while batch := list(itertools.islice(rows, AT_ONCE)):
        yield batch


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _named(name: str) -> str:
    return name or "(no name)"
