"""The checks of `doctor` that ask the driver. They only read."""

import contextlib
import ctypes
import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pynvml

from agent.device_files.listed import ListedDevice, devices_read
from agent.device_files.port import is_device
from agent.doctor.checks import Check, Finding, Said, State, found, said
from agent.host.device_nodes import DriverDeviceNodes
from agent.host.open_files import HostOpenFiles
from agent.nvml.calls import REFUSALS, attempt
from agent.nvml.gpu import NvmlGpu
from agent.nvml.processes import lists_scrambled
from agent.nvml.watch import NvmlWatch
from agent.owner.cdi import DeviceNodes
from agent.ports.gpu import GpuError, GpuPort, Truth
from agent.ports.host_cores import numa_node
from wire import InventoryGpu

_OLDEST = 535
_SUSPENDS = 550
_SLOW_S = 2.0
_OPEN_S = 8.0
_ASKS = "the driver"
_NVIDIA = "0x10de"


@dataclasses.dataclass(frozen=True, slots=True)
class ExaminedDriver:
    """An opened driver, and what is known of the machine around its GPUs."""

    port: GpuPort
    seen: Said
    numa: Callable[[InventoryGpu], int | None] = lambda gpu: numa_node(gpu.pci)
    has_files: bool = True


def driver_load(_: contextlib.ExitStack) -> ExaminedDriver:
    """Returns this machine's driver. Raises GpuError."""
    return ExaminedDriver(NvmlGpu(_never, files=HostOpenFiles()), said("nvml_answers"))


def driver_checks(
    opened: Callable[[contextlib.ExitStack], ExaminedDriver], stack: contextlib.ExitStack
) -> list[Check]:
    """Returns the checks in the order of the report; the driver is there until `stack` ends."""
    examination = DriverExamination(opened, stack)
    late = said("fix_driver_hangs")
    first = Check("driver", examination.open, _ASKS, _OPEN_S, late)
    rest: list[tuple[str, Callable[[], Finding]]] = [
        ("driver's version", examination.version),
        ("process ids of the driver", examination.pids),
        ("GPUs", examination.gpus),
        ("state of each GPU", examination.truths),
        ("speed of an answer", examination.speed),
        ("programs on GPUs", examination.holders),
        ("memory in use by nobody", examination.residue),
        ("MIG mode", examination.modes),
        ("MIG profiles", examination.profiles),
        ("NVLink and fabric", examination.fabric),
        ("NUMA nodes", examination.numa),
        ("persistence mode", examination.persistence),
        ("measurements", examination.measures),
        ("errors that the driver reports", examination.events),
        ("device files", examination.files),
    ]
    return [
        first,
        *(Check(name, examination.guarded(look), _ASKS, late=late) for name, look in rest),
    ]


