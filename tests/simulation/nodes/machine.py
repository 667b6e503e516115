"""The hardware and the owners of a simulated node, with somebody who looks on."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agent.nvml.timeout_wrapper import ALL_GPUS
from agent.nvml.watch import NvmlWatch
from agent.ports.gpu import FoundError, GpuError
from agent.ports.handover import Handover
from agent.ports.worker_threads import HANGS_AFTER_S, WorkerThreads
from devtools.simulated.hardware import Gpu, Hardware, Instance
from devtools.simulated.models import HardwareFault, fleet_parse
from devtools.simulated.processes import Process
from devtools.simulated.programs import program, program_change, program_toggle
from tests.simulation.nodes.occupancy import is_foreign
from wire import NOT_ANSWERING, DesiredAllocation

if TYPE_CHECKING:
    from tests.simulation.nodes.node import SimNode

T = TypeVar("T")
LEAK_MB = 4_000


class Machine(Hardware):
    """GPUs that report which point the agent has reached, and what it stops."""

    def __init__(self, node: "SimNode", gpus: int, clock: Callable[[], float], driver: str) -> None:
        fleet = fleet_parse(f"h100:{gpus}")
        super().__init__(node.name, fleet, state=None, clock=clock, driver=driver)
        # Until when memory of a GPU stays in use after its program has ended.
        self.leaks: dict[str, float] = {}
        self._node, self._at = node, node.at
        # Freezing and waking that is under way, with when it is done: it outlives the agent.
        self.toggles: dict[int, float] = {}

    def mode_set(self, gpu: Gpu, *, mig: bool) -> str:
        said = super().mode_set(gpu, mig=mig)
        self._at("after the mode has changed")
        return said

    def instance_create(self, gpu: Gpu, profile_id: int, start: int, size: int) -> Instance:
        self._at("before a slice is made")
        return super().instance_create(gpu, profile_id, start, size)

    def compute_create(self, gpu: Gpu, instance: Instance, compute: int | None = None) -> None:
        self._at("between the two steps of a slice")
        super().compute_create(gpu, instance, compute)
        self._at("after a slice is made")

    def instance_destroy(self, gpu: Gpu, instance: Instance) -> None:
        self._at("between the two steps of taking it away")
        super().instance_destroy(gpu, instance)
        self._at("after a slice is taken away")

    def made_by_hand(self, gpu: Gpu, profile_id: int, start: int) -> Instance:
        """Somebody makes a slice past the agent. Raises HardwareFault."""
        size = gpu.model.profile(profile_id).size
        made = super().instance_create(gpu, profile_id, start, size)
        super().compute_create(gpu, made)
        return made

    def memory_used(self, gpu: Gpu, instance: Instance | None = None) -> int:
        """The driver may free memory late."""
        left = instance is None and self.leaks.get(gpu.uuid, 0.0) > self.clock()
        return super().memory_used(gpu, instance) + (LEAK_MB if left else 0)

    def process_signal(self, pid: int, *, force: bool) -> None:
        found = program(self, pid)
        # A resumed program is killed if another one of its booking could not be resumed.
        woken = found is not None and found.label in self._node.occupancy.resumed_as
        if found is not None and not found.frozen and not (woken and force):
            self._node.stops(found.label)
        if found is not None and found.locked and not force:
            self._node.overlaps.append(f"TERM to {pid}, whose CUDA calls are locked")
        super().process_signal(pid, force=force)
        if found is not None and program(self, pid) is None:
            self._memory_stays(found)
        if program(self, pid) is None:
            # Its number may soon be another's.
            self.toggles.pop(pid, None)
        self._at("after a program was asked to end")

    def _memory_stays(self, ended: Process) -> None:
        """Sometimes for a while after a program has ended."""
        if ended.instance is None and self._node.kinds.random() < 0.2:
            for gpu in self.gpus:
                self.leaks[gpu.uuid] = self.clock() + self._node.kinds.choice((1, 12))
            self._node.happened["memory that stayed in use"] += 1

    def toggle(self, pid: int, seconds: float) -> None:
        """Begins to freeze or to wake a program."""
        self._at("before a program is frozen or woken")
        found = program(self, pid)
        if found is not None and not found.frozen:
            self._node.stops(found.label)
        self.toggles[pid] = self.clock() + seconds
        self._at("while a program is frozen or woken")

    def toggles_settle(self) -> None:
        """What is under way is done when its time has come; what can't be stays as it is."""
        for pid in [pid for pid, at in self.toggles.items() if at <= self.clock()]:
            del self.toggles[pid]
            found = program(self, pid)
            try:
                program_toggle(self, pid)
            except HardwareFault:
                continue
            word = "woken" if found is not None and found.frozen else "frozen"
            self._node.happened[f"programs {word}"] += 1

    def power_cycle(self) -> None:
        """Programs and slices are gone, and so is the mode on this model."""
        self.toggles.clear()
        self.reboot()


