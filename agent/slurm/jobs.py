"""The jobs of bookings on one node: one for all devices that a booking has there.

A job is submitted held, and released only when its number is on disk. So whenever the agent is
killed, nothing runs that it does not know: a held job of the same name is found and used, and of
two the later one is cancelled. People may rename their jobs; from the release on the number counts.
"""

import dataclasses
import logging
from collections.abc import Iterable

from agent.plan.bookings import NodeWants, wants_of
from agent.plan.targets import GpuTarget
from agent.ports.gpu import GpuError, RetryLater
from agent.ports.handover import booking_full_name
from agent.slurm.cluster import SlurmCluster, View
from agent.slurm.parse import Job
from agent.slurm.pool import job_prefix
from agent.slurm.records import BookingJob, JobRecords
from agent.slurm.scripts import BY_THEMSELVES, exit_code_kept, exit_code_read, log_tail
from agent.slurm.submission import JobSettings, JobSubmission, slurm_minutes
from agent.state.store import StoreError
from wire import DesiredAllocation, ReportedScript

log = logging.getLogger(__name__)


class BookingJobs:
    """See agent.node.Jobs and agent.ports.handover.HandoverGuard."""

    def __init__(self, cluster: SlurmCluster, settings: JobSettings) -> None:
        """Raises StoreError when there is a file of jobs that can't be read."""
        self._cluster = cluster
        self._settings = settings
        self._records = JobRecords(settings.folder)
        self._submission = JobSubmission(cluster, settings)
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
        return self._records.all()

    def on(self, slot: int, view: View) -> tuple[Job, ...]:
        """Returns the jobs of bookings on a GPU that have not left it."""
        return self._records.on(slot, view)

    @property
    def leaving(self) -> frozenset[int]:
        """Returns the places whose last booking has not left."""
        return self._wants.leaving

    def partners(self, slot: int) -> frozenset[int]:
        """Returns the other places of a booking that begins here and has no job yet."""
        have = self._records.names()
        return self._wants.partners(slot, lambda booking: booking.first.id in have)

    def together(self, allocations: Iterable[str]) -> set[str]:
        """Returns these allocations and the others of their jobs."""
        return self._wants.together(allocations)

    def numbers(self) -> dict[str, int]:
        """Returns the job of each allocation."""
        return {name: each.job for each in self._records.all() for name in each.allocations if not each.over}

    def hosts(self) -> dict[str, str]:
        """Returns the node that Slurm has chosen for the job of each allocation."""
        if not self._settings.place.chooses:
            return {}
        jobs = self._cluster.last.jobs
        running = [each for each in self._records.all() if not each.over and each.job in jobs]
        found = {name: min(jobs[each.job].nodes, default="") for each in running for name in each.allocations}
        return {name: host for name, host in found.items() if host}

    def ended(self) -> dict[str, str]:
        """Returns the allocations whose job ended although their booking runs, and how."""
        return {
            name: each.over or "" for each in self._records.all() for name in each.allocations if each.is_lost
        }

    def scripts(self) -> dict[str, ReportedScript]:
        """Returns the scripts of jobs by one of their allocations."""
        return {
            each.allocations[0]: ReportedScript(
                exit_code=each.exit_code, file=each.log_file, log=each.log, ended=each.ended
            )
            for each in self._records.all()
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
        self._records.forget(self._wants.named)
        self._waits = False

    def _note_over(self, view: View) -> None:
        found = []
        for each in self._records.all():
            job = each.seen(view)
            if each.over is None and (job is None or job.is_over):
                try:
                    found.append(self._ended(each, job))
                except (OSError, ValueError) as error:
                    # It is asked again, as long as Slurm knows the job.
                    log.warning("job %d of Slurm has no exit code: %s", each.job, error)
        if found:
            self._records.save(found)

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
        for each in self._records.all():
            wanted, job = self._wants.bookings.get(each.booking), each.seen(view)
            if wanted is None or job is None or job.started is None or job.is_waiting or job.is_over:
                continue
            if wanted.ends == each.ends or wanted.first.id not in each.allocations:
                continue
            try:
                self._cluster.commands.limit(each.job, slurm_minutes(wanted.ends - job.started))
            except OSError as error:
                problems.append(f"the end of {each.booking} is not set: {error}")
                continue
            self._records.save([dataclasses.replace(each, ends=wanted.ends)])
        return problems

    def _strays_cancel(self, view: View) -> list[str]:
        """Cancels jobs of this node that were made for bookings, and that no booking has: their
        record was lost, or they were submitted twice."""
        reservation, mine = self._cluster.commands.reservation, job_prefix(self._settings.place.name)
        strays = [
            job
            for job in view.jobs.values()
            if job.name.startswith(mine) and job.reservation == reservation and not job.is_over
        ]
        have = self._records.names()
        coming = {
            self._submission.name(each) for each in self._wants.bookings.values() if each.first.id not in have
        }
        problems = []
        for job in strays:
            if job.id in self._records or (job.is_held and job.name in coming):
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
        found = self._records.of(allocation.id)
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
        job = found.seen(view)
        if job is None or job.is_over:
            self._note_over(view)
            if not self._records[found.job].over:
                raise RetryLater(f"job {found.job} of Slurm has ended; its exit code is not known yet")
            if not self._records[found.job].is_lost:
                return None
            raise GpuError("invalid", _ending_text(found.job, job))
        return self._submission.released(job)

    def _submitted(self, allocation: DesiredAllocation, view: View) -> Job:
        """Submits the job of the allocation's booking, or finds it; then lets it start."""
        full = booking_full_name(allocation)
        wanted = self._wants.bookings.get(full)
        if wanted is None or allocation.id not in wanted.names:
            raise RetryLater("its other devices are not known yet")
        account = self._submission.account(allocation.owner)
        # Its other devices are there with the next turn.
        self._waits = True
        job = self._submission.submitted(wanted, account, view)
        self._records.save([self._submission.record(job, wanted, account)])
        return self._submission.released(job)


def _ending_text(number: int, job: Job | None) -> str:
    if job is None:
        return f"Slurm does not know job {number} any more"
    why = "" if job.reason in ("", "None") else f" ({job.reason})"
    return f"job {number} of Slurm ended as {job.state}{why}"
