"""The programs of a simulated node."""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from agent.host.open_files import Opener, Openers
from agent.nvml.gpu import NvmlGpu
from agent.ports.checkpoint_tool import Answer, Call, FinishedCall
from agent.ports.gpu import watched
from agent.ports.notebook_programs import Children, NotebookStart
from agent.ports.programs import ProcessOwner, is_signalled
from agent.ports.suspender import CudaCheckpoint
from devtools.simulated.device_nodes import SimulatedDeviceNodes, capability_name
from devtools.simulated.hardware import Hardware
from devtools.simulated.models import HardwareFault
from devtools.simulated.processes import Process
from wire import DesiredAllocation


def program(hardware: Hardware, pid: int) -> Process | None:
    """Returns a program that runs or is suspended."""
    now = hardware.clock()
    found = (gpu.processes[pid] for gpu in hardware.gpus if pid in gpu.processes)
    return next((process for process in found if process.starts <= now), None)


def program_change(hardware: Hardware, pid: int, *, locked: bool, frozen: bool) -> None:
    """Locks, suspends or resumes a program; a suspended one resumes on its device.

    Raises HardwareFault.
    """
    for gpu in hardware.gpus:
        process = gpu.processes.get(pid)
        if process is not None:
            if gpu.mig != (process.instance is not None):
                raise HardwareFault("NVML_ERROR_IN_USE")
            gpu.processes[pid] = dataclasses.replace(process, locked=locked, frozen=frozen)
            hardware.save()
            return
    raise HardwareFault("NVML_ERROR_NOT_FOUND")


def program_toggle(hardware: Hardware, pid: int) -> None:
    """Suspends a running program, resumes a suspended one. Raises HardwareFault."""
    found = program(hardware, pid)
    frozen = found is not None and not found.frozen
    program_change(hardware, pid, locked=frozen, frozen=frozen)


class SimulatedPrograms:
    """See programs.Programs. A program's label is the booking or allocation it belongs to."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.warned: list[tuple[int, int]] = []
        self.written: list[tuple[int, str]] = []

    def birth(self, pid: int) -> str | None:
        found = program(self._hardware, pid)
        return None if found is None else f"{found.label}/{found.starts}"

    def owner_of(self, pid: int) -> ProcessOwner:
        found = program(self._hardware, pid)
        return ProcessOwner() if found is None else ProcessOwner(frozenset({found.label}), found.user or None)

    def warn(self, pid: int, number: int) -> bool:
        there = program(self._hardware, pid) is not None
        if there:
            self.warned.append((pid, number))
        return there

    def named(self, names: Collection[str]) -> tuple[int, ...]:
        found = (pid for gpu in self._hardware.gpus for pid in gpu.processes)
        return tuple(pid for pid in sorted(found) if not self.owner_of(pid).names.isdisjoint(names))

    def write(self, pid: int, text: str) -> int:
        self.written.append((pid, text))
        return 1

    def ask(self, pid: int, birth: str) -> None:
        if self.birth(pid) == birth:
            self._hardware.process_signal(pid, force=False)

    def kill(self, pid: int, birth: str) -> None:
        if self.birth(pid) == birth:
            self._hardware.process_signal(pid, force=True)


def simulated_port(
    hardware: Hardware,
    unwatched: Callable[[str], AbstractContextManager[None]] = watched,
) -> NvmlGpu:
    """Returns the port to simulated GPUs, once they are installed. Raises GpuError."""
    return NvmlGpu(
        hardware.process_signal,
        hardware.reset,
        SimulatedOpenFiles(hardware),
        SimulatedDeviceNodes(hardware),
        unwatched,
    )


class SimulatedOpenFiles:
    """See open_files.OpenFiles. `hidden` are programs whose open files can't be read."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.hidden: set[int] = set()

    def openers(self) -> Openers:
        """Returns what /proc would show: all programs that use a GPU have its file open."""
        found: dict[str, set[Opener]] = defaultdict(set)
        for gpu in self._hardware.gpus:
            for each in self._hardware.holding(gpu):
                if each.pid in self.hidden or not is_signalled(each.pid):
                    # A number that is only the driver's is not in /proc.
                    continue
                opener = Opener(each.pid, each.label, each.service)
                found[gpu.file].add(opener)
                if each.instance is not None:
                    found[capability_name(gpu.index, each.instance)].add(opener)
        whole = {file: frozenset(those) for file, those in found.items()}
        return Openers(whole, frozenset(self.hidden))


