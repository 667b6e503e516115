"""Partitions of AMD's GPUs as slices. Those of a GPU are all alike, so a node offers one kind of them."""

from collections.abc import Sequence

from agent.amd.library import Smi, attempt
from agent.amd.processors import WHOLE, FoundGpu
from agent.ports.gpu import Place
from wire import Placement

PARTITIONS = ("spx", "dpx", "tpx", "qpx", "cpx")
"""Compute partitions, from the whole GPU to one partition for each of its compute dies."""
_SLOTS = (8, 6)


def slots_of(count: int) -> int:
    """Returns the slots of a GPU that divides into so many partitions: eight, as for slices of other makers,
    or six on GPUs with six compute dies."""
    return next((slots for slots in _SLOTS if slots % count == 0), count)


def place_of(part: int, count: int) -> Place:
    """Returns where a partition is on its GPU; the number of partitions stands for a profile's id."""
    size = slots_of(count) // count
    return Place(count, part * size, size)


def profile_name(partition: str, count: int, memory_mb: int) -> str:
    """Returns for example `cpx.24gb`."""
    return f"{partition.lower()}.{max(1, round(memory_mb / count / 1024))}gb"


def placements_of(partition: str, count: int, memory_mb: int) -> tuple[Placement, ...]:
    """Returns the places of all partitions of a GPU."""
    places = [place_of(part, count) for part in range(count)]
    profile = profile_name(partition, count, memory_mb)
    return tuple(
        Placement(
            profile=profile,
            profile_id=place.profile_id,
            start=place.slot,
            size=place.size,
            compute=place.size,
            max=count,
        )
        for place in places
    )


def count_of(smi: Smi, gpu: FoundGpu, partition: str) -> int:
    """Returns how many partitions of this kind the GPU can have; 0: it has no such kind."""
    wanted = partition.upper()
    if wanted == WHOLE:
        return 0
    if gpu.partition == wanted:
        return len(gpu.parts)
    config = attempt(smi, smi.amdsmi_get_gpu_accelerator_partition_profile_config, gpu.first) or {}
    profiles: Sequence[dict[str, object]] = config.get("profiles", ())
    counts = (each.get("num_partitions") for each in profiles if each.get("profile_type") == wanted)
    return next((count for count in counts if isinstance(count, int) and count > 1), 0)
