"""What Slurm says now, asked at most once a second for all nodes of the engine."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping

from agent.ports.gpu import GpuError
from agent.slurm.commands import SlurmCommands
from agent.slurm.parse import JOBS_FORMAT, Job, SlurmNode, fields_of, hosts_expand, jobs_parse, nodes_parse

log = logging.getLogger(__name__)

FRESH_S = 1.0
SILENT_S = 10.0
"""Seconds without an answer after which Slurm counts as silent."""


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Slurm at one moment: jobs by number, nodes by name, and the nodes that the reservation holds.

    Nodes are read before jobs, so a job may be known whose GPUs the node does not show yet.
    """

    jobs: Mapping[int, Job]
    nodes: Mapping[str, SlurmNode]
    reserved: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class SlurmSite:
    """What does not change while the engine runs. `limits_note` says why Slurm does not keep jobs to
    their cores and memory; empty: it does."""

    name: str
    version: str
    limits_note: str


EMPTY = View({}, {}, frozenset())


class SlurmCluster:
    """Shared by the agents of all nodes, which are threads. `steady` never jumps."""

    def __init__(self, commands: SlurmCommands, steady: Callable[[], float] = time.monotonic) -> None:
        self.commands = commands
        self._steady = steady
        self._lock = threading.Lock()
        self._view: View | None = None
        self._at = self._tried = -FRESH_S
        self._error: str | None = None
        self._changes = 0
        self._answered = steady()
        self.last = EMPTY
        """The last view, however old it is."""

    @property
    def is_silent(self) -> bool:
        """Whether Slurm has not answered for long."""
        return self._error is not None and self._steady() - self._answered >= SILENT_S

    def changed(self) -> None:
        """Makes the next view a new one: something was asked of Slurm since the last."""
        with self._lock:
            self._view = None
            self._error = None

    def view(self) -> View:
        """Returns what Slurm says, at most a second old. Raises GpuError while it does not answer;
        it is not asked again within a second after that."""
        with self._lock:
            now = self._steady()
            if self._view is not None and now - self._at < FRESH_S:
                return self._view
            if self._error is None or now - self._tried >= FRESH_S:
                self._ask()
            if self._view is None:
                raise GpuError("hangs", f"Slurm does not answer: {self._error}")
            return self._view

    def _ask(self) -> None:
        began = self._steady()
        try:
            self._view = self.last = self._read()
        except (OSError, ValueError, LookupError) as error:
            if self._error is None:
                log.warning("Slurm does not answer: %s", error)
            self._view, self._error = None, str(error)
        else:
            self._error, self._answered = None, self._steady()
        # A view is as old as its first answer.
        self._at, self._tried = began, self._steady()

    def _read(self) -> View:
        commands = self.commands
        nodes = {node.name: node for node in nodes_parse(commands.nodes())}
        reserved = _reserved(commands.reservations(), commands.reservation)
        jobs = {job.id: job for job in jobs_parse(commands.jobs(JOBS_FORMAT))}
        return View(jobs, nodes, reserved)


def _reserved(text: str, name: str) -> frozenset[str]:
    """Returns the nodes of the reservation while it is active."""
    rows = (fields_of(line) for line in text.splitlines())
    mine = (row for row in rows if (row.get("ReservationName"), row.get("State")) == (name, "ACTIVE"))
    return frozenset(host for row in mine for host in hosts_expand(row.get("Nodes", "")))


def site_read(commands: SlurmCommands) -> SlurmSite:
    """Raises OSError."""
    values = config_read(commands.config())
    missing = [name for name in ("ConstrainCores", "ConstrainRAMSpace") if values.get(name) != "yes"]
    note = f"Slurm's cgroup.conf has no {' and no '.join(missing)}" if missing else ""
    version = commands.version().split()[-1:]
    return SlurmSite(values.get("ClusterName", ""), " ".join(("Slurm", *version)), note)


def config_read(text: str) -> dict[str, str]:
    """Returns the values of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, mark, value in pairs if mark}
