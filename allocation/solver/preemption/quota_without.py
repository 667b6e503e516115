"""Quota once some running bookings have left."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from allocation.solver.model.demand import Demand
from allocation.solver.quota.quota import Block
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.running import RunningBooking

_FEW = 8
"""From so many on, all are added to the quota at once."""


def is_allowed_without(
    state: CycleState, demand: Demand, starts: int, gone: Sequence[RunningBooking]
) -> bool:
    """True when nothing forbids the demand from `starts` on once these have left."""
    with _without(state, gone, starts):
        return state.over(demand, starts) is None


def may_lift(
    state: CycleState,
    block: Block,
    demand: Demand,
    starts: int,
    runners: Iterable[RunningBooking],
) -> bool:
    """False when a pause of these certainly leaves the block: only work of the own tenant counts
    against its guarantee, and against limits of it and of those inside it."""
    if block.kind == "lent":
        return True
    own = [each for each in runners if each.tenant == demand.owners[0]]
    if not own:
        return False
    with _without(state, own, starts):
        after = state.over(demand, starts)
    return after is None or after.kind == "lent"


@contextmanager
def _without(state: CycleState, gone: Sequence[RunningBooking], starts: int) -> Iterator[None]:
    """Quota without these bookings from `starts` on."""
    running, quota = state.running, state.quota
    windows = [(each.use, (starts, running.leaves(each))) for each in gone]
    windows = [each for each in windows if each[1][0] < each[1][1]]
    if len(windows) < _FEW:
        for use, window in windows:
            quota.add(use, window, -1)
    else:
        quota.add_all((use._replace(units=-use.units), window) for use, window in windows)
    yield
    if len(windows) < _FEW:
        for use, window in windows:
            quota.add(use, window)
    else:
        quota.add_all(windows)
