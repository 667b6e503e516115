"""What the engine asks of Slurm: by its commands, or by slurmrestd."""

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from agent.slurm.charges import Association
from agent.slurm.parse import Job, SlurmNode


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """A job to be submitted, held. `gpus` are their types; `minutes` its time limit. `charged` is the account
    of Slurm that it is charged to; empty: the owner's own. Without a `node` Slurm chooses one that is not
    `excluded`."""

    name: str
    account: str
    node: str
    gpus: tuple[str, ...]
    cores: int
    memory_mb: int
    minutes: int
    comment: str
    charged: str = ""
    excluded: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Reservation:
    """An active reservation: its nodes, and who may use it."""

    nodes: tuple[str, ...]
    who: str


class SlurmPort(Protocol):
    """Each function raises OSError when Slurm refuses or does not answer, and ValueError or LookupError for
    an answer that is none."""

    @property
    def reservation(self) -> str:
        """Returns the name of the portal's reservation."""

    def version(self) -> str:
        """Returns for example `slurm 22.05.8`."""

    def cluster(self) -> str:
        """Returns the name of the cluster."""

    def config(self) -> Mapping[str, str] | None:
        """Returns the values of the configuration; None where they can't be asked."""

    def switches(self) -> Mapping[str, str]:
        """Returns the switch of each node; empty where the site has not described them."""

    def jobs(self) -> list[Job]:
        """Returns all jobs that Slurm still knows."""

    def nodes(self) -> list[SlurmNode]:
        """Returns all nodes."""

    def reserved(self) -> Reservation | None:
        """Returns the portal's reservation while it is active."""

    def associations(self) -> frozenset[Association] | None:
        """Returns the associations of users; None where Slurm needs none, or they can't be asked."""

    def submit(self, job: Submission, script: str) -> int:
        """Submits a job that waits for `release`; returns its number."""

    def release(self, job: int) -> None:
        """Lets a held job start."""

    def exit_code(self, job: int) -> str:
        """Returns how a job ended, as `7:0`: its exit code and a signal."""

    def limit(self, job: int, minutes: int) -> None:
        """Sets the time limit of a job, from its start."""

    def cancel(self, job: int) -> None:
        """Ends a job: TERM, and KILL after Slurm's KillWait. One that is over is no error."""

    def signal(self, job: int, number: int) -> None:
        """Sends a signal to the script of a job."""

    def notify(self, job: int, text: str) -> None:
        """Writes a line to the standard error of a job."""
