"""The smallest and cheapest set of running bookings whose room is enough for a gang.

Whole bookings only. The order of the groups says from whom it is taken first; within that, where
in the fleet room is made is chosen by what is lost there, and whoever is not needed stays.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from allocation.solver.fleet.columns import Bools, Index
from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.mig_geometry import WHOLE_MASK, Masks
from allocation.solver.fleet.pool import Pool
from allocation.solver.placement.gang import Demand, fits
from allocation.solver.state.running import RunningBooking
from allocation.solver.timeline.host_calendar import Free

_NEVER = np.iinfo(np.int64).max
_LOST = 1 << 12
"""A lost GPU-second weighs more than any number of devices: they only break ties."""
_GROUPS_TRIED = 4


class Room:
    """A class during one window: what is taken for good, and who else could leave."""

    def __init__(
        self,
        pool: Pool,
        demand: Demand,
        taken: Masks,
        runners: Sequence[RunningBooking],
        free: Callable[[set[str]], Free] | None = None,
    ) -> None:
        """`taken` are the bits of each column without the runners; `free` says what nodes have
        once these bookings have left, None: nobody asks."""
        self._pool, self._want, self._taken = pool, demand, taken
        self._free, self._runners = free, runners
        rows = [row for runner in runners for row in runner.rows]
        spread = np.array([len(runner.rows) for runner in runners], dtype=np.intp)
        self._who: Index = np.repeat(np.arange(len(runners)), spread)
        self._column: Index = np.array([column for column, _ in rows], dtype=np.intp)
        self._bits: Masks = np.array([bits for _, bits in rows], dtype=np.uint16)
        lost = np.array([runner.lost for runner in runners], dtype=np.int64)
        self.weight: Ints = lost * _LOST + spread
        self._shared: Ints = self.weight // np.maximum(spread, 1)
        self._spots = _spots(pool, demand.profile)

    def busy(self, gone: Bools) -> Masks:
        """Bits taken of each column when some have left."""
        found = self._taken.copy()
        stays = ~gone[self._who]
        np.bitwise_or.at(found, self._column[stays], self._bits[stays])
        return found

    def free(self, gone: Bools) -> Free | None:
        """Cores and memory beside those that stay; None: nobody asks for any."""
        if self._free is None:
            return None
        return self._free({self._runners[at].booking for at in np.flatnonzero(gone).tolist()})

    def fits(self, gone: Bools) -> bool:
        """True when the whole gang fits beside those that stay."""
        free = self.free(gone)
        busy = self.busy(gone)[None, :]
        return bool(fits(self._pool, self._want, busy, free and free.as_window())[0])

    def sets(self, able: Bools) -> Iterator[Bools]:
        """Good sets out of those that are `able` to leave: room for the gang without them."""
        for score in (self.weight, self._shared):
            for columns in self._groups(able, score):
                gone = self._cheapest(able, score, columns)
                if gone is not None:
                    yield gone

    def _groups(self, able: Bools, score: Ints) -> list[slice]:
        """Columns of the groups that could hold the gang, the cheapest few as it seems."""
        pool, demand = self._pool, self._want
        if demand.level == "any":
            return [slice(0, len(pool))]
        taken = self.busy(able)
        costs = self._costs(taken, able, score).min(axis=0)
        found = []
        room = pool.sums(demand.level, pool.capacity(demand.profile, taken))
        for group in np.flatnonzero(room >= demand.count).tolist():
            run = pool.members(demand.level, group)
            inside = np.sort(costs[run.start : run.stop])[: demand.count]
            found.append((int(inside[inside < _NEVER].sum()), run.start, run.stop))
        return [slice(*run) for _, *run in sorted(found)[:_GROUPS_TRIED]]

    def _cheapest(self, able: Bools, score: Ints, columns: slice) -> Bools | None:
        """One after the other where the score is least beside what is chosen already."""
        gone: Bools = np.zeros(len(able), dtype=np.bool_)
        taken = self.busy(able)
        for _ in range(self._want.count):
            costs = self._costs(taken, able & ~gone, score)[:, columns]
            spot, column = divmod(int(costs.argmin()), costs.shape[1])
            if costs[spot, column] == _NEVER:
                return None
            column += columns.start
            bits = self._spots[spot][0]
            here = (self._column == column) & (self._bits & bits != 0) & able[self._who]
            gone[self._who[here]] = True
            taken[column] |= bits
        return gone

    def _costs(self, taken: Masks, left: Bools, score: Ints) -> Ints:
        """What each spot (spots × columns) costs of those that are left; _NEVER: not possible."""
        costs = np.zeros((len(self._spots), len(self._pool)), dtype=np.int64)
        for number, (bits, able) in enumerate(self._spots):
            hit = left[self._who] & (self._bits & bits != 0)
            np.add.at(costs[number], self._column[hit], score[self._who[hit]])
            costs[number, ~able | (taken & bits != 0)] = _NEVER
        return costs


def victims(
    room: Room, groups: Sequence[object], is_allowed: Callable[[Bools], bool]
) -> Bools | None:
    """Who must leave, as flags in the order of the runners; None when all of them are too few.

    `groups` rise with the runners: of the later ones nobody goes while the earlier are enough.
    `is_allowed` is what must hold besides room. Nobody of the answer could stay.
    """

    def enough(gone: Bools) -> bool:
        return room.fits(gone) and is_allowed(gone)

    rank = np.cumsum([False, *(one != other for one, other in pairwise(groups))])
    low, high = 0, int(rank[-1])
    if not enough(rank <= high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(rank <= middle) else (middle + 1, high)
    able: Bools = rank <= low
    tried = [_topped_up(gone, able, enough) for gone in room.sets(able)] or [able]
    best = [_filled_back(room, gone, enough) for gone in tried]
    return min(best, key=lambda gone: int(room.weight[gone].sum()))


def _topped_up(gone: Bools, able: Bools, enough: Callable[[Bools], bool]) -> Bools:
    """With as many more, in order, as it takes: room is not all that must come free."""
    gone = gone.copy()
    for one in np.flatnonzero(able & ~gone).tolist():
        if enough(gone):
            break
        gone[one] = True
    return gone


def _filled_back(room: Room, gone: Bools, enough: Callable[[Bools], bool]) -> Bools:
    """Without everybody who may stay, those who would lose most first."""
    gone = gone.copy()
    chosen = np.flatnonzero(gone)
    for one in chosen[np.argsort(-room.weight[chosen], kind="stable")].tolist():
        gone[one] = False
        if not enough(gone):
            gone[one] = True
    return gone


def _spots(pool: Pool, profile: str | None) -> list[tuple[int, Bools]]:
    """Where one of the shape can lie: its bits, and the columns that can have it so."""
    eligible = pool.eligible(profile)
    if profile is None:
        return [(WHOLE_MASK, eligible)]
    found: dict[int, Bools] = {}
    for geometry, columns in pool.kinds:
        for place in geometry.places(profile) if geometry.serves(profile) else ():
            able = found.setdefault(geometry.mask_of(place), np.zeros(len(pool), dtype=np.bool_))
            able[columns] = eligible[columns]
    return list(found.items())
