"""The port to cores of this host that bookings get without a GPU.

A program is on a core while it names the booking that has the core, or is in the cgroup of a booking that is
kept to it. No driver is asked, so nothing is measured by core; what a booking uses is measured by its cgroup.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from agent.ports.gpu import GpuError, Place, Reading, Truth
from agent.ports.host_cores import core_device, core_of_device
from agent.ports.programs import Programs
from wire import HOST_CORE, InventoryGpu, Mode

DRIVER = "host cores"
# One look serves all cores of a turn.
FRESH_S = 0.2


class CoreGroups(Protocol):
    """What keeps bookings to their cores."""

    def on_cores(self) -> Mapping[int, Collection[int]]:
        """Returns the programs that are kept to each core."""


class HostCores:
    """See gpu.GpuPort. `bookings` is the folder with what is handed over, `signal_process(pid, force=)` ends
    a process of this node."""

    def __init__(
        self,
        node: str,
        cores: Sequence[int],
        memory_mb: int,
        *,
        programs: Programs,
        bookings: Path,
        signal_process: Callable[..., None],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`memory_mb` is that of all cores together, in MiB."""
        self._devices = {core_device(node, core): core for core in sorted(cores)}
        self._memory_mb = memory_mb // len(self._devices)
        self._programs = programs
        self._bookings = bookings
        self._signal_process = signal_process
        self._groups: CoreGroups | None = None
        self._steady = steady
        self._seen: Mapping[int, frozenset[int]] = {}
        self._seen_at = -FRESH_S

    def kept_by(self, groups: CoreGroups | None) -> "HostCores":
        """Returns the same, with what keeps bookings to their cores."""
        self._groups = groups
        return self

    def close(self) -> None:
        """Does nothing: there is no driver."""

    def driver(self) -> str:
        """Returns what stands for the driver's version."""
        return DRIVER

    def inventory(self) -> tuple[InventoryGpu, ...]:
        """Returns the cores, in order."""
        return tuple(
            InventoryGpu(
                index=index,
                uuid=device,
                name=HOST_CORE,
                memory_mb=self._memory_mb,
                mig_capable=False,
                mode="whole",
                numa=None,
                pci="",
                nvlink_domain=None,
            )
            for index, device in enumerate(self._devices)
        )

    def truth(self, gpu: str) -> Truth:
        """Returns which programs are on a core."""
        there = self.pids(gpu, None)
        return Truth(
            uuid=gpu, mode="whole", processes=len(there), holders=tuple(f"pid {pid}" for pid in there)
        )

    def set_mode(self, gpu: str, mode: Mode) -> None:
        """Refuses all modes but the only one."""
        if mode != "whole":
            raise GpuError("unsupported", "a core is booked whole")

    def create(self, gpu: str, place: Place) -> None:
        """Refuses: there are no slices."""
        raise GpuError("unsupported", "a core has no slices")

    def destroy(self, gpu: str, instance: int) -> None:
        """Refuses: there are no slices."""
        raise GpuError("unsupported", "a core has no slices")

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        """Returns the programs on a core."""
        core = self._devices.get(gpu)
        if core is None:
            raise GpuError("lost", "it is none of the cores of this agent")
        return () if instance is not None else tuple(sorted(self._look().get(core, ())))

    def end_processes(
        self, gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        """Asks those programs to end, or kills them."""
        for pid in self.pids(gpu, instance):
            if only is None or pid in only:
                self._signal_process(pid, force=force)
        self._seen_at = -FRESH_S

    def readings(self, gpu: str) -> tuple[Reading, ...]:
        """Returns how many programs there are: nothing else is known of one core."""
        return (
            Reading(
                gpu=gpu,
                place=None,
                utilisation=None,
                memory_used_mb=None,
                memory_total_mb=self._memory_mb,
                power_mw=None,
                temperature_c=None,
                processes=len(self.pids(gpu, None)),
            ),
        )

    def _look(self) -> Mapping[int, frozenset[int]]:
        now = self._steady()
        if now - self._seen_at >= FRESH_S:
            self._seen, self._seen_at = self._programs_by_core(), now
        return self._seen

    def _programs_by_core(self) -> Mapping[int, frozenset[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for booking, cores in self._handed().items():
            for pid in self._programs.named({booking}):
                for core in cores:
                    found[core].add(pid)
        for core, pids in (self._groups.on_cores() if self._groups else {}).items():
            found[core] |= set(pids)
        return {core: frozenset(pids) for core, pids in found.items()}

    def _handed(self) -> dict[str, set[int]]:
        """Returns the cores of each booking that has some here, by its full name."""
        found: dict[str, set[int]] = defaultdict(set)
        for file in self._bookings.glob("*/*/booking.json"):
            try:
                core = core_of_device(str(json.loads(file.read_bytes())["device"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if core is not None:
                found[file.parent.parent.name].add(core)
        return found
