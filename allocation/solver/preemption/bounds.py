"""Upper bounds on the room that pauses can make, shared by many claims.

Most claims find too little room whoever leaves. One look at a class and a start answers that for
all of them, whatever their length, so victims are chosen only where some choice may be enough.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.pool import Pool
from allocation.solver.model.demand import Demand
from allocation.solver.model.inputs import Together
from allocation.solver.preemption.victim_rules import VictimRules
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.running import RunningBooking

Runners = list[RunningBooking]


@dataclass(slots=True)
class _Known:
    """What is known of some claims and a start: the latest end for each level and count.

    `leaving` may leave, `until` is when each column is taken again; it was read at `frees` and
    `changes`.
    """

    frees: int
    changes: int
    leaving: Runners
    until: Ints
    ends: dict[tuple[Together, int], int]


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
        return all(bound(demand, starts) >= ends for bound in (self._for_tenant, self._for_claim))

    def _for_tenant(self, demand: Demand, starts: int) -> int:
        """The latest end of a window from `starts` on for any claim of the tenant."""
        name, tenant = demand.gpu_class, demand.owners[0]
        return self._latest_end(
            (name, tenant), demand, starts, lambda: self._rules.may_leave(name, tenant, starts)
        )

    def _for_claim(self, demand: Demand, starts: int) -> int:
        """The same for this claim; 0: nobody may leave for it."""
        claim = self._rules.claim(demand, starts)
        if claim is None:
            return 0
        rules = self._rules
        return self._latest_end(
            claim.block.use,
            demand,
            starts,
            lambda: [each.runner for each in rules.candidates(claim)],
        )

    def _latest_end(
        self, whose: object, demand: Demand, starts: int, leaving: Callable[[], Runners]
    ) -> int:
        known = self._read(whose, demand.gpu_class, starts, leaving)
        kind = (demand.level, demand.count)
        if kind not in known.ends:
            pool = self._state.pools[demand.gpu_class]
            known.ends[kind] = _latest_of(pool, known.until, *kind) if known.leaving else 0
        return known.ends[kind]

    def _read(
        self, whose: object, gpu_class: str, starts: int, leaving: Callable[[], Runners]
    ) -> _Known:
        frees, changes = self._state.frees.get(gpu_class, 0), self._state.running.changes
        known = self._known.get((whose, starts))
        if known is not None and (known.frees, known.changes) == (frees, changes):
            return known
        now = leaving()
        if known is not None and known.frees == frees and known.leaving == now:
            known.changes = changes
            return known
        until = self._free_until(gpu_class, now, starts)
        known = self._known[whose, starts] = _Known(frees, changes, now, until, {})
        return known

    def _free_until(self, gpu_class: str, leaving: Runners, starts: int) -> Ints:
        """For each column the second until which it can be free from `starts` on; 0: it can't."""
        state = self._state
        eligible = state.pools[gpu_class].eligible(None)
        until = np.where(eligible, state.firm.gpus[gpu_class].next_taken(starts), 0)
        until[until <= starts] = 0
        until[state.running.staying(gpu_class, leaving, starts).column] = 0
        return until


def _latest_of(pool: Pool, until: Ints, level: Together, count: int) -> int:
    """The latest second until which some group of the level has so many columns free."""
    if level == "any":
        return 0 if count > len(until) else int(np.partition(until, -count)[-count])
    best = 0
    order = np.lexsort((-until, pool.groups(level)))
    bounds = pool.bounds[level]
    sizes = np.diff(np.append(bounds, len(until)))
    large = bounds[sizes >= count]
    if len(large):
        # Sorted by group, the columns of a group begin where they did before.
        best = int(until[order[large + count - 1]].max())
    return best