_OLDEST = 550
_ACTIONS = 555
_ILLEGAL_STATE = "the operation cannot be performed in the present state"
# What each action needs, and what it leaves: whether the program is locked, whether it is frozen.
_ACTIONS_FROM = {
    "lock": ((False, False), (True, False)),
    "checkpoint": ((True, False), (True, True)),
    "restore": ((True, True), (True, False)),
    "unlock": ((True, False), (False, False)),
}
NOT_READY = "device not ready"
UNSUPPORTED = "OS call failed or operation not supported on this OS"


class SimulatedTool:
    """See suspender.Tool. Done at once. `refuses` has the messages of actions that fail,
    `calls` the calls by process id."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._major = int(hardware.driver.version.partition(".")[0])
        self.refuses: dict[str, str] = {}
        self.calls: list[tuple[int, str]] = []

    def start(self, pid: int, arguments: Sequence[str]) -> Call:
        """Begins a call about a program."""
        action = arguments[1] if arguments[0] == "--action" else arguments[0]
        self.calls.append((pid, action))
        try:
            said = self._done(pid, action)
        except HardwareFault as fault:
            return FinishedCall(Answer.ended(arguments, 1, fault.symbol))
        return FinishedCall(Answer.ended(arguments, 0, said))

    def is_running(self, pid: int) -> bool:
        """Never: each call is done at once."""
        return False

    def _done(self, pid: int, action: str) -> str:
        if self._major < _OLDEST:
            raise HardwareFault("Insufficient driver")
        if self._major < _ACTIONS and action != "--toggle":
            raise HardwareFault("Unrecognized option")
        found = program(self._hardware, pid)
        if found is None or found.kind == "file":
            raise HardwareFault(UNSUPPORTED)
        if action in self.refuses:
            raise HardwareFault(self.refuses[action])
        if action == "--get-state":
            return "checkpointed" if found.frozen else "locked" if found.locked else "running"
        locked, frozen = _after(action, locked=found.locked, frozen=found.frozen)
        program_change(self._hardware, pid, locked=locked, frozen=frozen)
        return ""


def _after(action: str, *, locked: bool, frozen: bool) -> tuple[bool, bool]:
    """Returns whether a program is locked and frozen after an action. Raises HardwareFault."""
    if action == "--toggle":
        needs, after = (frozen, frozen), (not frozen, not frozen)
    else:
        needs, after = _ACTIONS_FROM[action]
    if (locked, frozen) != needs:
        raise HardwareFault(_ILLEGAL_STATE)
    return after


class SimulatedSuspender(CudaCheckpoint):
    """See suspender.Suspender."""

    def __init__(self, hardware: Hardware) -> None:
        self.tool = SimulatedTool(hardware)
        super().__init__(self.tool, hardware.driver.version)

    def available_mb(self) -> int | None:
        return None


_FIRST_LOOK_S = 2


class SimulatedUsers:
    """See handover.HandoverObserver. Their programs end on TERM."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    def given(self, allocation: DesiredAllocation, device: str) -> None:
        self._hardware.process_start(
            device,
            label=allocation.id,
            delay_s=_FIRST_LOOK_S,
            load=f"{allocation.tenant}.{allocation.booking}",
        )

    def taken(self, allocation: str) -> None:
        self._hardware.process_forget(allocation)


class SimulatedStarter:
    """See notebook_programs.NotebookStarter. Simulated people have no accounts: the programs of all
    run as the agent's, each person's with a home of their own below `homes`."""

    def __init__(self, homes: Path) -> None:
        self._homes = homes
        self._children = Children()

    def uid(self, account: str) -> int | None:
        return os.geteuid()

    def start(self, wanted: NotebookStart) -> None:
        home = self._homes.absolute() / wanted.account
        home.mkdir(parents=True, exist_ok=True)
        plain = {name: os.environ[name] for name in ("LANG", "PATH") if name in os.environ}
        self._children.start(wanted.command, {**plain, "HOME": str(home), **wanted.mark}, wanted.folder)

    def reap(self) -> int:
        return self._children.reap()
