"""The GPU port over amdsmi, for real and simulated GPUs of AMD.

A GPU is whole, or stands in the partition that its node offers. Then all of its partitions exist at once: one
that was not made for an allocation and has no program on it counts as not there.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Concatenate, ParamSpec, TypeVar

from agent.amd.library import attempt, refused
from agent.amd.measure import memory_total_mb, memory_used_mb, part_reading, whole_reading
from agent.amd.partitions import count_of, place_of, placements_of, profile_name
from agent.amd.processors import WHOLE, FoundGpu, Processors
from agent.host.open_files import Opener, OpenFiles
from agent.ports.gpu import FoundInstance, GpuError, Place, Reading, Truth
from wire import InventoryGpu, Mode, Peer

RESIDUE_MB = 1024
"""More memory in use without a program is somebody's: the driver's own part is a few hundred MiB."""

P = ParamSpec("P")
T = TypeVar("T")


def alone(
    call: "Callable[Concatenate[AmdGpu, P], T]",
) -> "Callable[Concatenate[AmdGpu, P], T]":
    """Makes one call at a time: a change of partitions opens the library anew under all others."""

    @functools.wraps(call)
    def locked(port: "AmdGpu", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with port.processors.lock:
            try:
                return call(port, *args, **kwargs)
            except port.processors.smi.AmdSmiException as error:
                raise refused(error, call.__name__.replace("_", " ")) from error

    return locked


class AmdGpu:
    """See gpu.GpuPort. `partition` is the kind of slices that this node offers, `spx` for none.
    `signal_process(pid, force=)` ends a process of this node, `files` looks at who has device files open."""

    def __init__(
        self,
        processors: Processors,
        partition: str,
        signal_process: Callable[..., None],
        files: OpenFiles,
    ) -> None:
        self.processors = processors
        self._smi = processors.smi
        self._partition = partition
        self._signal_process = signal_process
        self._files = files
        self._made: dict[str, set[int]] = defaultdict(set)

    def close(self) -> None:
        """Closes the library."""
        self.processors.close()

    @alone
    def driver(self) -> str:
        """Returns the version of AMD's driver."""
        found = self.processors.all()
        info = attempt(self._smi, self._smi.amdsmi_get_gpu_driver_info, found[0].first) if found else None
        return f"amdgpu {info['driver_version']}" if info else "amdgpu unknown"

    @alone
    def inventory(self) -> tuple[InventoryGpu, ...]:
        """Returns all GPUs. The name says which slices there are: one board is several models by them."""
        # What was lost may be back.
        self.processors.scan()
        found = self.processors.all()
        linked = {gpu.index: self._linked(gpu, found) for gpu in found}
        return tuple(self._inventory_gpu(gpu, linked[gpu.index]) for gpu in found)

    def _inventory_gpu(self, gpu: FoundGpu, linked: tuple[int, ...]) -> InventoryGpu:
        name = str(self._smi.amdsmi_get_gpu_asic_info(gpu.first)["market_name"])
        memory_mb = memory_total_mb(self._smi, gpu)
        count = count_of(self._smi, gpu, self._partition)
        placements = placements_of(self._partition, count, memory_mb) if count else ()
        return InventoryGpu(
            index=gpu.index,
            uuid=gpu.uuid,
            name=f"{name} ({self._partition.upper()})" if placements else name,
            memory_mb=memory_mb,
            mig_capable=bool(placements),
            mode=_mode(gpu),
            numa=None,  # from the host: see inventory_take
            pci=gpu.pci,
            nvlink_domain=min((gpu.index, *linked)) if linked else None,
            placements=placements,
            peers=tuple(Peer(index=index, nvlinks=1, path=None) for index in linked),
        )

    def _linked(self, gpu: FoundGpu, others: Collection[FoundGpu]) -> tuple[int, ...]:
        """Returns the GPUs with an XGMI link to this one; on a platform each has one to all others."""
        xgmi = self._smi.AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI
        found = []
        for other in others:
            if other is not gpu:
                link = attempt(self._smi, self._smi.amdsmi_topo_get_link_type, gpu.first, other.first)
                if link is not None and link["type"] == xgmi:
                    found.append(other.index)
        return tuple(found)

    @alone
    def truth(self, gpu: str) -> Truth:
        """Returns what stands and runs on a GPU."""
        found = self.processors.gpu(gpu)
        # A GPU that does not answer is lost, and proves nothing.
        memory_used_mb(self._smi, found)
        # Another program may have changed the partition since the last look.
        now = attempt(self._smi, self._smi.amdsmi_get_gpu_compute_partition, found.first)
        if now and str(now).upper() not in (found.partition, "N/A"):
            self._scan(gpu)
            found = self.processors.gpu(gpu)
        if found.partition != WHOLE:
            return Truth(uuid=gpu, mode="sliced", instances=self._instances(found))
        there, count = self._programs(found, None)
        used = memory_used_mb(self._smi, found) if count == 0 else 0
        return Truth(
            uuid=gpu,
            mode="whole",
            processes=count,
            holders=tuple(str(each) for each in there),
            residue_mb=used if used > RESIDUE_MB else 0,
        )

    def _instances(self, gpu: FoundGpu) -> tuple[FoundInstance, ...]:
        count = len(gpu.parts)
        profile = profile_name(gpu.partition, count, memory_total_mb(self._smi, gpu))
        programs = [self._programs(gpu, part)[1] for part in range(count)]
        return tuple(
            FoundInstance(part, place_of(part, count), profile, gpu.device(part), programs[part])
            for part in range(count)
            if programs[part] != 0 or part in self._made[gpu.uuid]
        )

    def _programs(self, gpu: FoundGpu, part: int | None) -> tuple[list[Opener], int | None]:
        """Returns the programs on a GPU or partition, and how many; None where that can't be known. What the
        driver lists counts for whole GPUs only: whether it divides programs by partitions is not known."""
        openers = self._files.openers()
        parts = gpu.parts if part is None else (gpu.parts[part],)
        seen = frozenset[Opener]().union(*(openers.of(each.render) for each in parts))
        there = {each.pid: each for each in seen if not each.service}
        services = {each.pid for each in seen if each.service}
        if part is None:
            listed = attempt(self._smi, self._smi.amdsmi_get_gpu_process_list, gpu.first) or ()
            pids = {int(each["pid"]) for each in listed} - services
            there |= {pid: Opener(pid) for pid in pids if pid > 1 and pid not in there}
        # Nobody seen proves nothing where the files of some programs can't be read.
        count = None if openers.hidden and not there else len(there)
        return sorted(there.values()), count

    @alone
    def set_mode(self, gpu: str, mode: Mode) -> None:
        """Changes the compute partition of an empty GPU, and reads it back."""
        wanted = WHOLE if mode == "whole" else self._partition.upper()
        found = self.processors.gpu(gpu)
        if mode == "sliced" and wanted == WHOLE:
            raise GpuError("unsupported", "this node gives its GPUs of AMD whole: see --amd")
        there, count = self._programs(found, None)
        if count != 0:
            who = ", ".join(str(each) for each in there) or "files that can't be read"
            raise GpuError("in_use", f"switching to {wanted}: a process still uses it: {who}")
        kind = getattr(self._smi.AmdSmiComputePartitionType, wanted)
        try:
            self._smi.amdsmi_set_gpu_compute_partition(found.first, kind)
        finally:
            self._scan(gpu)
        if self.processors.gpu(gpu).partition != wanted:
            text = f"switching to {wanted}: it still is {self.processors.gpu(gpu).partition}"
            raise GpuError("reset_required", text)

    def _scan(self, gpu: str) -> None:
        self._made.pop(gpu, None)
        self.processors.scan()

    @alone
    def create(self, gpu: str, place: Place) -> None:
        """Takes a partition into use; a GPU in another kind of partition is changed first."""
        if self.processors.gpu(gpu).partition != self._partition.upper():
            self.set_mode(gpu, "sliced")
        count = len(self.processors.gpu(gpu).parts)
        part = next((part for part in range(count) if place_of(part, count) == place), None)
        if part is None:
            raise GpuError("invalid", f"making the slice: {self._partition.upper()} has no such place")
        self._made[gpu].add(part)

    @alone
    def destroy(self, gpu: str, instance: int) -> None:
        """Takes a partition out of use. It stays until the GPU is whole again."""
        found = self.processors.gpu(gpu)
        if instance < len(found.parts) and self._programs(found, instance)[1] != 0:
            raise GpuError("in_use", "taking the slice away: a process still uses it")
        self._made[gpu].discard(instance)

    @alone
    def pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        """Returns the programs on a GPU or partition."""
        found = self.processors.gpu(gpu)
        if instance is not None and instance >= len(found.parts):
            return ()
        return tuple(each.pid for each in self._programs(found, instance)[0])

    def end_processes(
        self, gpu: str, instance: int | None, *, force: bool, only: Collection[int] | None = None
    ) -> None:
        """Asks those programs to end, or kills them."""
        for pid in self.pids(gpu, instance):
            if only is None or pid in only:
                self._signal_process(pid, force=force)

    @alone
    def readings(self, gpu: str) -> tuple[Reading, ...]:
        """Returns the readings of the GPU, then of its partitions that are in use."""
        truth = self.truth(gpu)
        found = self.processors.gpu(gpu)
        parts = [part_reading(self._smi, found, each) for each in truth.instances]
        return (whole_reading(self._smi, found, truth), *parts)


def _mode(gpu: FoundGpu) -> Mode:
    return "whole" if gpu.partition == WHOLE else "sliced"
