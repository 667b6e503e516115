"""What Slurm says now, asked once for all nodes of the engine."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping

from agent.ports.gpu import GpuError
from agent.slurm.charges import Association
from agent.slurm.parse import Job, SlurmNode
from agent.slurm.port import SlurmPort

log = logging.getLogger(__name__)

FRESH_S = 1.0
OLDEST_S = 10.0
"""A view that is older than this is none."""
WAIT_S = 1.5
"""How long a loop waits for a view."""
IMPATIENT_S = 5.0
"""After it waited in vain, it does not wait again for so long."""
IDLE_S = 5.0
_ASSOCIATIONS_S = 60.0
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
    their cores and memory; empty: it does. `switches` has the switch of each node, which
    stands for its rack."""

    name: str
    version: str
    limits_note: str
    switches: Mapping[str, str] = dataclasses.field(default_factory=dict)


EMPTY = View({}, {}, frozenset())


class SlurmCluster:
    """Shared by the agents of all nodes, which are threads. A thread of its own asks Slurm, because
    a controller that is away lets each command wait for seconds, and leases must not wait.

    `steady` never jumps.
    """

    def __init__(self, commands: SlurmPort, steady: Callable[[], float] = time.monotonic) -> None:
        self.commands = commands
        self._steady = steady
        self._news = threading.Condition()
        self._wanted = threading.Event()
        self._wanted.set()
        self._view: View | None = None
        self._at = self._changed = self._impatient = -OLDEST_S
        self._error: str | None = None
        self._answered = steady()
        self.associations: frozenset[Association] | None = None
        """Those that Slurm asks of users; None: it needs none, or did not say them yet."""
        self._associated = -_ASSOCIATIONS_S
        self.last = EMPTY
        """The last view, however old it is."""
        threading.Thread(target=self._read_always, name="slurm", daemon=True).start()

    @property
    def is_silent(self) -> bool:
        """Whether Slurm has not answered for long."""
        return self._steady() - self._answered >= SILENT_S

    def changed(self) -> None:
        """Makes the next view a new one: something was asked of Slurm since the last."""
        with self._news:
            self._changed = self._steady()

    def view(self) -> View:
        """Returns what Slurm says: at most a second old if it answers soon, and never from before
        the last change. Raises GpuError while it does not answer."""
        with self._news:
            if not self._is_current(FRESH_S):
                self._wanted.set()
                self._await_news()
            if self._view is None or not self._is_current(OLDEST_S):
                raise GpuError("hangs", f"Slurm does not answer: {self._error or 'no answer yet'}")
            return self._view

    def _await_news(self) -> None:
        """Waits for a fresh view, but not again soon if it does not come."""
        if self._steady() < self._impatient:
            return
        if not self._news.wait_for(lambda: self._is_current(FRESH_S), timeout=WAIT_S):
            self._impatient = self._steady() + IMPATIENT_S

    def _is_current(self, age: float) -> bool:
        return self._view is not None and self._at > self._changed and self._steady() - self._at < age

    def _read_always(self) -> None:
        while True:
            self._wanted.wait(IDLE_S)
            self._wanted.clear()
            began = self._steady()
            try:
                found: View | None = self._read()
                error = None
            except (OSError, ValueError, LookupError) as failed:
                found, error = None, str(failed)
            with self._news:
                self._take(found, error, began)
                self._news.notify_all()
            if found is not None and self._steady() - self._associated >= _ASSOCIATIONS_S:
                self._associations_read()

    def _associations_read(self) -> None:
        """Keeps the last ones while the accounting does not answer: Slurm itself decides."""
        self._associated = self._steady()
        try:
            self.associations = self.commands.associations()
        except (OSError, ValueError, LookupError) as error:
            log.warning("Slurm's associations are not known: %s", error)

    def _take(self, found: View | None, error: str | None, began: float) -> None:
        if error is not None and self._error is None:
            log.warning("Slurm does not answer: %s", error)
        self._error = error
        if found is not None:
            # A view is as old as its first answer.
            self._view = self.last = found
            self._at, self._answered, self._impatient = began, self._steady(), began

    def _read(self) -> View:
        nodes = {node.name: node for node in self.commands.nodes()}
        found = self.commands.reserved()
        reserved = frozenset() if found is None else frozenset(found.nodes)
        jobs = {job.id: job for job in self.commands.jobs()}
        return View(jobs, nodes, reserved)


def site_read(commands: SlurmPort) -> SlurmSite:
    """Raises OSError."""
    version = commands.version().split()[-1:]
    said = " ".join(("Slurm", *version))
    return SlurmSite(commands.cluster(), said, _limits_note(commands.config()), commands.switches())


def _limits_note(config: Mapping[str, str] | None) -> str:
    if config is None:
        return "slurmrestd does not say what Slurm's cgroup.conf has"
    missing = [name for name in ("ConstrainCores", "ConstrainRAMSpace") if config.get(name) != "yes"]
    return f"Slurm's cgroup.conf has no {' and no '.join(missing)}" if missing else ""
