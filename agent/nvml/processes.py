"""The programs on a GPU or slice, from NVML's lists and the open device files."""

import dataclasses
import re
from collections.abc import Callable

import pynvml

from agent.host.open_files import Opener, OpenFiles
from agent.nvml.calls import REFUSALS, Handle, indexed, optional
from agent.ports.gpu import GpuError
from agent.ports.programs import LAST_PID

# These drivers fill the list with records of another size (nvitop issues 75 and 88).
_SCRAMBLED = ((535, 43), (535, 98))
# What an idle GPU has in use for itself is less.
RESIDUE_MB = 256


def lists_scrambled(version: str) -> bool:
    """Returns whether a driver of this version answers wrong process ids."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return False
    first, last = _SCRAMBLED
    return first <= (int(found[1]), int(found[2])) <= last


@dataclasses.dataclass(frozen=True, slots=True)
class DevicePrograms:
    """The programs on one device. `pids` are those that may be signalled. `count` is of all, also
    of those that have no process id here; None where it is unknown. `services` have the
    device's file open and compute nothing."""

    pids: tuple[int, ...]
    count: int | None
    names: tuple[str, ...] = ()
    services: tuple[Opener, ...] = ()


class Processes:
    """`files` looks at open files; without it only NVML's lists count. `paths_of` gives the device
    files of a GPU or slice by UUID."""

    def __init__(
        self,
        files: OpenFiles | None,
        paths_of: Callable[[str], tuple[str, ...]],
        *,
        scrambled: bool,
    ) -> None:
        self._files = files
        self._paths_of = paths_of
        self._scrambled = scrambled

    def on(self, uuid: str, device: Handle, *, sliced: bool) -> DevicePrograms:
        """Returns the programs on a GPU or slice. Raises the errors of pynvml."""
        listed = None if self._scrambled else _listed(device)
        if self._files is None:
            return _device_programs(listed, frozenset(), None, ())
        # After the lists: a program that starts opens the file before it is on a list.
        openers = self._files.openers()
        paths = self._paths(uuid)
        there = openers.of(paths[0]) if paths else frozenset()
        here = there
        if sliced:
            # All programs of a GPU's slices have the GPU's own file open: a slice has more files.
            here = frozenset[Opener]().union(*(openers.of(path) for path in paths[1:]))
        services = tuple(sorted(each for each in there if each.service))
        if not paths or (listed is None and openers.hidden):
            # Nobody on a list proves nothing where the open files are not known.
            listed = listed or None
        elif listed is None and self._scrambled:
            listed = []
        return _device_programs(listed, there | here, openers.hidden if paths else None, services, here)

    def _paths(self, uuid: str) -> tuple[str, ...]:
        try:
            return self._paths_of(uuid)
        except (OSError, GpuError, *REFUSALS):
            return ()


def _device_programs(
    listed: list[int] | None,
    known: frozenset[Opener],
    hidden: frozenset[int] | None,
    services: tuple[Opener, ...],
    here: frozenset[Opener] = frozenset(),
) -> DevicePrograms:
    """`known` have the GPU's file open, `here` the device's own. `hidden` are programs
    whose files can't be read; None: files are not known, so every listed one may be signalled."""
    unlisted = {each.pid for each in here if not each.service}
    if not listed and not unlisted:
        return DevicePrograms((), None if listed is None else 0, (), services)
    named = {pid for pid in listed or () if 1 < pid <= LAST_PID}
    nameless = sum(pid not in named for pid in listed or ())
    by_pid = {each.pid: each for each in known}
    every = sorted(named | unlisted)
    names = [str(by_pid.get(pid, Opener(pid))) for pid in every]
    if nameless:
        names.append(f"{nameless} of another process id namespace")
    pids = (pid for pid in every if hidden is None or pid in by_pid or pid in hidden)
    return DevicePrograms(tuple(pids), len(every) + nameless, tuple(names), services)


def _listed(device: Handle) -> list[int] | None:
    """Returns all process ids of the three lists; None where the driver keeps no list."""
    compute = optional(pynvml.nvmlDeviceGetComputeRunningProcesses, device)
    if compute is None:
        return None
    graphics = indexed(pynvml.nvmlDeviceGetGraphicsRunningProcesses, device) or []
    shared = indexed(pynvml.nvmlDeviceGetMPSComputeRunningProcesses, device) or []
    found = [int(each.pid) for each in compute]
    others = (int(each.pid) for each in (*graphics, *shared))
    return found + [pid for pid in others if pid not in found]


def residue_mb(handle: Handle) -> int:
    """Returns the memory in use on a GPU that no program is on, where that is too much for the
    driver's own. Where the host may use the GPU's memory, too, it proves nothing."""
    memory = indexed(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    used = 0 if memory is None else int(memory.used) >> 20
    if used <= RESIDUE_MB:
        return 0
    mode = indexed(pynvml.nvmlDeviceGetAddressingMode, handle)
    return 0 if mode == pynvml.NVML_DEVICE_ADDRESSING_MODE_ATS else used
