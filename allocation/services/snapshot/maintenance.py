"""What a snapshot says of planned maintenance: GPU by GPU."""

from collections.abc import Sequence
from datetime import datetime

from allocation.models import Gpu, Maintenance
from allocation.queries.fleet.maintenance import maintenance_by_gpu, maintenance_open
from allocation.solver import Maintenance as SolverBlackout


def maintenance_read(now: datetime) -> tuple[SolverBlackout, ...]:
    """Maintenance that runs or is planned; everybody may know of it."""
    return maintenance_rows(maintenance_open(now))


def maintenance_rows(blackouts: Sequence[Maintenance]) -> tuple[SolverBlackout, ...]:
    """The same for blackouts that need not be saved."""
    gpus = Gpu.objects.select_related("node").only("node__rack") if blackouts else ()
    return tuple(
        SolverBlackout(
            gpu=str(gpu.id),
            starts=int(blackout.starts.timestamp()),
            ends=int(blackout.ends.timestamp()),
        )
        for gpu, blackout in maintenance_by_gpu(blackouts, gpus)
    )