class DriverExamination:
    """One driver while it is examined."""

    def __init__(
        self,
        opened: Callable[[contextlib.ExitStack], ExaminedDriver],
        stack: contextlib.ExitStack,
    ) -> None:
        self._opened = opened
        self._stack = stack
        self._has_files = True
        self._port: GpuPort | None = None
        self._nodes: DeviceNodes = DriverDeviceNodes()
        self._gpus: tuple[InventoryGpu, ...] = ()
        self._numa: Callable[[InventoryGpu], int | None] = lambda gpu: numa_node(gpu.pci)
        self._truths: dict[str, Truth] = {}
        self._slowest = 0.0
        self._why_not = said("not_opened")

    def open(self) -> Finding:
        """Loads the driver's library, and reads what there is."""
        try:
            driver = self._opened(self._stack)
        except GpuError as error:
            self._why_not = said("no_driver")
            return _not_opened(str(error))
        self._port, self._numa = driver.port, driver.numa
        self._has_files = driver.has_files
        return Finding("ok", driver.seen)

    def guarded(self, look: Callable[[], Finding]) -> Callable[[], Finding]:
        """Returns the same for a driver that may refuse, or not be there."""

        def guarded() -> Finding:
            if self._port is None:
                return Finding("unknown", self._why_not)
            try:
                return look()
            except (GpuError, *REFUSALS, OSError) as error:
                return Finding("fail", said("driver_error", error=error), said("fix_driver_error"))

        return guarded

    @property
    def port(self) -> GpuPort:
        """The open driver."""
        if self._port is None:
            raise GpuError("driver", str(self._why_not))
        return self._port

    def version(self) -> Finding:
        text = self.port.driver()
        major = _major(text)
        if major is None:
            return Finding("unknown", said("driver_version", text=f"{text!r}"), said("fix_driver_unknown"))
        if major < _OLDEST:
            return Finding("fail", said("driver_version", text=text), said("fix_driver_old", oldest=_OLDEST))
        do = said("fix_suspend", suspends=_SUSPENDS)
        return found(good=major >= _SUSPENDS, seen=said("driver_version", text=text), do=do)

    def pids(self) -> Finding:
        text = self.port.driver()
        wrong = lists_scrambled(text)
        seen = said("wrong_pids", text=text) if wrong else said("pids_believed")
        do = said("fix_wrong_pids")
        return found(good=not wrong, seen=seen, do=do)

    def gpus(self) -> Finding:
        self._gpus = self.port.inventory()
        if not self._gpus:
            return Finding("fail", said("no_gpu"), said("fix_modules"))
        kinds = Counter(f"{gpu.name} {gpu.memory_mb} MiB" for gpu in self._gpus)
        seen = said("gpus", gpus=", ".join(f"{count} × {kind}" for kind, count in kinds.items()))
        count = attempt(pynvml.nvmlDeviceGetCount)
        do = said("fix_gpus_missing", count=count)
        return found(good=count == len(self._gpus), seen=seen, do=do, otherwise="fail")

    def truths(self) -> Finding:
        problems = []
        for gpu in self._gpus:
            began = time.monotonic()
            try:
                self._truths[gpu.uuid] = self.port.truth(gpu.uuid)
            except GpuError as error:
                problems.append(f"{gpu.uuid}: {error}")
            self._slowest = max(self._slowest, time.monotonic() - began)
        seen = (
            said("each", gpus="; ".join(problems))
            if problems
            else said("gpus_reported", truths=len(self._truths))
        )
        return found(good=not problems, seen=seen, do=said("fix_reset_or_drain"), otherwise="fail")

    def speed(self) -> Finding:
        seen = said("slowest", ms=f"{self._slowest * 1000:.0f}")
        do = said("fix_slow")
        return found(good=self._slowest < _SLOW_S, seen=seen, do=do)

    def holders(self) -> Finding:
        return self._each(
            lambda _, truth: ", ".join(truth.holders) or _count(truth),
            said("fix_holders"),
            said("no_holders"),
        )

    def residue(self) -> Finding:
        return self._each(
            lambda _, truth: f"{truth.residue_mb} MiB" if truth.residue_mb else "",
            said("fix_residue"),
            said("residue_none"),
        )

    def modes(self) -> Finding:
        modes = ", ".join(sorted({truth.mode for truth in self._truths.values()}))
        return self._each(
            lambda _, truth: f"{truth.mode}, {truth.pending} after a reset" if truth.pending else "",
            said("fix_mode"),
            said("modes", modes=modes) if modes else said("modes_none"),
        )

    def profiles(self) -> Finding:
        able = [gpu for gpu in self._gpus if gpu.mig_capable]
        empty = [gpu.uuid for gpu in able if not gpu.placements]
        seen = (
            said("each", gpus=", ".join(empty))
            if empty
            else said("sliceable", able=len(able), gpus=len(self._gpus))
        )
        do = said("fix_profiles")
        return found(good=not empty, seen=seen, do=do)

    def fabric(self) -> Finding:
        domains = {gpu.nvlink_domain for gpu in self._gpus if gpu.nvlink_domain is not None}
        return self._each(
            lambda _, truth: truth.unready or "",
            said("fix_fabric"),
            said("domains", domains=len(domains)),
        )

    def numa(self) -> Finding:
        return self._each(
            lambda gpu, _: "unknown" if self._numa(gpu) is None else "",
            said("fix_numa"),
            said("numa", nodes=", ".join(sorted({str(self._numa(gpu)) for gpu in self._gpus}))),
            "unknown",
        )

    def persistence(self) -> Finding:
        modes = [attempt(pynvml.nvmlDeviceGetPersistenceMode, handle) for handle in self._handles()]
        if None in modes or not modes:
            return Finding("unknown", said("not_reported"), said("fix_persistence_unknown"))
        return found(
            good=all(modes),
            seen=said("persistence_on", on=sum(modes), modes=len(modes)),
            do=said("fix_persistence"),
        )

    def _handles(self) -> list[ctypes.c_void_p]:
        found_ = (attempt(pynvml.nvmlDeviceGetHandleByUUID, gpu.uuid) for gpu in self._gpus)
        return [handle for handle in found_ if handle is not None]

    def measures(self) -> Finding:
        missing: set[str] = set()
        for gpu in self._gpus:
            reading = self.port.readings(gpu.uuid)[0]
            names = ("utilisation", "memory_used_mb", "power_mw", "temperature_c")
            missing |= {name for name in names if getattr(reading, name) is None}
        seen = said("readings_missing", names=", ".join(sorted(missing))) if missing else said("readings")
        return found(good=not missing, seen=seen, do=said("fix_readings"))

    def events(self) -> Finding:
        watch = NvmlWatch(lambda _: None)
        try:
            errors = watch.errors()
        finally:
            watch.close()
        texts = ", ".join(f"{each.kind} {each.code} on {each.gpu}" for each in errors)
        seen = said("errors", errors=texts) if texts else said("errors_none")
        return found(good=not errors, seen=seen, do=said("fix_driver_errors"))

    def files(self) -> Finding:
        if not self._has_files:
            return Finding("unknown", said("simulated_files"))
        paths = [path for gpu in self._gpus for path in self._nodes.of(gpu.uuid)]
        paths += self._nodes.common()
        missing = [path for path in paths if not Path(path).exists()]
        if missing:
            do = said("fix_files")
            return Finding("fail", said("files_missing", paths=", ".join(missing)), do)
        open_ = [path for path in paths if Path(path).stat().st_mode & 0o006]
        seen = said("files", paths=len(paths), open=len(open_))
        return found(good=not open_, seen=seen, do=said("fix_files_open"))

    def _each(
        self,
        text_of: Callable[[InventoryGpu, Truth], str],
        do: Said,
        good: Said,
        otherwise: State = "warn",
    ) -> Finding:
        """Returns what is wrong with which GPU, else `good`."""
        known = [(gpu, self._truths[gpu.uuid]) for gpu in self._gpus if gpu.uuid in self._truths]
        if not known:
            return Finding("unknown", said("no_gpu_state"))
        found_ = [f"{gpu.uuid}: {text}" for gpu, truth in known if (text := text_of(gpu, truth))]
        seen = said("each", gpus="; ".join(found_)) if found_ else good
        return found(good=not found_, seen=seen, do=do, otherwise=otherwise)


