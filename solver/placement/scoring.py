"""Where one more device goes: the score of `fragmentation`, applied to a pool and its nodes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solver.fleet.fragmentation import ILLEGAL, Ints, NodeState, mismatch
from solver.fleet.mig_geometry import (
    SHARE_STATES,
    SHARED,
    WHOLE_MASK,
    WHOLE_SHARE,
    Masks,
    share_states,
)
from solver.fleet.pool import Bools, Counts, Index, Pool
from solver.model.demand import Demand
from solver.model.inputs import Place
from solver.timeline.host_calendar import Free

SWITCH_COST = 1 << 40
"""Loss for a GPU that changes its mode: more than any place's score."""


@dataclass(frozen=True, slots=True)
class CandidateCost:
    """What each candidate takes: `long_run` and `immediate` score, and idle GPUs of its node.

    `columns` are the candidates, `cores` and `units` the demand on each.
    """

    columns: Index
    long_run: Ints
    immediate: Ints
    breaks: Ints
    cores: int
    units: int


class PoolState:
    """A pool with one row of busy masks; sums are computed once."""

    def __init__(self, pool: Pool, busy: Masks, free: Free | None, switches: Bools | None = None) -> None:
        """`free` is one row of what the nodes have; None: hosts do not matter. `switches` are the
        columns that would have to change their mode first; None: modes do not matter."""
        self.pool = pool
        self.busy = busy
        self.free = free
        self.switches = switches
        self._bounds = pool.bounds["node"]

    def without_switches(self) -> "PoolState":
        """The same without the GPUs that would have to change their mode."""
        busy = self.busy.copy()
        busy[self.switches] = WHOLE_MASK
        return PoolState(self.pool, busy, self.free)

    def only(self, columns: Bools) -> "PoolState":
        """The same with no other columns than these."""
        busy = np.where(columns, self.busy, np.uint16(WHOLE_MASK))
        return PoolState(self.pool, busy, self.free, self.switches)

    @cached_property
    def states(self) -> Ints:
        """The masks as states of the score tables; a GPU out of service is full."""
        pool, found, shared = self.pool, self.busy.astype(np.int64), self.busy >= SHARED
        if shared.any():
            found = np.where(shared, pool.masks + share_states(self.busy), found)
        return found if pool.is_all_usable else np.where(pool.usable, found, WHOLE_MASK)

    def _at_states(self, table: Ints) -> Ints:
        """A table of (kinds × states) at the state of each column."""
        is_one = len(table) == 1
        found: Ints = table[0].take(self.states) if is_one else table[self.pool.value_kind, self.states]
        return found

    @cached_property
    def cores(self) -> Ints | None:
        """Free host cores of each node; None where no demand needs them."""
        return self.free.cores if self.free and self.pool.scores.needs_cores else None

    @cached_property
    def units_left(self) -> Ints:
        """Units that are not taken, by node."""
        found: Ints = np.add.reduceat(self._at_states(self.pool.units_left), self._bounds)
        return found

    @cached_property
    def _idle(self) -> Ints:
        """Idle GPUs by node."""
        idle = (self.states == 0) & self.pool.eligible(None)
        found: Ints = np.add.reduceat(idle, self._bounds, dtype=np.int64)
        return found

    @cached_property
    def _immediate(self) -> Ints:
        found: Ints = np.add.reduceat(self._at_states(self.pool.scores.immediate), self._bounds)
        return found

    def whole_losses(self, demand: Demand, columns: Index) -> Ints:
        """Score that `count` whole GPUs take from the groups of these idle columns."""
        kinds, scores = self.pool.value_kind[columns], self.pool.scores
        long_run = demand.count * (scores.long_run[:, 0] - scores.long_run[:, WHOLE_MASK])
        immediate = demand.count * (scores.immediate[:, 0] - scores.immediate[:, WHOLE_MASK])
        count = np.full(len(columns), demand.count)
        units = demand.count * self.pool.units(None)
        cores = demand.count * demand.cores
        return self._losses(CandidateCost(columns, long_run[kinds], immediate[kinds], count, cores, units))

    def share(self, demand: Demand, able: Index) -> tuple[list[Place], int]:
        """The cheapest place for a share among the columns that have room."""
        columns, share = self._openings(able), demand.share or 0
        states = self.states[columns]
        kinds, scores = self.pool.value_kind[columns], self.pool.scores
        more = -(-share * SHARE_STATES // WHOLE_SHARE)
        after = np.where(states == 0, self.pool.masks[columns], states) + more
        long_run = scores.long_run[kinds, states] - scores.long_run[kinds, after]
        immediate = scores.immediate[kinds, states] - scores.immediate[kinds, after]
        breaks = (states == 0).astype(np.int64)
        units = self.pool.units(share)
        losses = self._losses(CandidateCost(columns, long_run, immediate, breaks, demand.cores, units))
        losses += self._switch_costs(columns)
        best = int(losses.argmin())
        gpu = self.pool.gpus[int(columns[best])]
        return [Place(gpu.id, None, 0, 8, share)], int(losses[best])

    def slices(self, demand: Demand, members: range, most: Counts | None) -> tuple[list[Place], int]:
        """`count` slices in a group, each where it takes least from later demand.

        ValueError: they do not all fit.
        """
        columns = np.arange(members.start, members.stop)
        columns = columns[self.pool.eligible(demand.profile)[columns]]
        most = None if most is None else most.copy()
        now, places, losses = self, [], 0
        for _ in range(demand.count):
            if most is not None:
                columns = columns[most[self.pool.node_of[columns]] > 0]
            place, loss = now._slice(demand, columns)
            places.append(place)
            losses += loss
            if len(places) < demand.count:
                now = now._with(place, demand)
                if most is not None:
                    most[self.pool.node_of[self.pool.column[place.gpu]]] -= 1
        return places, losses

    def _with(self, place: Place, demand: Demand) -> "PoolState":
        """The same with one more slice."""
        column, busy, free = self.pool.column[place.gpu], self.busy.copy(), self.free
        busy[column] |= self.pool.mask_of(place)
        if free is not None:
            free = free.less(int(self.pool.node_of[column]), *demand.host_resources)
        switches = None if self.switches is None else self.switches.copy()
        if switches is not None:
            switches[column] = False
        return PoolState(self.pool, busy, free, switches)

    def _switch_costs(self, columns: Index) -> Ints:
        """Loss by changes of mode: any place without one is better than all with one."""
        if self.switches is None:
            return np.zeros(len(columns), dtype=np.int64)
        return np.where(self.switches[columns], SWITCH_COST, 0)

    def _openings(self, able: Index) -> Index:
        """Columns to examine for a share: of a node's idle GPUs one is enough."""
        is_idle = self.states[able] == 0
        idle = able[is_idle]
        nodes = self.pool.node_of[idle]
        is_first = np.ones(len(idle), dtype=np.bool_)
        is_first[1:] = nodes[1:] != nodes[:-1]
        keep = ~is_idle
        keep[is_idle] = is_first
        found: Index = able[keep]
        return found

    def _slice(self, demand: Demand, columns: Index) -> tuple[Place, int]:
        pool, profile = self.pool, demand.profile or ""
        tables = pool.best_tables(profile)
        kinds, states = pool.value_kind[columns], self.states[columns]
        at = np.flatnonzero(tables.number[kinds, states] != ILLEGAL)
        if not len(at):
            raise ValueError(f"capacity promised more {profile} than fit")
        columns, kinds, states = columns[at], kinds[at], states[at]
        long_run, immediate = tables.long_run[kinds, states], tables.immediate[kinds, states]
        breaks = ((states == 0) & pool.eligible(None)[columns]).astype(np.int64)
        units = pool.units(profile)
        losses = self._losses(CandidateCost(columns, long_run, immediate, breaks, demand.cores, units))
        losses += self._switch_costs(columns)
        best = int(losses.argmin())
        column = int(columns[best])
        number = int(tables.number[kinds[best], states[best]])
        spot = pool.geometries[column].place(profile, number)
        place = Place(pool.gpus[column].id, profile, spot.start, spot.size)
        return place, int(losses[best])

    def _losses(self, taken: CandidateCost) -> Ints:
        scores, nodes = self.pool.scores, self.pool.node_of[taken.columns]
        kinds, idle = self.pool.value_kind[taken.columns], self._idle[nodes]
        if self.cores is None:
            before = NodeState(kinds, taken.immediate, idle, np.zeros_like(kinds))
            return scores.loss(taken.long_run, before, before.less(taken.immediate, taken.breaks, 0))
        before = NodeState(kinds, self._immediate[nodes], idle, self.cores[nodes])
        after = before.less(taken.immediate, taken.breaks, taken.cores)
        found = scores.loss(taken.long_run, before, after)
        units = self.units_left[nodes]
        found += mismatch(scores.scoring, before.cores, units, taken.cores, taken.units)
        return found
