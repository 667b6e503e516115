"""The jobs of bookings on one node: one for all devices that a booking has there.

A job is submitted held, and released only when its number is on disk. So whenever the agent is
killed, nothing runs that it does not know: a held job of the same name is found and used, and of
two the later one is cancelled. People may rename their jobs; from the release on the number counts.
"""

import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.plan.bookings import NodeWants, WantedBooking, wants_of
from agent.plan.targets import GpuTarget
from agent.ports.gpu import GpuError, RetryLater
from agent.ports.handover import booking_full_name
from agent.slurm.charges import account_charged, refusal_of
from agent.slurm.cluster import SlurmCluster, View
from agent.slurm.parse import Job
from agent.slurm.pool import JobPlace, job_prefix
from agent.slurm.port import Submission
from agent.slurm.scripts import (
    BY_THEMSELVES,
    OWNERS_FOLDER,
    ScriptPlace,
    exit_code_kept,
    exit_code_read,
    holder_text,
    log_tail,
    script_text,
)
from agent.state.store import StoreError, write_synced
from wire import DesiredAllocation, ReportedScript

log = logging.getLogger(__name__)

FILE = "jobs.json"
# Slurm ends a job by itself so much after its booking, should the agent be dead by then.
_SLACK_MINUTES = 1


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

    @property
    def is_lost(self) -> bool:
        """Whether it ended although what it was for had not."""
        return self.over is not None and self.exit_code is None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """One node of the portal in Slurm. `slot_of` gives the index of a GPU by its UUID, `account_of` the local
    account of a member, `epoch` that of the document. `now` is in Unix seconds, `notice` the signal
    of a pause. `script_of` returns the script of a booking by its full name, `logs` is the folder of
    what scripts write, and `charges` the accounts of Slurm of organisations and projects."""

    place: JobPlace
    folder: Path
    slot_of: Callable[[str], int]
    account_of: Callable[[str], str | None]
    epoch: Callable[[], int] = lambda: 0
    now: Callable[[], float] = time.time
    notice: int | None = None
    script_of: Callable[[str], str | None] = lambda booking: None
    logs: str = OWNERS_FOLDER
    charges: Mapping[str, str] = dataclasses.field(default_factory=dict)


