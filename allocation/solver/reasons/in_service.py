"""What lacks nothing but hardware that is out of service waits for it, and is not refused."""

from collections.abc import Iterable

import numpy as np

from allocation.reasons.reason import Reason, reason
from allocation.solver.fleet.pool import Pool
from allocation.solver.placement.gang import Demand
from allocation.solver.state.working import Working


def out_of_service(working: Working, demands: Iterable[Demand], first: int) -> Reason | None:
    """Why no start from `first` on can be planned: too few of a class are in service, though the
    fleet has enough of them. None: something else is in the way.

    Broken, drained and quarantined GPUs count, and those in maintenance that outlasts the horizon.
    """
    found = (_short(working, demand, first) for demand in demands)
    return next(filter(None, found), None)


def _short(working: Working, demand: Demand, first: int) -> Reason | None:
    pool = working.pools[demand.gpu_class]
    away = working.maintenance.outlasting(
        demand.gpu_class, first + demand.duration, working.now + working.policy.horizon
    )
    if _most(pool, demand, away) >= demand.count:
        return None
    suits = pool.suits(demand.shape)
    out = sum(
        bool(suits[column]) and (not pool.usable[column] or gpu.id in away)
        for column, gpu in enumerate(pool.gpus)
    )
    is_known = _most(pool, demand, ()) >= demand.count
    return reason(
        "none_in_service",
        max(away.values()) if is_known else None,
        out=out,
        gpus=len(pool),
        gpu_class=demand.gpu_class,
    )


def _most(pool: Pool, demand: Demand, away: Iterable[str]) -> int:
    """The most of the want that one group could have with these gone, were nothing taken."""
    able = pool.eligible(demand.shape).copy()
    able[[pool.column[gpu] for gpu in away]] = False
    capacity = pool.capacity_on(demand.shape, np.zeros(len(pool), dtype=np.uint16), able)
    return int(pool.sums(demand.level, capacity).max())
