"""The port to cores of this host that bookings get without a GPU.

A program is on a core while it names the booking that has the core, or is in the cgroup of a booking that is
kept to it. No driver is asked, so nothing is measured by core; what a booking uses is measured by its cgroup.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from agent.ports.gpu import GpuError, Place, Reading, Truth
from agent.ports.handover import booking_full_name
from agent.ports.host_cores import core_of_device
from agent.ports.programs import Programs
from wire import HOST_CORE, DesiredAllocation, InventoryGpu, Mode

DRIVER = "host cores"
# One look serves all cores of a turn.
FRESH_S = 0.2


class CoreGroups(Protocol):
    """What keeps bookings to their cores."""

    def on_cores(self) -> Mapping[int, Collection[int]]:
        """Returns the programs that are kept to each core."""


class HostCores:
    """See gpu.GpuPort, and handover.HandoverObserver, by which it knows whose each core is. `bookings` is the
    folder with what an earlier process handed over, `signal_process(pid, force=)` ends a process of this
    node."""

    def __init__(
        self,
        devices: Mapping[str, int],
        memory_mb: int,
        *,
        programs: Programs,
        bookings: Path,
        signal_process: Callable[..., None],
    ) -> None:
        """`devices` are cores by what stands for their UUID. `memory_mb` is that of all together, in MiB."""
        self._devices = dict(devices)
        self._memory_mb = memory_mb // len(self._devices)
        self._programs = programs
        self._signal_process = signal_process
        self._groups: CoreGroups | None = None
        self._seen: Mapping[int, frozenset[int]] = {}
        self._seen_until = 0.0
        self._given = _handed(bookings)
        self._last = {core: booking for booking, core in self._given.values()}
        """The booking that had each core last, by its full name."""
        self.fresh_s = FRESH_S

    def kept_by(self, groups: CoreGroups | None) -> "HostCores":
        """Returns the same, with what keeps bookings to their cores."""
        self._groups = groups
        return self

    def given(self, allocation: DesiredAllocation, device: str) -> None:
        """Notes whose a core is from now on. What a booking had in an earlier run was proven empty."""
        core = core_of_device(device)
        if core is None:
            return
        booking = booking_full_name(allocation)
        if all(other != booking for other, _ in self._given.values()):
            self._last = {each: other for each, other in self._last.items() if other != booking}
        self._given[allocation.id], self._last[core] = (booking, core), booking

    def taken(self, allocation: str) -> None:
        """Notes that it was taken back; its programs may still be there."""
        self._given.pop(allocation, None)

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
        self._seen_until = 0.0

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
        if time.monotonic() >= self._seen_until:
            self._seen = self._programs_by_core()
            self._seen_until = time.monotonic() + self.fresh_s
        return self._seen

    def _programs_by_core(self) -> Mapping[int, frozenset[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        pids = {booking: self._programs.named({booking}) for booking in set(self._last.values())}
        for core, booking in self._last.items():
            found[core] |= set(pids[booking])
        for core, kept in (self._groups.on_cores() if self._groups else {}).items():
            found[core] |= set(kept)
        return {core: frozenset(pids) for core, pids in found.items()}


def _handed(bookings: Path) -> dict[str, tuple[str, int]]:
    """Returns the booking, by its full name, and the core of each allocation that has one in this folder."""
    found: dict[str, tuple[str, int]] = {}
    for file in sorted(bookings.glob("*/*/booking.json")):
        try:
            core = core_of_device(str(json.loads(file.read_bytes())["device"]))
        except (OSError, ValueError, KeyError, TypeError):
            # The hand-over removes what is damaged.
            continue
        if core is not None:
            found[file.parent.name] = file.parent.parent.name, core
    return found
