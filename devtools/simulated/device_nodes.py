"""Device files of simulated GPUs."""

from collections.abc import Sequence

from agent.ports.gpu import GpuError
from agent.ports.group_use import GroupUse
from devtools.simulated.hardware import Hardware

# On real nodes the minor numbers come from the driver; here each slice has two of its own.
_CAPS_PER_GPU = 32


def capability_name(index: int, instance: int, number: int = 1) -> str:
    """Returns the name of a slice's first device file, or of its second."""
    return f"nvidia-cap{index * _CAPS_PER_GPU + 2 * instance + number}"


class SimulatedDeviceNodes:
    """See cdi.DeviceNodes."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    def common(self) -> tuple[str, ...]:
        """Returns those of a driver without a display."""
        return ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")

    def of(self, device: str) -> tuple[str, ...]:
        """Returns the files of a GPU or slice by UUID."""
        for index, gpu in enumerate(self._hardware.gpus):
            if device == gpu.uuid:
                return (f"/dev/{gpu.file}",)
            for instance in gpu.instances.values():
                if device == gpu.mig_uuid(instance):
                    names = (capability_name(index, instance.id, n) for n in (1, 2))
                    caps = (f"/dev/nvidia-caps/{name}" for name in names)
                    return (f"/dev/{gpu.file}", *caps)
        raise GpuError("lost", f"there is no device {device}")


class SimulatedAccess:
    """See device_acls.Access. `rights` are those that accounts have."""

    def __init__(self) -> None:
        self.rights: set[tuple[str, int]] = set()

    def give(self, right: tuple[str, int]) -> None:
        self.rights.add(right)

    def take(self, right: tuple[str, int]) -> None:
        self.rights.discard(right)

    def is_world_accessible(self, path: str) -> bool:
        return False


class SimulatedUnits:
    """See systemd.Units. `rules` are the properties of each slice, `members` its programs."""

    def __init__(self) -> None:
        self.rules: dict[str, tuple[str, ...]] = {}
        self.members: dict[str, set[int]] = {}

    def existing(self) -> frozenset[str]:
        return frozenset(self.rules)

    def apply(self, unit: str, properties: Sequence[str]) -> None:
        self.rules[unit] = tuple(properties)

    def signal(self, unit: str, *, force: bool) -> None:
        self.members.pop(unit, None)

    def populated(self, unit: str) -> bool:
        return bool(self.members.get(unit))

    def remove(self, unit: str) -> None:
        self.rules.pop(unit, None)

    def has(self, unit: str, pid: int) -> bool:
        return pid in self.members.get(unit, ())

    def join(self, unit: str, pid: int) -> None:
        self.members.setdefault(unit, set()).add(pid)

    def available_mb(self, unit: str) -> int | None:
        return None

    def use(self, unit: str) -> GroupUse | None:
        return None
