"""The record of the jobs of bookings on one node, which is on disk before a job may start."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.slurm.cluster import View
from agent.slurm.parse import Job
from agent.state.store import StoreError, write_synced

FILE = "jobs.json"


@dataclasses.dataclass(frozen=True, slots=True)
class BookingJob:
    """A job of Slurm for these allocations of a booking, by the index of their GPUs. `ends` is what
    its time limit was set for, 0 before its start. `over` says how it ended. A controller that lost
    its state gives numbers again, so the time of its submission belongs to its number. One
    that runs a script has the `account` whose it is and the file of its output; with an `exit_code` the
    script has ended, and `log` is the end of its output."""

    job: int
    submitted: str
    booking: str
    allocations: tuple[str, ...]
    slots: tuple[int, ...]
    ends: int = 0
    over: str | None = None
    account: str | None = None
    log_file: str = ""
    exit_code: int | None = None
    log: str = ""
    ended: str = ""

    def seen(self, view: View) -> Job | None:
        """Returns what Slurm says of it; None if it does not know it any more."""
        job = view.jobs.get(self.job)
        return job if job is not None and job.submitted == self.submitted else None

    @property
    def is_lost(self) -> bool:
        """Whether it ended although what it was for had not."""
        return self.over is not None and self.exit_code is None


class JobRecords:
    """The jobs that are not forgotten, by their numbers."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError when there is a file of jobs that can't be read."""
        self._path = folder / FILE
        self._jobs = self._load()

    def __contains__(self, number: int) -> bool:
        return number in self._jobs

    def __getitem__(self, number: int) -> BookingJob:
        return self._jobs[number]

    def all(self) -> tuple[BookingJob, ...]:
        """Returns them in the order of their submission."""
        return tuple(self._jobs.values())

    def names(self) -> set[str]:
        """Returns the allocations that have a job."""
        return {name for each in self._jobs.values() for name in each.allocations}

    def of(self, allocation: str) -> BookingJob | None:
        """Returns the job of an allocation."""
        return next((each for each in self._jobs.values() if allocation in each.allocations), None)

    def on(self, slot: int, view: View) -> tuple[Job, ...]:
        """Returns the jobs of bookings on a GPU that have not left it."""
        there = (each.seen(view) for each in self._jobs.values() if slot in each.slots)
        return tuple(job for job in there if job is not None and not job.is_over)

    def forget(self, named: frozenset[str]) -> None:
        """Forgets jobs that are over, and whose allocations are not `named` any more."""
        gone = [each.job for each in self._jobs.values() if each.over and named.isdisjoint(each.allocations)]
        for job in gone:
            del self._jobs[job]

    def save(self, changed: Iterable[BookingJob]) -> None:
        """Changes nothing unless it is on disk. Raises StoreError."""
        jobs = {**self._jobs, **{each.job: each for each in changed}}
        try:
            rows = [dataclasses.asdict(each) for each in jobs.values()]
            write_synced(self._path, json.dumps(rows).encode())
        except OSError as error:
            raise StoreError(f"{self._path} can't be written: {error}") from error
        self._jobs = jobs

    def _load(self) -> dict[int, BookingJob]:
        if not self._path.exists():
            return {}
        try:
            rows = json.loads(self._path.read_bytes())
            found = [_row_read(row) for row in rows]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise StoreError(f"{self._path} can't be used: {error}") from error
        return {each.job: each for each in found}


def _row_read(row: Mapping[str, Any]) -> BookingJob:
    return BookingJob(
        **{**row, "allocations": tuple(row["allocations"]), "slots": tuple(map(int, row["slots"]))}
    )
