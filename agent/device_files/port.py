"""The ports to devices that have only files: booked whole, and kept apart by rules of their files.

Who has a file open is on a device; nothing else is known of it, so its use is not measured.
"""

import stat
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from agent.device_files.listed import ListedDevice
from agent.host.open_files import Opener, OpenFiles
from agent.ports.gpu import FoundError, GpuError, Place, Reading, Truth
from wire import InventoryGpu, Mode

DRIVER = "device files"


class FileDevices:
    """See gpu.GpuPort. `signal_process(pid, force=)` ends a process of this node, `files` looks at who has
    the devices' files open."""

    def __init__(
        self, devices: Sequence[ListedDevice], signal_process: Callable[..., None], files: OpenFiles
    ) -> None:
        self._devices = {device.id: device for device in devices}
        self._signal_process = signal_process
        self._files = files

    def close(self) -> None:
        """Does nothing: there is no driver."""

    def driver(self) -> str:
        """Returns what stands for the driver's version."""
        return DRIVER

    def inventory(self) -> tuple[InventoryGpu, ...]:
        """Returns all devices of the list, also those whose files are missing."""
        return tuple(
            InventoryGpu(
                index=index,
                uuid=device.id,
                name=device.name,
                memory_mb=device.memory_mb,
                mig_capable=False,
                mode="whole",
                numa=None,  # from the host: see inventory_take
                pci=device.pci,
                nvlink_domain=None,
            )
            for index, device in enumerate(self._devices.values())
        )

    def truth(self, gpu: str) -> Truth:
        """Returns who has the device's files open."""
        there, hidden = self._openers(gpu)
        # Nobody seen proves nothing where the files of some programs can't be read.
        count = None if hidden and not there else len(there)
        return Truth(
            uuid=gpu, mode="whole", processes=count, holders=tuple(str(each) for each in sorted(there))
        )

    def set_mode(self, gpu: str, mode: Mode) -> None:
        """Refuses all modes but the only one."""
        if mode != "whole":
            raise GpuError("unsupported", f"{self._device(gpu).name} is booked whole")

    def create(self, gpu: str, place: Place) -> None:
        """Refuses: there are no slices."""
        raise GpuError("unsupported", f"{self._device(gpu).name} has no slices")

    def destroy(self, gpu: str, instance: int) -> None:
        """Refuses: there are no slices."""
        raise GpuError("unsupported", f"{self._device(gpu).name} has no slices")

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        """Returns the programs that have a file of the device open."""
        return () if instance is not None else tuple(sorted(each.pid for each in self._openers(gpu)[0]))

    def end_processes(
        self, gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        """Asks those programs to end, or kills them."""
        for pid in self.pids(gpu, instance):
            if only is None or pid in only:
                self._signal_process(pid, force=force)

    def readings(self, gpu: str) -> tuple[Reading, ...]:
        """Returns how many programs there are: nothing else is measured."""
        return (
            Reading(
                gpu=gpu,
                place=None,
                utilisation=None,
                memory_used_mb=None,
                memory_total_mb=self._device(gpu).memory_mb or None,
                power_mw=None,
                temperature_c=None,
                processes=self.truth(gpu).processes,
            ),
        )

    def _openers(self, gpu: str) -> tuple[frozenset[Opener], frozenset[int]]:
        device = self._device(gpu)
        missing = [file for file in device.files if not is_device(file)]
        if missing:
            raise GpuError("lost", f"{missing[0]} is no device file")
        openers = self._files.openers()
        there = frozenset[Opener]().union(*(openers.of(file) for file in device.files))
        return frozenset(each for each in there if not each.service), openers.hidden

    def _device(self, gpu: str) -> ListedDevice:
        device = self._devices.get(gpu)
        if device is None:
            raise GpuError("lost", "the list of devices does not have it")
        return device


class FileWatch:
    """See gpu.WatchPort. No driver reports errors."""

    def __init__(self, process_user: Callable[[int], str | None]) -> None:
        self._process_user = process_user

    def errors(self) -> tuple[FoundError, ...]:
        """Returns nothing."""
        return ()

    def users(self, pids: Collection[int]) -> tuple[str, ...]:
        """Returns the users of these processes, by name."""
        return tuple(sorted({user for pid in pids if (user := self._process_user(pid))}))

    def hanging(self) -> tuple[str, ...]:
        """Returns nothing: no driver is asked."""
        return ()

    def close(self) -> None:
        """Does nothing."""


class ListedNodes:
    """See cdi.DeviceNodes."""

    def __init__(self, devices: Sequence[ListedDevice]) -> None:
        self._files = {device.id: device.files for device in devices}

    def common(self) -> tuple[str, ...]:
        """Returns nothing: devices share no file."""
        return ()

    def of(self, device: str) -> tuple[str, ...]:
        """Returns the files of a device; none of one that is no longer on the list."""
        return self._files.get(device, ())


def is_device(path: str) -> bool:
    """Whether there is a character or block device."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
