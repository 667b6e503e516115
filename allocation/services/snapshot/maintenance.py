"""What a snapshot says of planned maintenance: GPU by GPU."""

from collections.abc import Sequence
from datetime import datetime

from allocation.models import Blackout, Gpu
from allocation.queries.fleet.maintenance import blackouts_by_gpu, blackouts_open
from allocation.solver import Blackout as SolverBlackout


def blackouts_read(now: datetime) -> tuple[SolverBlackout, ...]:
    """Maintenance that runs or is planned; everybody may know of it."""
    return blackouts_laid(blackouts_open(now))


def blackouts_laid(blackouts: Sequence[Blackout]) -> tuple[SolverBlackout, ...]:
    """The same for blackouts that need not be saved."""
    gpus = Gpu.objects.select_related("node").only("node__rack") if blackouts else ()
    return tuple(
        SolverBlackout(
            gpu=str(gpu.id),
            starts=int(blackout.starts.timestamp()),
            ends=int(blackout.ends.timestamp()),
        )
        for gpu, blackout in blackouts_by_gpu(blackouts, gpus)
    )
