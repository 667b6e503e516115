"""Hands a device to a booking's owner, and takes it back.

Per allocation a folder `bookings/<tenant>.<booking>/<allocation>/` with `env`, to be sourced by a
shell, and `booking.json`, to be read by programs. A folder with a `booking.json` is a device handed
over. The files of the booking on this node are in the folder above: see owner/booking_files.py.
"""

import dataclasses
import json
import logging
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from agent.ports.host_cores import CoreTopology, core_of_device, cores_text
from agent.ports.readable import FILE, folder_readable
from wire import DesiredAllocation

log = logging.getLogger(__name__)


class HandoverObserver(Protocol):
    """Is notified of hand-overs; can't refuse them."""

    def given(self, allocation: DesiredAllocation, device: str) -> None: ...

    def taken(self, allocation: str) -> None: ...


class HandoverGuard(Protocol):
    """Restricts access to devices, and is called first. Both calls may raise OSError and GpuError:
    then nothing is handed over, or counts as free."""

    def allow(self, allocation: DesiredAllocation, device: str, cores: tuple[int, ...]) -> None: ...

    def disallow(self, booking: str, allocation: str) -> None:
        """`booking` is its full name."""


@dataclasses.dataclass(frozen=True, slots=True)
class HandedDevice:
    """`since` is Unix seconds of the first hand-over; `cores` of the host belong to it alone."""

    device: str
    since: int
    folder: Path
    cores: tuple[int, ...] = ()


class Handover:
    def __init__(
        self,
        root: Path,
        owners: Iterable[HandoverObserver] = (),
        share: Callable[[str, int], Mapping[str, str]] = lambda _, __: {},
        topology: CoreTopology | None = None,
        guard: HandoverGuard | None = None,
        alone: Callable[[str], Mapping[str, str]] = lambda device: {"CUDA_VISIBLE_DEVICES": device},
    ) -> None:
        """`share` gives what a program needs to use so many thousandths of a GPU, and `alone` what it
        needs to find a device. Both may raise GpuError. Without a `topology` no cores of the host are
        handed over."""
        self.root = root
        self._share = share
        self._alone = alone
        self._topology = topology or CoreTopology()
        self._owners = tuple(owners)
        self._guard = guard
        self._lent: dict[str, tuple[int, ...]] = {}
        folder_readable(root)
        self._remove_unfinished()
        self.given: dict[str, HandedDevice] = {}
        for file in list(root.glob("*/*/booking.json")):
            try:
                data = json.loads(file.read_bytes())
                cores = tuple(int(core) for core in data.get("cores", ()))
                found = HandedDevice(str(data["device"]), int(data["ready"]), file.parent, cores)
            except (ValueError, KeyError, TypeError):
                # A loss of power can leave it without its text. Nobody else removes it if its
                # booking is over by now.
                log.warning("%s is damaged: what is still handed over is written anew", file)
                _remove(file.parent)
                continue
            self.given[file.parent.name] = found

    def _remove_unfinished(self) -> None:
        """Removes the files of hand-overs that a killed agent did not complete."""
        for folder in list(self.root.glob("*/*/")):
            if folder.is_dir() and not (folder / "booking.json").exists():
                _remove(folder)

    def devices(self) -> dict[str, str]:
        """Returns the devices of handed-over allocations."""
        return {allocation: given.device for allocation, given in self.given.items()}

    def cores(self) -> dict[str, tuple[int, ...]]:
        """Returns the host cores of handed-over allocations that have some, with those that are lent."""
        return {
            name: tuple(sorted((*given.cores, *self._lent.get(name, ()))))
            for name, given in self.given.items()
            if given.cores
        }

    def cores_free(self) -> tuple[int, ...]:
        """Returns the host cores that belong to nobody; some of them may be lent."""
        taken = {core for given in self.given.values() for core in given.cores}
        return tuple(core for cores in self._topology.cores.values() for core in cores if core not in taken)

    def cores_lend(self, wanted: Mapping[str, int], kept: int) -> None:
        """Lends free cores, of which `kept` stay free, to these allocations, at most so many to each.
        What was lent before and is not any more is taken back. Only those with cores of their own get
        some: others use all cores anyway."""
        free = list(self.cores_free())
        free = free[: max(0, len(free) - kept)]
        able = [name for name in sorted(wanted) if name in self.given and self.given[name].cores]
        lent: dict[str, list[int]] = {name: [] for name in able}
        while free and (open_for := [name for name in able if len(lent[name]) < wanted[name]]):
            for name in open_for[: len(free)]:
                lent[name].append(free.pop(0))
        self._lent = {name: tuple(cores) for name, cores in lent.items() if cores}

    def _cores_of(self, allocation: DesiredAllocation, gpu: str) -> tuple[int, ...]:
        """Returns the cores it already has, or free ones."""
        before = self.given.get(allocation.id)
        if before is not None and len(before.cores) == allocation.cores:
            return before.cores
        others = (each for name, each in self.given.items() if name != allocation.id)
        taken = {core for each in others for core in each.cores}
        return self._topology.choose(gpu, allocation.cores, taken)

    def give(self, allocation: DesiredAllocation, device: str, gpu: str, now: float) -> None:
        """`device` is the GPU or a slice of it. Raises OSError, and GpuError where a guard asks the
        driver; what was not handed over before is then not there in part."""
        before = self.given.get(allocation.id)
        since = int(now) if before is None else before.since
        cores = self._cores_of(allocation, gpu)
        share = {} if allocation.share is None else self._share(device, allocation.share)
        visible = self._alone(device) if core_of_device(device) is None else NO_GPU
        found = {**visible, **share}
        if self._guard is not None:
            self._guard.allow(allocation, device, cores)
        folder = self.root / booking_full_name(allocation) / allocation.id
        try:
            folder_readable(folder.parent)
            folder_readable(folder)
            host = host_environment(cores, allocation.memory_mb)
            values = {**_environment(allocation), **found, **host}
            write_atomic(folder / "env", exports(values))
            write_atomic(folder / "booking.json", _description(allocation, device, since, cores))
        except OSError:
            if before is None and folder.is_dir():
                _remove(folder)
            raise
        self.given[allocation.id] = HandedDevice(device, since, folder, cores)
        if before is None or before.device != device:
            for owner in self._owners:
                owner.given(allocation, device)

    def take(self, allocation: str) -> None:
        """Takes the device back. Raises OSError, GpuError as `give`."""
        given = self.given.get(allocation)
        if given is None:
            return
        if self._guard is not None:
            self._guard.disallow(given.folder.parent.name, allocation)
        _remove(given.folder)
        del self.given[allocation]
        for owner in self._owners:
            owner.taken(allocation)


