"""The ports of an agent whose node is Slurm's. A job on a GPU is a program on it, by its number.

Slurm chooses which GPUs of the node a job gets. So a GPU of the portal's is a place, and the places
of a booking are taken as long as its job has not left the node. Jobs of others take free places.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Mapping

from agent.ports.gpu import GpuError, Reading, Truth
from agent.ports.places import PlacesPort, PlacesWatch, model_of, partners_refusal, reading_of
from agent.ports.programs import ProcessOwner
from agent.slurm.cluster import SlurmCluster, SlurmSite, View
from agent.slurm.jobs import BookingJobs
from agent.slurm.parse import Job, SlurmNode
from agent.slurm.pool import JobPlace
from wire import InventoryGpu

log = logging.getLogger(__name__)

_NAMESPACE = uuid.UUID("8a2c7d52-3c0e-4a53-9f6f-6d1c2f6f7c11")


class SlurmGpus(PlacesPort):
    """See agent.ports.gpu.GpuPort. `models` has name and memory in MiB of each type of GPU."""

    scheduler = "Slurm"

    def __init__(
        self, cluster: SlurmCluster, place: JobPlace, site: SlurmSite, models: Mapping[str, tuple[str, int]]
    ) -> None:
        """Raises GpuError."""
        self._cluster = cluster
        self._place = place
        self._site = site
        self._models = models
        self.jobs: BookingJobs | None = None
        self._slots = self._numbered(self._node(cluster.view()))

    @property
    def gpus(self) -> tuple[str, ...]:
        """Returns the UUIDs in their order."""
        return tuple(self._slots)

    def slot(self, gpu: str) -> int:
        """Returns the index of a GPU, -1 for an unknown one."""
        return self._slots.get(gpu, -1)

    def _node(self, view: View) -> SlurmNode:
        found = view.nodes.get(self._place.host(view))
        if found is None:
            raise GpuError("lost", f"Slurm knows no node {self._place.name}")
        return found

    def _numbered(self, node: SlurmNode) -> dict[str, int]:
        name = self._place.name
        return {gpu_uuid(self._site.name, name, index): index for index in range(len(node.types))}

    def driver(self) -> str:
        return self._site.version

    def inventory(self) -> tuple[InventoryGpu, ...]:
        node = self._node(self._cluster.view())
        self._slots = self._numbered(node)
        return tuple(self._inventory(gpu, node.types[index]) for gpu, index in self._slots.items())

    def _inventory(self, gpu: str, kind: str) -> InventoryGpu:
        name, memory_mb = _product_of(kind, self._models)
        return InventoryGpu(
            index=self._slots[gpu],
            uuid=gpu,
            name=name,
            memory_mb=memory_mb,
            mig_capable=False,
            mode="whole",
            numa=None,
            pci="",
            nvlink_domain=None,
        )

    def truth(self, gpu: str) -> Truth:
        view = self._cluster.view()
        node = self._node(view)
        slot = self._slots.get(gpu)
        if slot is None or slot >= len(node.types):
            raise GpuError("lost", f"Slurm has no such GPU on {node.name}")
        if node.damage is not None:
            raise GpuError("lost", node.damage)
        jobs = self._on(slot, view)
        return Truth(
            gpu,
            "whole",
            processes=len(jobs),
            holders=tuple(f"job {job.id} of {job.user}" for job in jobs),
            unready=self._unready(slot, view),
            withheld=self._withheld(node, view),
        )

    def _unready(self, slot: int, view: View) -> str | None:
        if self.jobs is None:
            return None
        return partners_refusal(self.jobs.partners(slot), self.jobs.leaving, self._takers(view).keys())

    def _withheld(self, node: SlurmNode, view: View) -> str | None:
        return node.closure if node.closure is not None else self._place.refusal(view)

    def _on(self, slot: int, view: View) -> tuple[Job, ...]:
        mine = self.jobs.on(slot, view) if self.jobs is not None else ()
        if mine:
            return mine
        taker = self._takers(view).get(slot)
        return () if taker is None else (taker,)

    def _takers(self, view: View) -> dict[int, Job]:
        """Returns the jobs of others by the place that they take: the last free ones."""
        known = [] if self.jobs is None else [each for each in self.jobs.known if not each.over]
        ours, host = {each.job for each in known}, self._place.host(view)
        others = [
            job
            for job in view.jobs.values()
            if host in job.nodes and job.id not in ours and not job.is_over and not job.is_waiting
        ]
        takers = [job for job in others for _ in range(job.gpus or 0)]
        unclear = next((job for job in others if job.gpus is None), None)
        if unclear is not None:
            # It may have asked for GPUs in another way: the node knows how many are used.
            here = (each for each in known if each.job in view.jobs and not view.jobs[each.job].is_over)
            used = self._node(view).used - len(takers) - sum(len(each.slots) for each in here)
            takers += [unclear] * max(0, used)
        free = [slot for slot in self._slots.values() if self._is_free(slot, view)]
        return dict(zip(reversed(free), takers, strict=False))

    def _is_free(self, slot: int, view: View) -> bool:
        """Whether a job of others may take the place. One that a booking is leaving is proven empty
        by that booking's job alone."""
        return self.jobs is None or not (slot in self.jobs.leaving or self.jobs.on(slot, view))

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        return tuple(job.id for job in self._on(self.slot(gpu), self._cluster.view()))

    def end_processes(
        self, gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        """Cancels the job of the booking there. `force` is Slurm's: KILL comes after its KillWait."""
        if self.jobs is not None:
            self.jobs.end(self.slot(gpu), only)

    def readings(self, gpu: str) -> tuple[Reading, ...]:
        return reading_of(gpu, len(self.pids(gpu, None)))


class SlurmWatch(PlacesWatch):
    """See agent.ports.gpu.WatchPort."""

    def __init__(self, cluster: SlurmCluster, gpus: SlurmGpus) -> None:
        self._cluster = cluster
        self._gpus = gpus

    def users(self, pids: Collection[int]) -> tuple[str, ...]:
        jobs = self._cluster.last.jobs
        return tuple(sorted({jobs[pid].user for pid in pids if pid in jobs}))

    def hanging(self) -> tuple[str, ...]:
        return self._gpus.gpus if self._cluster.is_silent else ()


class SlurmPrograms:
    """See agent.ports.programs.Programs. Programs are jobs; the last view of Slurm is asked."""

    def __init__(self, cluster: SlurmCluster, gpus: SlurmGpus) -> None:
        self._cluster = cluster
        self._gpus = gpus

    def birth(self, pid: int) -> str | None:
        job = self._cluster.last.jobs.get(pid)
        return None if job is None or job.is_over else job.submitted

    def owner_of(self, pid: int) -> ProcessOwner:
        job = self._cluster.last.jobs.get(pid)
        return ProcessOwner(self._names(pid), None if job is None else job.user)

    def _names(self, pid: int) -> frozenset[str]:
        known = () if self._gpus.jobs is None else self._gpus.jobs.known
        return frozenset(
            name for each in known if each.job == pid for name in (each.booking, *each.allocations)
        )

    def warn(self, pid: int, number: int) -> bool:
        """Signals the job's script, which passes it on to programs with a handler."""
        return self._asked(pid, lambda: self._cluster.commands.signal(pid, number))

    def named(self, names: Collection[str]) -> tuple[int, ...]:
        known = () if self._gpus.jobs is None else self._gpus.jobs.known
        wanted = set(names)
        return tuple(
            each.job for each in known if not each.over and wanted & {each.booking, *each.allocations}
        )

    def write(self, pid: int, text: str) -> int:
        return int(self._asked(pid, lambda: self._cluster.commands.notify(pid, text)))

    def ask(self, pid: int, birth: str) -> None:
        self.kill(pid, birth)

    def kill(self, pid: int, birth: str) -> None:
        """Cancels a booking's job; never one of others."""
        if self._names(pid) and self.birth(pid) == birth:
            self._asked(pid, lambda: self._cluster.commands.cancel(pid))
            self._cluster.changed()

    def _asked(self, pid: int, ask: Callable[[], None]) -> bool:
        try:
            ask()
        except OSError as error:
            log.warning("job %d: %s", pid, error)
            return False
        return True


def gpu_uuid(site: str, node: str, index: int) -> str:
    """Returns the UUID of a place: the same whenever the engine starts."""
    return f"slurm-{uuid.uuid5(_NAMESPACE, f'{site}/{node}/{index}')}"


def _product_of(kind: str, models: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """Raises GpuError for a type that the options do not name."""
    found = model_of(kind, models)
    if found is None:
        raise GpuError("invalid", f"say what a GPU of type {kind or '*'} is: --gpu-models TYPE=NAME:MIB")
    return found
