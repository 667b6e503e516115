"""The checks of `doctor` that ask AMD's library. They only read."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from agent.amd.gpu import AmdGpu
from agent.amd.library import Smi, attempt
from agent.amd.partitions import count_of
from agent.amd.processors import COMMON, WHOLE, Processors
from agent.doctor.checks import LIMIT_S, Check, Finding, found, said
from agent.host.open_files import AMD_FILE, HostOpenFiles
from agent.ports.gpu import GpuError
from wire import InventoryGpu

_ASKS = "AMD's driver"
_OPEN_S = 8.0
_ONE_MEMORY = "NPS1"
"""The memory partition in which a GPU can stand in every compute partition."""


def amd_checks(
    load: Callable[[], Smi], partition: str, stack: contextlib.ExitStack, *, has_files: bool = True
) -> list[Check]:
    """Returns the checks in the order of the report; the library is open until `stack` ends."""
    examination = AmdExamination(load, partition, stack, has_files)
    looks: list[tuple[str, Callable[[], Finding], float]] = [
        ("AMD's library", examination.open, _OPEN_S),
        ("AMD's GPUs", examination.gpus, LIMIT_S),
        ("partitions", examination.partitions, LIMIT_S),
        ("memory partition", examination.memory, LIMIT_S),
        ("programs on GPUs", examination.holders, LIMIT_S),
        ("measurements", examination.measures, LIMIT_S),
        ("device files", examination.files, LIMIT_S),
    ]
    late = said("fix_driver_hangs")
    return [Check(name, examination.guarded(look), _ASKS, limit, late) for name, look, limit in looks]


@dataclasses.dataclass(slots=True)
class AmdExamination:
    """The library of one node while it is examined."""

    load: Callable[[], Smi]
    partition: str
    stack: contextlib.ExitStack
    has_files: bool
    port: AmdGpu | None = None
    found: tuple[InventoryGpu, ...] = ()

    def guarded(self, look: Callable[[], Finding]) -> Callable[[], Finding]:
        """Returns the same for a library that is not there, or refuses."""

        def guarded() -> Finding:
            try:
                return look()
            except GpuError as error:
                return Finding("fail", said("driver_error", error=error), said("fix_amd"))

        return guarded

    def open(self) -> Finding:
        """Loads the library, and asks for the driver's version."""
        files = HostOpenFiles(pattern=AMD_FILE)
        port = AmdGpu(Processors(self.load()), self.partition, _never, files)
        self.stack.callback(port.close)
        self.port = port
        return Finding("ok", said("driver_version", text=port.driver()))

    def gpus(self) -> Finding:
        """Which GPUs there are."""
        if self.port is None:
            return _unopened()
        self.found = self.port.inventory()
        kinds = Counter(f"{gpu.name} {gpu.memory_mb} MiB" for gpu in self.found)
        if not kinds:
            return Finding("fail", said("no_gpu"), said("fix_amd"))
        return Finding(
            "ok", said("gpus", gpus=", ".join(f"{count} × {kind}" for kind, count in kinds.items()))
        )

    def partitions(self) -> Finding:
        """Whether the GPUs can have the slices that the node is to offer."""
        if self.port is None:
            return _unopened()
        modes = ", ".join(sorted({gpu.partition for gpu in self.port.processors.all()}))
        seen = said("amd_partitions", modes=modes, wanted=self.partition.upper())
        smi, gpus = self.port.processors.smi, self.port.processors.all()
        able = [count_of(smi, gpu, self.partition) > 0 for gpu in gpus]
        good = self.partition.upper() == WHOLE or all(able)
        return found(good=good, seen=seen, do=said("fix_amd_partitions"), otherwise="fail")

    def memory(self) -> Finding:
        """Whether the memory partition lets GPUs change between whole and partitions."""
        if self.port is None:
            return _unopened()
        smi, gpus = self.port.processors.smi, self.port.processors.all()
        asked = (attempt(smi, smi.amdsmi_get_gpu_memory_partition, gpu.first) for gpu in gpus)
        kinds = {str(each) for each in asked if each}
        if not kinds:
            return Finding("unknown", said("not_reported"))
        good = self.partition.upper() == WHOLE or kinds == {_ONE_MEMORY}
        seen = said("amd_memory", kinds=", ".join(sorted(kinds)))
        return found(good=good, seen=seen, do=said("fix_amd_memory"))

    def holders(self) -> Finding:
        """Which programs are on GPUs now."""
        if self.port is None:
            return _unopened()
        truths = [self.port.truth(gpu.uuid) for gpu in self.found]
        there = [f"{each.uuid}: {', '.join(each.holders)}" for each in truths if each.holders]
        if any(count is None for each in truths for _, count in each.spots()):
            return Finding("fail", said("amd_hidden"), said("fix_identity"))
        seen = said("each", gpus="; ".join(there)) if there else said("no_holders")
        return found(good=not there, seen=seen, do=said("fix_holders"))

    def measures(self) -> Finding:
        """What of the use can be measured."""
        if self.port is None:
            return _unopened()
        names = ("utilisation", "memory_used_mb", "power_mw", "temperature_c", "energy_mj")
        readings = [self.port.readings(gpu.uuid)[0] for gpu in self.found if gpu.mode == "whole"]
        missing = {name for each in readings for name in names if getattr(each, name) is None}
        seen = said("readings_missing", names=", ".join(sorted(missing))) if missing else said("readings")
        return found(good=not missing, seen=seen, do=said("fix_amd_readings"))

    def files(self) -> Finding:
        """Whether all device files are there, and who may open those of GPUs."""
        if self.port is None:
            return _unopened()
        if not self.has_files:
            return Finding("unknown", said("simulated_files"))
        paths = [part.render for gpu in self.port.processors.all() for part in gpu.parts]
        missing = [path for path in (COMMON, *paths) if not Path(path).exists()]
        if missing:
            return Finding("fail", said("files_missing", paths=", ".join(missing)), said("fix_amd"))
        open_ = [path for path in paths if Path(path).stat().st_mode & 0o006]
        seen = said("files", paths=len(paths) + 1, open=len(open_))
        return found(good=not open_, seen=seen, do=said("fix_amd_files_open"))


def _unopened() -> Finding:
    return Finding("unknown", said("no_driver"))


def _never(pid: int, *, force: bool) -> None:
    raise AssertionError(f"doctor ends no program, and was asked to end {pid} (force={force})")
