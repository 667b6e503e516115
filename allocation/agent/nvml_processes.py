"""Which programs are on a GPU or slice, from NVML's lists and from the open device files."""

import dataclasses
import re
from collections.abc import Callable

import pynvml

from allocation.agent.gpu import GpuError
from allocation.agent.nvml_calls import Handle, indexed, optional
from allocation.agent.open_files import Opener, Openers, OpenFiles
from allocation.agent.programs import LAST_PID

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
class Present:
    """The programs on one device. `pids` are those that may be signalled. `count` is of all, also
    of those that have no process id here; None where it can't be told. `services` have the
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

    def on(self, device: Handle, *, sliced: bool) -> Present:
        """Looks at a GPU, or at a slice. Raises what pynvml raises."""
        listed = None if self._scrambled else _listed(device)
        # After the lists: a program that starts opens the file before it is on a list.
        openers = Openers() if self._files is None else self._files.openers()
        paths = self._paths(device)
        there = openers.of(paths[0]) if paths else frozenset()
        # All programs of a GPU's slices have the GPU's own file open: a slice has more files.
        on_slice = frozenset[Opener]().union(*(openers.of(path) for path in paths[1:]))
        here = on_slice if sliced else there
        services = tuple(sorted(each for each in there if each.service))
        unlisted = {each.pid: each for each in here if not each.service}
        if listed is None:
            known = self._scrambled and self._files is not None and not openers.hidden
            count = len(unlisted) if known or unlisted else None
            seen = tuple(str(unlisted[pid]) for pid in sorted(unlisted))
            return Present(tuple(sorted(unlisted)), count, seen, services)
        named = {pid for pid in listed if 1 < pid <= LAST_PID}
        nameless = sum(pid not in named for pid in listed)
        by_pid = {each.pid: each for each in there | here}
        every = sorted(named | unlisted.keys())
        names = [str(by_pid.get(pid, Opener(pid))) for pid in every]
        if nameless:
            names.append(f"{nameless} of another process id namespace")
        proven = self._files is None or not paths
        pids = (p for p in every if proven or p in by_pid or p in openers.hidden)
        return Present(tuple(pids), len(every) + nameless, tuple(names), services)

    def _paths(self, device: Handle) -> tuple[str, ...]:
        if self._files is None:
            return ()
        uuid = indexed(pynvml.nvmlDeviceGetUUID, device)
        try:
            return () if uuid is None else self._paths_of(uuid)
        except (OSError, GpuError):
            return ()


def _listed(device: Handle) -> list[int] | None:
    """Returns all process ids of the three lists; None where the driver keeps no list."""
    compute = optional(pynvml.nvmlDeviceGetComputeRunningProcesses, device)
    if compute is None:
        return None
    graphics = indexed(pynvml.nvmlDeviceGetGraphicsRunningProcesses, device) or []
    shared = indexed(pynvml.nvmlDeviceGetMPSComputeRunningProcesses, device) or []
    found = [int(each.pid) for each in compute]
    beside = (int(each.pid) for each in (*graphics, *shared))
    return found + [pid for pid in beside if pid not in found]


def residue_mb(handle: Handle) -> int:
    """Returns the memory in use on a GPU that no program is on, where that is too much for the
    driver's own. Where the host may use the GPU's memory, too, it proves nothing."""
    mode = indexed(pynvml.nvmlDeviceGetAddressingMode, handle)
    if mode == pynvml.NVML_DEVICE_ADDRESSING_MODE_ATS:
        return 0
    memory = indexed(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    used = 0 if memory is None else int(memory.used) >> 20
    return used if used > RESIDUE_MB else 0