class SlowSuspender:
    """See suspender.Suspender: takes its time, and sometimes fails."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self._failed: dict[int, bool] = {}

    @property
    def refusal(self) -> str | None:
        return None

    def available_mb(self) -> int | None:
        return None

    def suspend(self, pid: int) -> None:
        self._begin(pid, frozen=True)

    def resume(self, pid: int, *, there: bool) -> None:
        self._begin(pid, frozen=False)

    def may_be_locked(self, pid: int) -> bool:
        found = program(self._node.hardware, pid)
        return found is not None and found.locked

    def _begin(self, pid: int, *, frozen: bool) -> None:
        if self.busy(pid):
            return
        hardware, rng = self._node.hardware, self._node.rng
        found = program(hardware, pid)
        if found is not None and found.frozen == frozen:
            if found.locked and not frozen:
                program_change(hardware, pid, locked=False, frozen=False)
            self._failed[pid] = False
            return
        self._failed[pid] = rng.random() < 0.1
        if not self._failed[pid]:
            hardware.toggle(pid, rng.choice((0, 1, 8)))
        elif frozen and found is not None and pid % 2:
            program_change(hardware, pid, locked=True, frozen=False)
            self._node.happened["programs left half frozen"] += 1

    def busy(self, pid: int) -> bool:
        self._node.hardware.toggles_settle()
        return pid in self._node.hardware.toggles

    def result(self, pid: int) -> str | None:
        if self.busy(pid) or pid not in self._failed:
            return None
        return "it ended with 1" if self._failed[pid] else ""


class QuietWatch(NvmlWatch):
    """The users of processes, and the driver's errors. These are read only when there are
    some: that is seldom, and asking takes many calls."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware.process_user)
        self._hardware = hardware
        super().errors()

    def errors(self) -> tuple[FoundError, ...]:
        return super().errors() if self._hardware.errors else ()


class SlowWorkerThreads(WorkerThreads):
    """The lanes of a node's driver without threads. A call about a GPU that hangs does not come
    back before the GPU answers; then it does what it was to do, whatever became of its agent."""

    def __init__(self, node: "SimNode") -> None:
        super().__init__(node.hardware.clock)
        self._node = node
        self._out: dict[str, Callable[[], object]] = {}

    def hanging(self) -> tuple[str, ...]:
        now = self._steady()
        return tuple(sorted(n for n in self._out if now - self._asked[n] >= HANGS_AFTER_S))

    @property
    def idle(self) -> bool:
        return not self._out

    def come_back(self) -> None:
        """The calls about what answers again."""
        for about in sorted(name for name in self._out if not self._hangs(name)):
            with contextlib.suppress(GpuError):
                self._out.pop(about)()

    def _hangs(self, about: str) -> bool:
        return about in self._node.hanging or (about == ALL_GPUS and bool(self._node.hanging))

    def _ask(self, about: str, job: Callable[[], T], limit_s: float) -> T:
        if about not in self._out and not self._hangs(about):
            return job()
        if about not in self._out:
            self._out[about], self._asked[about] = job, self._steady()
            self._node.happened["calls that hang"] += 1
        raise GpuError("hangs", NOT_ANSWERING)


class WatchedHandover(Handover):
    """Writes down who may use a device: from before its files are there until they are gone."""

    def __init__(self, root: Path, node: "SimNode") -> None:
        super().__init__(root, (node,))
        self._node = node
        # What is no longer on the disk was never given, or has been taken.
        kept = node.occupancy.given
        node.occupancy.given = {name: kept[name] for name in self.given if name in kept}

    def give(self, allocation: DesiredAllocation, device: str, gpu: str, now: float) -> None:
        self._node.at("before a device is handed over")
        occupancy = self._node.occupancy
        if allocation.share is not None:
            occupancy.shares[allocation.id] = (allocation.share, allocation.owner)
        if allocation.resumes is not None:
            occupancy.resumed_as[allocation.resumes] = allocation.id
        occupancy.given[allocation.id] = self._node.slots_of(device)
        self._node.look()
        try:
            super().give(allocation, device, gpu, now)
        except OSError:
            if allocation.id not in self.given:
                occupancy.given.pop(allocation.id)
            raise
        self._node.at("after a device is handed over")

    def take(self, allocation: str) -> None:
        self._node.stops(allocation)
        super().take(allocation)
        self._node.occupancy.given.pop(allocation, None)
        self._node.at("after a device is taken back")


def unbooked_on(machine: Machine) -> list[int]:
    """The programs of people without a booking."""
    every = (process for gpu in machine.gpus for process in gpu.processes.values())
    return [process.pid for process in every if is_foreign(process.label)]