def _count(truth: Truth) -> str:
    if truth.processes is None:
        return "unknown"
    if truth.processes == 1:
        return "1 program"
    return f"{truth.processes} programs" if truth.processes else ""


def _major(version: str) -> int | None:
    match = re.match(r"\d+", version)
    return int(match[0]) if match else None


def _not_opened(why: str, devices: Path = Path("/sys/bus/pci/devices")) -> Finding:
    """Without a GPU that is no fault; with one, it is."""
    if Path("/proc/driver/nvidia/version").exists():
        do = said("fix_versions")
        return Finding("fail", said("driver_error", error=why), do)
    there = [path.parent.name for path in devices.glob("*/vendor") if _is_gpu(path.parent)]
    if there:
        seen = said("gpus_without_driver", why=why, gpus=", ".join(sorted(there)))
        return Finding("fail", seen, said("fix_install_driver"))
    return Finding("unknown", said("no_nvidia_gpu", why=why), said("fix_simulate"))


def _is_gpu(device: Path) -> bool:
    class_ = (device / "class").read_text()
    return (device / "vendor").read_text().strip() == _NVIDIA and class_.startswith("0x03")


def _never(pid: int, *, force: bool) -> None:
    raise AssertionError(f"doctor ends no program, and was asked to end {pid} (force={force})")


_LIST = "device files"


def list_checks(path: Path) -> list[Check]:
    """Returns the checks in the order of the report."""
    examination = ListExamination(path)
    return [
        Check("device list", examination.read, _LIST),
        Check("device files", examination.files, _LIST),
        Check("programs on devices", examination.holders, _LIST),
    ]


@dataclasses.dataclass(slots=True)
class ListExamination:
    """One list while it is examined."""

    path: Path
    devices: tuple[ListedDevice, ...] = ()

    def read(self) -> Finding:
        """Reads the list."""
        try:
            self.devices = devices_read(self.path)
        except (OSError, ValueError) as error:
            return Finding("fail", said("device_list_wrong", error=error), said("fix_device_list"))
        names = ", ".join(f"{device.name} ({device.id})" for device in self.devices)
        return Finding("ok", said("device_list", devices=names))

    def files(self) -> Finding:
        """Whether all files are there, and who may open them."""
        paths = [file for device in self.devices for file in device.files]
        if not paths:
            return Finding("unknown", said("device_list_unread"))
        missing = [path for path in paths if not is_device(path)]
        if missing:
            seen = said("files_missing", paths=", ".join(missing))
            return Finding("fail", seen, said("fix_device_list_files"))
        open_ = [path for path in paths if Path(path).stat().st_mode & 0o006]
        seen = said("files", paths=len(paths), open=len(open_))
        return found(good=not open_, seen=seen, do=said("fix_files_open"))

    def holders(self) -> Finding:
        """Which programs have the files open now."""
        paths = frozenset(file for device in self.devices for file in device.files)
        if not paths:
            return Finding("unknown", said("device_list_unread"))
        openers = HostOpenFiles(paths=paths).openers()
        if openers.hidden:
            return Finding(
                "fail", said("device_list_hidden", count=len(openers.hidden)), said("fix_identity")
            )
        there = [f"{path}: {each}" for path in sorted(paths) for each in sorted(openers.of(path))]
        seen = said("each", gpus="; ".join(there)) if there else said("no_holders")
        return found(good=not there, seen=seen, do=said("fix_holders"))
