"""Submitting the jobs of bookings on one node: held, and released when they are recorded."""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from agent.plan.bookings import WantedBooking
from agent.ports.gpu import GpuError, RetryLater
from agent.ports.handover import booking_full_name
from agent.slurm.charges import account_charged, refusal_of
from agent.slurm.cluster import SlurmCluster, View
from agent.slurm.parse import Job
from agent.slurm.pool import JobPlace, job_prefix
from agent.slurm.port import Submission
from agent.slurm.records import BookingJob
from agent.slurm.scripts import OWNERS_FOLDER, ScriptPlace, holder_text, script_text

log = logging.getLogger(__name__)

# Slurm ends a job by itself so much after its booking, should the agent be dead by then.
_SLACK_MINUTES = 1


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


class JobSubmission:
    """Submits the jobs of bookings, or finds those that an agent submitted before it was killed."""

    def __init__(self, cluster: SlurmCluster, settings: JobSettings) -> None:
        self._cluster = cluster
        self._place = settings.place
        self._settings = settings

    def account(self, owner: str) -> str:
        """Returns the local account of a member. Raises OSError."""
        account = self._settings.account_of(owner)
        if account is None:
            raise OSError(f"no account is known for {owner}, whose job it is")
        return account

    def submitted(self, wanted: WantedBooking, account: str, view: View) -> Job:
        """Returns the held job of a booking. Raises RetryLater until Slurm lists it, OSError if it
        refuses it, and GpuError."""
        number = self._found(self.name(wanted), account, view)
        if number is None:
            number = self._submit(wanted, account, self._types(wanted.slots, view))
        job = self._cluster.view().jobs.get(number)
        if job is None:
            raise RetryLater(f"job {number} of Slurm is not listed yet")
        return job

    def released(self, job: Job) -> Job:
        """Lets a job start; returns it as Slurm has it then. Raises OSError."""
        if not job.is_held:
            return job
        try:
            self._cluster.commands.release(job.id)
        finally:
            self._cluster.changed()
        return self._cluster.view().jobs.get(job.id, job)

    def name(self, wanted: WantedBooking) -> str:
        """Returns a name that no other run of any booking has."""
        return f"{job_prefix(self._place.name)}{booking_full_name(wanted.first)}:{wanted.first.id}"

    def record(self, job: Job, wanted: WantedBooking, account: str) -> BookingJob:
        """Returns what is kept of a submitted job."""
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
            name=self.name(wanted),
            account=account,
            node="",
            gpus=types,
            cores=sum(each.cores for each, _ in wanted.parts),
            memory_mb=sum(each.memory_mb for each, _ in wanted.parts),
            minutes=slurm_minutes(wanted.ends - self._settings.now()),
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


def slurm_minutes(seconds: float) -> int:
    """Returns the time limit of a job that is to run so long."""
    return max(1, math.ceil(seconds / 60)) + _SLACK_MINUTES