def _remove(folder: Path) -> None:
    """Removes the marker file last, so that an interrupted removal is repeated."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == "booking.json"):
        path.unlink(missing_ok=True)
    folder.rmdir()
    if not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def booking_full_name(allocation: DesiredAllocation) -> str:
    """Returns for example `helix.BK-12`: each tenant numbers its own bookings."""
    return f"{allocation.tenant}.{allocation.booking}"


def write_atomic(path: Path, text: str) -> None:
    """Replaces a world-readable file atomically. Raises OSError."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(FILE)
    os.replace(fresh, path)


NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
"""Variables with which a program, also in a container, finds no GPU."""


def _environment(allocation: DesiredAllocation) -> dict[str, str]:
    ends = datetime.fromtimestamp(allocation.ends, UTC).isoformat()
    return {
        "GPU_BOOKING": allocation.booking,
        "GPU_BOOKING_TENANT": allocation.tenant,
        "GPU_ALLOCATION": allocation.id,
        "GPU_BOOKING_ENDS": ends,
    }


def exports(values: Mapping[str, str]) -> str:
    """Returns lines for a shell to source."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def host_environment(cores: Collection[int], memory_mb: int) -> dict[str, str]:
    """Variables that name the host cores and memory of a booking for its programs."""
    values = {"GPU_BOOKING_MEMORY_MB": str(memory_mb)} if memory_mb else {}
    if cores:
        values |= {"GPU_BOOKING_CORES": cores_text(cores), "OMP_NUM_THREADS": str(len(cores))}
    return values


def _description(allocation: DesiredAllocation, device: str, since: int, cores: Collection[int]) -> str:
    data = {
        "booking": allocation.booking,
        "allocation": allocation.id,
        "tenant": allocation.tenant,
        "owner": allocation.owner,
        "profile": allocation.profile,
        "isolated": allocation.share is None,
        "device": device,
        "starts": allocation.starts,
        "ends": allocation.ends,
        "ready": since,
        "cores": list(cores),
        "memory_mb": allocation.memory_mb,
    }
    return json.dumps(data, indent=2) + "\n"
