"""What pauses make room for: upper bounds on GPUs, and the quota once bookings have left.

Most claims find too little room, whichever bookings leave. One look at a class and a start
answers that for all of them, whatever their length, so victims are chosen only where some
choice may be enough.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.pool import Index
from allocation.solver.model.demand import Demand
from allocation.solver.preemption.victim_rules import VictimRules
from allocation.solver.quota.quota import Block
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.running import RunningBooking

Runners = list[RunningBooking]
Window = tuple[int, int]
_FEW = 8
"""From so many on, all are added to the quota at once."""


@dataclass(slots=True)
class _Known:
    """What is known of some claims and a start.

    `leaving` may leave, those in the columns `stays` do not, `until` is when each column is taken
    again; it was read at `frees` and `changes`.
    """

    frees: int
    changes: int
    leaving: Runners
    stays: Index
    until: Ints


class RoomAfterPauses:
    """Until when whole GPUs can be free for a claim, if all leave that may leave for it.

    One bound is for all claims of a tenant. The other is for claims of the same owners, tier and
    units, of which fewer may leave for most. What is known stays true while room only gets less, so
    it is read anew only once something has been freed or somebody's standing has changed.
    """

    def __init__(self, state: CycleState, rules: VictimRules) -> None:
        self._state, self._rules = state, rules
        self._known: dict[tuple[object, int], _Known] = {}

    def may_be_enough(self, demand: Demand, starts: int, ends: int) -> bool:
        """False when certainly no window of the demand from `starts` to `ends` has room.

        Only whole GPUs are examined: hosts, modes, pins and quota can only forbid more.
        """
        if demand.shape is not None:
            return True
        bounds = (self._for_tenant, self._for_claim)
        return all(is_enough(demand, starts, ends) for is_enough in bounds)

    def _for_tenant(self, demand: Demand, starts: int, ends: int) -> bool:
        """False when no claim of the tenant has room."""
        name, tenant = demand.gpu_class, demand.owners[0]
        return self._is_enough(
            (name, tenant), demand, (starts, ends),
            lambda: self._rules.may_leave(name, tenant, starts),
        )  # fmt: skip

    def _for_claim(self, demand: Demand, starts: int, ends: int) -> bool:
        """The same for this claim."""
        claim = self._rules.claim(demand, starts)
        if claim is None:
            return False
        rules = self._rules
        return self._is_enough(
            claim.block.use, demand, (starts, ends),
            lambda: [each.runner for each in rules.candidates(claim)],
        )  # fmt: skip

    def _is_enough(
        self, whose: object, demand: Demand, window: Window, leaving: Callable[[], Runners]
    ) -> bool:
        """True when enough columns can be free in the window, in one group of the level."""
        known = self._read(whose, demand.gpu_class, window[0], leaving)
        if not known.leaving:
            return False
        free = known.until >= window[1]
        if np.count_nonzero(free) < demand.count:
            return False
        if demand.level == "any":
            return True
        bounds = self._state.pools[demand.gpu_class].bounds[demand.level]
        return int(np.add.reduceat(free.astype(np.int64), bounds).max()) >= demand.count

    def _read(
        self, whose: object, gpu_class: str, starts: int, leaving: Callable[[], Runners]
    ) -> _Known:
        frees = self._state.frees.get(gpu_class, 0)
        changes = self._state.running.changes(gpu_class)
        known = self._known.get((whose, starts))
        if known is None:
            now = leaving()
            stays = self._stays(gpu_class, now, starts)
            until = self._free_until(gpu_class, stays, starts)
            known = self._known[whose, starts] = _Known(frees, changes, now, stays, until)
            return known
        is_true = known.frees == frees
        if known.changes != changes:
            # Only then may others leave, or somebody leave at another second.
            now, known.changes = leaving(), changes
            if not is_true or known.leaving != now:
                known.leaving, is_true = now, False
                known.stays = self._stays(gpu_class, now, starts)
        if not is_true:
            known.frees, known.until = frees, self._free_until(gpu_class, known.stays, starts)
        return known

    def _stays(self, gpu_class: str, leaving: Runners, starts: int) -> Index:
        """The columns that running work still uses then."""
        return self._state.running.staying(gpu_class, leaving, starts).column

    def _free_until(self, gpu_class: str, stays: Index, starts: int) -> Ints:
        """For each column the second until which it can be free from `starts` on; 0: it can't."""
        state = self._state
        eligible = state.pools[gpu_class].eligible(None)
        until = np.where(eligible, state.firm.gpus[gpu_class].next_taken(starts), 0)
        until[until <= starts] = 0
        until[stays] = 0
        return until


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
    gone = [each for each in gone if starts < running.leaves(each)]
    windows = [(each.use, (starts, running.leaves(each))) for each in gone]
    is_one_by_one = len(windows) < _FEW or quota.has_hours
    if is_one_by_one:
        for each, (use, window) in zip(gone, windows, strict=True):
            quota.add(use, window, -1, each.until)
    else:
        quota.add_all((use._replace(units=-use.units), window) for use, window in windows)
    yield
    if is_one_by_one:
        for each, (use, window) in zip(gone, windows, strict=True):
            quota.add(use, window, 1, each.until)
    else:
        quota.add_all(windows)
