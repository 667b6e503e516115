"""Where the jobs of one node of the portal run: on one node of Slurm, or in a pool.

In a pool of equal nodes Slurm chooses. What the portal calls a node is a slot there: there are as many
as nodes. A slot without jobs is on no node. Its first job may start on any node that no other slot is
on, and the slot stays there until its last job has left. So what fits a slot fits the node that Slurm
chooses. Only jobs say which slot is where, so an engine that was killed knows it again.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from agent.ports.gpu import RetryLater
from agent.slurm.cluster import SlurmCluster, View
from agent.slurm.parse import Job, SlurmNode

MARK = "portal"
"""What names of jobs for bookings begin with."""


def job_prefix(node: str) -> str:
    """Returns what the names of jobs of a node of the portal begin with."""
    return f"{MARK}:{node}:"


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """The `node` on which a job has to start, or empty and those on which it may not."""

    node: str
    excluded: tuple[str, ...] = ()


class JobPlace(Protocol):
    """Where the jobs of a node of the portal run. `chooses`: Slurm says it for each."""

    name: str
    chooses: bool

    def host(self, view: View) -> str:
        """Returns the node of Slurm, empty while there is none."""

    def refusal(self, view: View) -> str | None:
        """Returns why nothing new starts, although the node itself could."""

    def choosing(self) -> contextlib.AbstractContextManager[Chosen]:
        """Returns where the next job starts. Inside, it is submitted. Raises RetryLater, GpuError."""


class OneNode:
    """See JobPlace. The node of the portal is one of Slurm's."""

    chooses = False

    def __init__(self, name: str, reservation: str) -> None:
        self.name = name
        self._reservation = reservation

    def host(self, view: View) -> str:
        return self.name

    def refusal(self, view: View) -> str | None:
        if self.name in view.reserved:
            return None
        return f"{self.name} is not in Slurm's reservation {self._reservation}"

    def choosing(self) -> contextlib.AbstractContextManager[Chosen]:
        return contextlib.nullcontext(Chosen(self.name))


class SlurmPool:
    """The nodes of a reservation, which are equal, and their slots."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self._cluster = cluster
        self._numbers: dict[str, Callable[[], Iterable[int]]] = {}
        self._choice = threading.Lock()

    @property
    def reservation(self) -> str:
        """Returns the name of the reservation."""
        return self._cluster.commands.reservation

    def slots(self, view: View) -> list[str]:
        """Returns the names of all slots. Raises ValueError for nodes that are not equal."""
        kinds = {_kind(view.nodes[name]) for name in view.reserved if name in view.nodes}
        if len(kinds) > 1:
            raise ValueError(
                f"the nodes of Slurm's reservation {self.reservation} differ in GPUs, cores or memory, so"
                " they are no pool: use --granularity node"
            )
        return self._names(view)

    def _names(self, view: View) -> list[str]:
        return [f"{self.reservation}-{number + 1}" for number in range(len(view.reserved))]

    def add(self, slot: str, numbers: Callable[[], Iterable[int]]) -> None:
        """Counts the jobs of these numbers as the slot's, whatever their owners call them."""
        self._numbers[slot] = numbers

    def jobs(self, view: View) -> dict[int, str]:
        """Returns the slot of each job of the pool that has not left its node."""
        known = {number: slot for slot, numbers in list(self._numbers.items()) for number in numbers()}
        found = {job.id: known.get(job.id) or self._slot_named(job) for job in view.jobs.values()}
        return {number: slot for number, slot in found.items() if slot and not view.jobs[number].is_over}

    def _slot_named(self, job: Job) -> str:
        mark, _, rest = job.name.partition(":")
        slot = rest.partition(":")[0]
        is_ours = mark == MARK and job.reservation == self.reservation
        return slot if is_ours and slot.startswith(f"{self.reservation}-") else ""

    def bound(self, view: View) -> dict[str, str]:
        """Returns the node of each slot that has jobs, running or waiting for that node."""
        rows = ((view.jobs[number], slot) for number, slot in self.jobs(view).items())
        # What runs says more than what waits.
        ordered = sorted(rows, key=lambda row: (row[0].is_waiting, row[0].id))
        found: dict[str, str] = {}
        for job, slot in ordered:
            if job.nodes:
                found.setdefault(slot, min(job.nodes))
        return found

    def hosts(self, view: View) -> dict[str, str]:
        """Returns the node of each slot: those with jobs where these are, and for each other one a node
        that no slot is on, those with the most free GPUs first."""
        found = self.bound(view)
        free = sorted(self._free(view, found), key=lambda name: (-_left(view.nodes[name]), name))
        others = [slot for slot in self._names(view) if slot not in found]
        return found | dict(zip(others, free, strict=False))

    def _free(self, view: View, bound: Mapping[str, str]) -> list[str]:
        return [name for name in view.reserved - set(bound.values()) if name in view.nodes]

    @contextlib.contextmanager
    def choosing(self, slot: str) -> Iterator[Chosen]:
        """See JobPlace. One slot at a time waits for Slurm's choice, or two could come to one node."""
        with self._choice:
            # Newer than what another slot has submitted.
            yield self.chosen(slot, self._cluster.view())

    def chosen(self, slot: str, view: View) -> Chosen:
        """Returns where the next job of a slot may start. Raises RetryLater."""
        bound = self.bound(view)
        if slot in bound:
            return Chosen(bound[slot])
        waiting = (number for number in self.jobs(view) if not view.jobs[number].nodes)
        if (number := min(waiting, default=None)) is not None:
            raise RetryLater(f"Slurm first chooses a node for its job {number}")
        place = self.hosts(view).get(slot)
        if place is None:
            raise RetryLater(f"no node of Slurm's reservation {self.reservation} is left")
        least = _left(view.nodes[place])
        if not least:
            return Chosen(place)
        allowed = {name for name in self._free(view, bound) if _left(view.nodes[name]) >= least}
        # A reservation with FLEX lets jobs out of it.
        return Chosen("", tuple(sorted(view.nodes.keys() - allowed)))


class PoolSlot:
    """See JobPlace. Without a node it has any, for what all have in common."""

    chooses = True

    def __init__(self, pool: SlurmPool, name: str) -> None:
        self.name = name
        self._pool = pool

    def host(self, view: View) -> str:
        return self._pool.hosts(view).get(self.name) or min(view.reserved & view.nodes.keys(), default="")

    def refusal(self, view: View) -> str | None:
        if self.name in self._pool.hosts(view):
            return None
        return f"Slurm's reservation {self._pool.reservation} has no node left for it"

    def choosing(self) -> contextlib.AbstractContextManager[Chosen]:
        return self._pool.choosing(self.name)


def _kind(node: SlurmNode) -> tuple[tuple[str, ...], int, int]:
    return tuple(sorted(node.types)), node.cores, node.memory_mb


def _left(node: SlurmNode) -> int:
    """GPUs that Slurm could give there now."""
    return 0 if node.damage or node.closure else len(node.types) - node.used
