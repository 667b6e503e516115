"""Where one more device goes: the measure of `fragmentation`, put to a pool and its nodes."""

from dataclasses import dataclass

import numpy as np

from allocation.solver.fragmentation import ILLEGAL, Beside, Ints, mismatch
from allocation.solver.geometry import SHARE_STATES, WHOLE_MASK, WHOLE_SHARE, Masks
from allocation.solver.groups import Counts
from allocation.solver.hosts import Free
from allocation.solver.topology import Index, Pool
from allocation.solver.types import Place
from allocation.solver.want import Want


@dataclass(frozen=True, slots=True)
class Taken:
    """What each candidate would take: of its GPUs `sale` and `useful`, and idle GPUs of its node.

    `columns` are the candidates, `cores` and `units` what is asked of each.
    """

    columns: Index
    sale: Ints
    useful: Ints
    breaks: Ints
    cores: int
    units: int


class Ground:
    """A pool beside one row of busy masks, as the measure sees it. Changes with what is placed."""

    def __init__(self, pool: Pool, busy: Masks, free: Free | None) -> None:
        """`free` is one row of what the nodes have; None: it does not matter."""
        self.pool = pool
        self._states = pool.states(busy)
        self._node = pool.groups("node")
        # Cores are weighed only where somebody asks for them.
        is_weighed = free is not None and pool.values.minds_cores
        self._cores = free.cores if free is not None and is_weighed else None

    def whole_losses(self, want: Want, columns: Index) -> Ints:
        """Worth that `count` whole GPUs take from the groups of these idle columns."""
        kinds, values = self.pool.value_kind[columns], self.pool.values
        sale = values.sale[kinds, 0] - values.sale[kinds, WHOLE_MASK]
        useful = values.useful[kinds, 0] - values.useful[kinds, WHOLE_MASK]
        count = np.full(len(columns), want.count)
        units = want.count * self.pool.units(None)
        cores = want.count * want.cores
        return self._losses(Taken(columns, count * sale, count * useful, count, cores, units))

    def share(self, want: Want, able: Index) -> tuple[list[Place], int]:
        """The place that costs least for a share, of the columns that have the room."""
        states, share = self._states[able].astype(np.int64), want.share or 0
        idle = np.flatnonzero(states == 0)
        nodes = self._node[able[idle]]
        keep = states != 0
        # Of a node's idle GPUs one is as good as the other.
        keep[idle[np.flatnonzero(np.diff(nodes, prepend=-1))]] = True
        columns, states = able[keep], states[keep]
        kinds, values = self.pool.value_kind[columns], self.pool.values
        more = -(-share * SHARE_STATES // WHOLE_SHARE)
        after = self.pool.shared_from(columns, states) + more
        sale = values.sale[kinds, states] - values.sale[kinds, after]
        useful = values.useful[kinds, states] - values.useful[kinds, after]
        breaks = (states == 0).astype(np.int64)
        units = self.pool.units(share)
        losses = self._losses(Taken(columns, sale, useful, breaks, want.cores, units))
        best = int(losses.argmin())
        gpu = self.pool.gpus[int(columns[best])]
        return [Place(gpu.id, None, 0, 8, share)], int(losses[best])

    def slices(self, want: Want, members: range, most: Counts | None) -> tuple[list[Place], int]:
        """`count` slices in a group, each where it takes least worth from later asks.

        ValueError when they do not all fit.
        """
        columns = np.arange(members.start, members.stop)
        columns = columns[self.pool.eligible(want.profile)[columns]]
        self._states = self._states.astype(np.int64)
        most = None if most is None else most.copy()
        self._cores = None if self._cores is None else self._cores.copy()
        places, losses = [], 0
        for _ in range(want.count):
            if most is not None:
                columns = columns[most[self._node[columns]] > 0]
            column, place, loss = self._slice(want, columns)
            self._states[column] |= self.pool.mask_of(place)
            if most is not None:
                most[self._node[column]] -= 1
            if self._cores is not None:
                self._cores[self._node[column]] -= want.cores
            places.append(place)
            losses += loss
        return places, losses

    def _slice(self, want: Want, columns: Index) -> tuple[int, Place, int]:
        pool, profile = self.pool, want.profile or ""
        tables = pool.best_tables(profile)
        kinds, states = pool.value_kind[columns], self._states[columns]
        at = np.flatnonzero(tables.number[kinds, states] != ILLEGAL)
        if not len(at):
            raise ValueError(f"capacity promised more {profile} than fit")
        columns, kinds, states = columns[at], kinds[at], states[at]
        sale, useful = tables.sale[kinds, states], tables.useful[kinds, states]
        breaks = ((states == 0) & pool.eligible(None)[columns]).astype(np.int64)
        losses = self._losses(Taken(columns, sale, useful, breaks, want.cores, pool.units(profile)))
        best = int(losses.argmin())
        column = int(columns[best])
        number = int(tables.number[kinds[best], states[best]])
        spot = pool.geometries[column].place(profile, number)
        return (
            column,
            Place(pool.gpus[column].id, profile, spot.start, spot.size),
            int(losses[best]),
        )

    def _losses(self, taken: Taken) -> Ints:
        pool, values, nodes = self.pool, self.pool.values, self._node[taken.columns]
        kinds, bounds = pool.value_kind[taken.columns], pool.bounds["node"]
        idle = np.add.reduceat((self._states == 0) & pool.eligible(None), bounds, dtype=np.int64)[
            nodes
        ]
        if self._cores is None:
            before = Beside(kinds, taken.useful, idle, np.zeros_like(kinds))
            return values.loss(taken.sale, before, before.less(taken.useful, taken.breaks, 0))
        cores = self._cores[nodes]
        useful = np.add.reduceat(values.useful[pool.value_kind, self._states], bounds)[nodes]
        left = np.add.reduceat(pool.units_left(self._states), bounds)[nodes]
        before = Beside(kinds, useful, idle, cores)
        found = values.loss(
            taken.sale, before, before.less(taken.useful, taken.breaks, taken.cores)
        )
        found += mismatch(cores, left, taken.cores, taken.units)
        return found
