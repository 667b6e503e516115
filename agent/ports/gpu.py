"""The port to the GPUs of one node."""

import dataclasses
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

from wire import InventoryGpu, Mode, Recovery

Fault = Literal["in_use", "no_room", "invalid", "unsupported", "lost", "reset_required", "hangs", "driver"]
PERMANENT: frozenset[Fault] = frozenset({"invalid", "unsupported"})


class GpuError(Exception):
    """The driver refused. Faults in PERMANENT will be refused again, the others may pass."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class RetryLater(Exception):
    """It is not done yet, for the reason in the text, and is to be tried again in a later turn."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Place:
    """A MIG profile (NVML's profile id) at a start slot on one GPU."""

    profile_id: int
    slot: int
    size: int

    def overlaps(self, other: "Place") -> bool:
        return self.slot < other.slot + other.size and other.slot < self.slot + self.size


@dataclasses.dataclass(frozen=True, slots=True)
class FoundInstance:
    """A GPU instance that exists. `uuid` is None while it has no compute instance, so that nobody
    can use it. `processes` is None when the driver can't say."""

    id: int
    place: Place
    profile: str
    uuid: str | None
    processes: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """One GPU now. `processes` counts those on the whole GPU; under MIG see the instances.

    `pending` is the mode that it has after its next reset, None for the one that it has. `holders`
    names the programs for people. `residue_mb` is memory in use although no program is there, and
    `unready` says why the GPU can't be handed over yet. `withheld` says why an engine such as Slurm
    gives no new work to this GPU until somebody changes that, so that the portal plans around it.
    """

    uuid: str
    mode: Mode
    instances: tuple[FoundInstance, ...] = ()
    processes: int | None = 0
    pending: Mode | None = None
    holders: tuple[str, ...] = ()
    residue_mb: int = 0
    unready: str | None = None
    withheld: str | None = None

    def spots(self) -> list[tuple[FoundInstance | None, int | None]]:
        """Returns the slices, or None for the whole GPU, each with its number of processes."""
        whole = [(None, self.processes)] if self.mode == "whole" else []
        return [*((found, found.processes) for found in self.instances), *whole]


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """One measurement of a GPU (`place` None) or of a slice. What can't be measured is None.

    Utilisation in percent, memory in MiB, power in milliwatts, temperature in degrees Celsius,
    bandwidth of memory, time of SMs and of tensor cores in percent, links in KiB a second. `throttle` are
    NVML's bits of why the clock is not higher; `energy_mj` counts up from when the driver loaded.
    """

    gpu: str
    place: Place | None
    utilisation: int | None
    memory_used_mb: int | None
    memory_total_mb: int | None
    power_mw: int | None
    temperature_c: int | None
    processes: int | None
    bandwidth: int | None = None
    tensor: int | None = None
    sm_mhz: int | None = None
    throttle: int | None = None
    pcie_rx_kb: int | None = None
    pcie_tx_kb: int | None = None
    nvlink_rx_kb: int | None = None
    nvlink_tx_kb: int | None = None
    energy_mj: int | None = None
    sm: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class FoundError:
    """An error that the driver reported. `code`: the Xid, or the number of wrong memory bits.
    `instance` is the driver's id of the slice that it is about, None for the GPU. `recovery` is
    what the driver asks for, None where it was not asked or does not say."""

    gpu: str
    kind: Literal["xid", "ecc"]
    code: int
    instance: int | None
    recovery: Recovery | None = None


def watched(_: str) -> AbstractContextManager[None]:
    """Leaves the services that watch a GPU alone."""
    return nullcontext()


class WatchPort(Protocol):
    """Errors that the driver reports, and the users of processes."""

    def errors(self) -> tuple[FoundError, ...]:
        """What happened since the last call, without waiting. Raises GpuError."""

    def users(self, pids: Collection[int]) -> tuple[str, ...]:
        """Whose these processes are, by name."""

    def hanging(self) -> tuple[str, ...]:
        """GPUs about which the driver has not come back from a call."""

    def close(self) -> None: ...


class GpuPort(Protocol):
    """Every call may raise GpuError. GPUs are named by UUID, instances by the driver's id."""

    def driver(self) -> str: ...

    def inventory(self) -> tuple[InventoryGpu, ...]: ...

    def truth(self, gpu: str) -> Truth: ...

    def set_mode(self, gpu: str, mode: Mode) -> None:
        """Changes the mode of an empty GPU, by a reset where it needs one, and reads it back.

        Raises GpuError("in_use") while something is on it, and GpuError("reset_required") when it
        could not be reset.
        """

    def create(self, gpu: str, place: Place) -> None:
        """Makes an instance with its compute instance, or leaves nothing behind."""

    def destroy(self, gpu: str, instance: int) -> None:
        """Raises GpuError("in_use") while a process runs on it."""

    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        """The processes on an instance (None: on the whole GPU)."""

    def end_processes(
        self, gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        """Asks those processes (`only` of these numbers, if given) to end; `force` kills."""

    def readings(self, gpu: str) -> tuple[Reading, ...]:
        """Whole GPU first, then its instances."""

    def close(self) -> None: ...