class BookingJobs:
    """See agent.node.Jobs and agent.ports.handover.HandoverGuard."""

    def __init__(self, cluster: SlurmCluster, settings: JobSettings) -> None:
        """Raises StoreError when there is a file of jobs that can't be read."""
        self._cluster = cluster
        self._place = settings.place
        self._settings = settings
        self._path = settings.folder / FILE
        self._jobs = self._load()
        self._wants = NodeWants()
        self._waits = False

    # What there is.

    @property
    def is_waiting(self) -> bool:
        """Whether a job may start at any moment."""
        return self._waits

    @property
    def known(self) -> Iterable[BookingJob]:
        """Returns all jobs that are not forgotten."""
        return self._jobs.values()

    def on(self, slot: int, view: View) -> tuple[Job, ...]:
        """Returns the jobs of bookings on a GPU that have not left it."""
        there = (_job_of(each, view) for each in self._jobs.values() if slot in each.slots)
        return tuple(job for job in there if job is not None and not job.is_over)

    @property
    def leaving(self) -> frozenset[int]:
        """Returns the places whose last booking has not left."""
        return self._wants.leaving

    def partners(self, slot: int) -> frozenset[int]:
        """Returns the other places of a booking that begins here and has no job yet."""
        have = {name for each in self._jobs.values() for name in each.allocations}
        return self._wants.partners(slot, lambda booking: booking.first.id in have)

    def together(self, allocations: Iterable[str]) -> set[str]:
        """Returns these allocations and the others of their jobs."""
        return self._wants.together(allocations)

    def numbers(self) -> dict[str, int]:
        """Returns the job of each allocation."""
        return {name: each.job for each in self._jobs.values() for name in each.allocations if not each.over}

    def hosts(self) -> dict[str, str]:
        """Returns the node that Slurm has chosen for the job of each allocation."""
        if not self._place.chooses:
            return {}
        jobs = self._cluster.last.jobs
        running = [each for each in self._jobs.values() if not each.over and each.job in jobs]
        found = {name: min(jobs[each.job].nodes, default="") for each in running for name in each.allocations}
        return {name: host for name, host in found.items() if host}

    def ended(self) -> dict[str, str]:
        """Returns the allocations whose job ended although their booking runs, and how."""
        return {
            name: each.over or "" for each in self._jobs.values() for name in each.allocations if each.is_lost
        }

    def scripts(self) -> dict[str, ReportedScript]:
        """Returns the scripts of jobs by one of their allocations."""
        return {
            each.allocations[0]: ReportedScript(
                exit_code=each.exit_code, file=each.log_file, log=each.log, ended=each.ended
            )
            for each in self._jobs.values()
            if each.account is not None and not each.is_lost
        }

    # Following.

    def follow(self, targets: Iterable[GpuTarget], *, known: bool) -> list[str]:
        """Takes in what is to run; returns problems. Unless a document is `known` nothing is
        cancelled."""
        self._take(targets)
        try:
            view = self._cluster.view()
            self._note_over(view)
            changes = [self._limits_follow, self._strays_cancel] if known else [self._limits_follow]
            return [problem for change in changes for problem in change(view)]
        except (GpuError, StoreError) as error:
            return [str(error)]

    def _take(self, targets: Iterable[GpuTarget]) -> None:
        self._wants = wants_of(targets, self._settings.slot_of, booking_full_name)
        self._forget(self._wants.named)
        self._waits = False

    def _forget(self, named: frozenset[str]) -> None:
        """Forgets jobs that are over, and whose allocations have gone."""
        gone = [each.job for each in self._jobs.values() if each.over and named.isdisjoint(each.allocations)]
        for job in gone:
            del self._jobs[job]

    def _note_over(self, view: View) -> None:
        found = {}
        for each in self._jobs.values():
            job = _job_of(each, view)
            if each.over is None and (job is None or job.is_over):
                try:
                    found[each.job] = self._ended(each, job)
                except (OSError, ValueError) as error:
                    # It is asked again, as long as Slurm knows the job.
                    log.warning("job %d of Slurm has no exit code: %s", each.job, error)
        if found:
            self._save(found)

    def _ended(self, each: BookingJob, job: Job | None) -> BookingJob:
        """The record of a job that is over. A script that has come to its end is not lost. Raises OSError,
        ValueError."""
        over = dataclasses.replace(each, over=_ending_text(each.job, job))
        if each.account is None or (job is not None and job.state not in BY_THEMSELVES):
            return over
        if job is not None:
            code: int | None = exit_code_read(self._cluster.commands.exit_code(job.id))
        else:
            code = exit_code_kept(each.log_file, each.account)
        if code is None:
            return over
        log = log_tail(each.log_file, each.account)
        return dataclasses.replace(over, exit_code=code, log=log, ended="" if job is None else job.state)

    def _limits_follow(self, view: View) -> list[str]:
        """Sets the time limits of running jobs by the ends of their bookings."""
        problems = []
        for each in list(self._jobs.values()):
            wanted, job = self._wants.bookings.get(each.booking), _job_of(each, view)
            if wanted is None or job is None or job.started is None or job.is_waiting or job.is_over:
                continue
            if wanted.ends == each.ends or wanted.first.id not in each.allocations:
                continue
            try:
                self._cluster.commands.limit(each.job, _minutes(wanted.ends - job.started))
            except OSError as error:
                problems.append(f"the end of {each.booking} is not set: {error}")
                continue
            self._save({each.job: dataclasses.replace(each, ends=wanted.ends)})
        return problems

    def _strays_cancel(self, view: View) -> list[str]:
        """Cancels jobs of this node that were made for bookings, and that no booking has: their
        record was lost, or they were submitted twice."""
        reservation, mine = self._cluster.commands.reservation, job_prefix(self._place.name)
        strays = [
            job
            for job in view.jobs.values()
            if job.name.startswith(mine) and job.reservation == reservation and not job.is_over
        ]
        have = {name for each in self._jobs.values() for name in each.allocations}
        coming = {self._name(each) for each in self._wants.bookings.values() if each.first.id not in have}
        problems = []
        for job in strays:
            if job.id in self._jobs or (job.is_held and job.name in coming):
                continue
            try:
                self._cancel(job.id)
            except OSError as error:
                problems.append(f"job {job.id} is not cancelled: {error}")
        return problems

    # Handing over.

    def allow(self, allocation: DesiredAllocation, device: str, cores: tuple[int, ...]) -> None:
        """Has the job of the booking run. Raises RetryLater until it does, OSError if Slurm refuses
        it, and GpuError if it has ended."""
        if allocation.share is not None:
            raise GpuError("unsupported", "Slurm hands out whole GPUs here")
        found = next((each for each in self._jobs.values() if allocation.id in each.allocations), None)
        if found is not None and found.exit_code is not None:
            # Its script has ended. The device is the booking's until that is over, too.
            return
        if found is not None and found.over:
            raise GpuError("invalid", found.over)
        try:
            view = self._cluster.view()
            job = self._submitted(allocation, view) if found is None else self._known(found, view)
        except StoreError as error:
            raise OSError(str(error)) from error
        if job is not None and job.state != "RUNNING":
            self._waits = True
            raise RetryLater(f"job {job.id} of Slurm is {job.state.lower()}: {job.reason}")

    def disallow(self, booking: str, allocation: str) -> None:
        """Does nothing: the job is a program on the device, and ends as programs do."""

    def end(self, slot: int, only: Iterable[int] | None = None) -> None:
        """Cancels the jobs of bookings on a GPU (`only` these). Raises GpuError."""
        wanted = None if only is None else set(only)
        for job in self.on(slot, self._cluster.view()):
            if wanted is None or job.id in wanted:
                try:
                    self._cancel(job.id)
                except OSError as error:
                    raise GpuError("driver", str(error)) from error

    def _cancel(self, job: int) -> None:
        try:
            self._cluster.commands.cancel(job)
        finally:
            self._cluster.changed()

    def _known(self, found: BookingJob, view: View) -> Job | None:
        """The job of a booking; None if its script has ended already."""
        job = _job_of(found, view)
        if job is None or job.is_over:
            self._note_over(view)
            if not self._jobs[found.job].over:
                raise RetryLater(f"job {found.job} of Slurm has ended; its exit code is not known yet")
            if not self._jobs[found.job].is_lost:
                return None
            raise GpuError("invalid", _ending_text(found.job, job))
        return self._released(job)

    def _released(self, job: Job) -> Job:
        if not job.is_held:
            return job
        try:
            self._cluster.commands.release(job.id)
        finally:
            self._cluster.changed()
        return self._cluster.view().jobs.get(job.id, job)

    def _submitted(self, allocation: DesiredAllocation, view: View) -> Job:
        """Submits the job of the allocation's booking, or finds it; then lets it start."""
        full = booking_full_name(allocation)
        wanted = self._wants.bookings.get(full)
        if wanted is None or allocation.id not in wanted.names:
            raise RetryLater("its other devices are not known yet")
        account = self._settings.account_of(allocation.owner)
        if account is None:
            raise OSError(f"no account is known for {allocation.owner}, whose job it is")
        # Its other devices are there with the next turn.
        self._waits = True
        number = self._found(self._name(wanted), account, view)
        if number is None:
            number = self._submit(wanted, account, self._types(wanted.slots, view))
        job = self._cluster.view().jobs.get(number)
        if job is None:
            raise RetryLater(f"job {number} of Slurm is not listed yet")
        self._save({number: self._record(job, wanted, account)})
        return self._released(job)

    def _record(self, job: Job, wanted: WantedBooking, account: str) -> BookingJob:
        full, names = booking_full_name(wanted.first), tuple(sorted(wanted.names))
        found = BookingJob(job.id, job.submitted, full, names, wanted.slots)
        if self._settings.script_of(full) is None:
            return found
        file = ScriptPlace.of(account, self._settings.logs).log(full, job.id)
        return dataclasses.replace(found, account=account, log_file=file)

    def _found(self, name: str, account: str, view: View) -> int | None:
        """Returns the held job that an agent submitted before it was killed. Others of the name are
        cancelled as strays."""
        same = (job for job in view.jobs.values() if (job.name, job.user) == (name, account))
        return min((job.id for job in same if job.is_held), default=None)

    def _types(self, slots: Iterable[int], view: View) -> tuple[str, ...]:
        node = view.nodes.get(self._place.host(view))
        types = () if node is None else node.types
        if any(slot >= len(types) for slot in slots):
            raise GpuError("lost", f"GPUs of {self._place.name} that Slurm knows: {len(types)}")
        return tuple(types[slot] for slot in slots)

    def _submit(self, wanted: WantedBooking, account: str, types: tuple[str, ...]) -> int:
        job = Submission(
            name=self._name(wanted),
            account=account,
            node="",
            gpus=types,
            cores=sum(each.cores for each, _ in wanted.parts),
            memory_mb=sum(each.memory_mb for each, _ in wanted.parts),
            minutes=_minutes(wanted.ends - self._settings.now()),
            comment=f"booking={booking_full_name(wanted.first)} epoch={self._settings.epoch()}",
            charged=account_charged(self._settings.charges, wanted.first),
        )
        if refusal := refusal_of(self._cluster.associations, account, job.charged):
            raise OSError(refusal)
        script = self._batch(wanted, account)
        with self._place.choosing() as chosen:
            job = dataclasses.replace(job, node=chosen.node, excluded=chosen.excluded)
            try:
                number = self._cluster.commands.submit(job, script)
            finally:
                self._cluster.changed()
        log.info("job %d of Slurm is for %s", number, job.name)
        return number

    def _batch(self, wanted: WantedBooking, account: str) -> str:
        """What the job runs. Raises OSError."""
        booking, notice = booking_full_name(wanted.first), self._settings.notice
        text = self._settings.script_of(booking)
        if text is None:
            return holder_text(notice)
        return script_text(text, booking, account, ScriptPlace.of(account, self._settings.logs), notice)

    def _name(self, wanted: WantedBooking) -> str:
        """Returns a name that no other run of any booking has."""
        return f"{job_prefix(self._place.name)}{booking_full_name(wanted.first)}:{wanted.first.id}"

    # On disk.

    def _load(self) -> dict[int, BookingJob]:
        if not self._path.exists():
            return {}
        try:
            rows = json.loads(self._path.read_bytes())
            found = [_row_read(row) for row in rows]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise StoreError(f"{self._path} can't be used: {error}") from error
        return {each.job: each for each in found}

    def _save(self, changed: Mapping[int, BookingJob]) -> None:
        """Changes nothing unless it is on disk. Raises StoreError."""
        jobs = {**self._jobs, **changed}
        try:
            rows = [dataclasses.asdict(each) for each in jobs.values()]
            write_synced(self._path, json.dumps(rows).encode())
        except OSError as error:
            raise StoreError(f"{self._path} can't be written: {error}") from error
        self._jobs = jobs


def _row_read(row: Mapping[str, Any]) -> BookingJob:
    return BookingJob(
        **{**row, "allocations": tuple(row["allocations"]), "slots": tuple(map(int, row["slots"]))}
    )


def _job_of(each: BookingJob, view: View) -> Job | None:
    job = view.jobs.get(each.job)
    return job if job is not None and job.submitted == each.submitted else None


def _minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60)) + _SLACK_MINUTES


def _ending_text(number: int, job: Job | None) -> str:
    if job is None:
        return f"Slurm does not know job {number} any more"
    why = "" if job.reason in ("", "None") else f" ({job.reason})"
    return f"job {number} of Slurm ended as {job.state}{why}"
