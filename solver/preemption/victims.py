"""The cheapest minimal set of victims whose room is enough for a gang.

Bookings are paused whole. The groups decide what is paused first; within them the location
is chosen by the work that is lost, and victims that are not needed stay.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import SHARED, WHOLE_MASK, Masks
from solver.fleet.pool import Bools, Pool
from solver.model.demand import Demand, Fit
from solver.placement.gang import fits
from solver.state.cycle_state import CycleState
from solver.state.running import Rows, RunningBooking, rows_of
from solver.timeline.host_calendar import Free

_NEVER = np.iinfo(np.int64).max
_LOST = 1 << 12
"""A lost GPU-second outweighs any number of devices, which only break ties."""
_GROUPS_TRIED = 4


class VictimSearch:
    """A class during one window: what is taken for good, and who could leave."""

    def __init__(
        self,
        pool: Pool,
        demand: Demand,
        taken: Masks,
        runners: Sequence[RunningBooking],
        free: Callable[[set[str]], Free] | None = None,
        rows: Rows | None = None,
    ) -> None:
        """`taken` are the bits of each column without the candidates. `free` returns what nodes
        have once the given bookings have left; None: hosts do not matter. `rows` are the places of
        the candidates where they are known."""
        self._pool, self._demand, self._taken = pool, demand, taken
        self._free, self._runners = free, runners
        self._who, self._column, self._bits = rows or rows_of(runners)
        spread = np.bincount(self._who, minlength=len(runners))
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
        """Cores and memory that are free when some have left; None: hosts do not matter."""
        if self._free is None:
            return None
        return self._free({self._runners[at].booking for at in np.flatnonzero(gone).tolist()})

    def fits(self, gone: Bools) -> bool:
        """True when the whole gang fits when some have left."""
        free = self.free(gone)
        busy = self.busy(gone)[None, :]
        return bool(fits(self._pool, self._demand, busy, free and free.as_window())[0])

    def sets(self, able: Bools) -> Iterator[Bools]:
        """Promising sets of victims among those that are `able` to leave."""
        for score in (self.weight, self._shared):
            for columns in self._groups(able, score):
                gone = self._cheapest(able, score, columns)
                if gone is not None:
                    yield gone

    def _groups(self, able: Bools, score: Ints) -> list[slice]:
        """Columns of the groups that could hold the gang, the few that seem cheapest."""
        pool, demand = self._pool, self._demand
        if demand.level == "any" and not pool.has_zones:
            return [slice(0, len(pool))]
        taken = self.busy(able)
        costs = self._costs(taken, able, score).min(axis=0)
        found = []
        search = pool.sums(demand.level, pool.capacity(demand.profile, taken))
        for group in np.flatnonzero(search >= demand.count).tolist():
            run = pool.members(demand.level, group)
            inside = np.sort(costs[run.start : run.stop])[: demand.count]
            found.append((int(inside[inside < _NEVER].sum()), run.start, run.stop))
        return [slice(*run) for _, *run in sorted(found)[:_GROUPS_TRIED]]

    def _cheapest(self, able: Bools, score: Ints, columns: slice) -> Bools | None:
        """Clear one spot after the other, each where it costs least given those already cleared."""
        gone: Bools = np.zeros(len(able), dtype=np.bool_)
        taken = self.busy(able)
        for _ in range(self._demand.count):
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
        """Cost of each spot (spots × columns) in bookings still there; _NEVER: impossible."""
        costs = np.zeros((len(self._spots), len(self._pool)), dtype=np.int64)
        for number, (bits, able) in enumerate(self._spots):
            hit = left[self._who] & (self._bits & bits != 0)
            np.add.at(costs[number], self._column[hit], score[self._who[hit]])
            costs[number, ~able | (taken & bits != 0)] = _NEVER
        return costs


def victims(
    search: VictimSearch, groups: Sequence[object], is_allowed: Callable[[Bools], bool]
) -> Bools | None:
    """The victims, as flags in the order of the candidates; None when all of them are too few.

    `groups` rise with the candidates: a later group is used only if the earlier ones are not
    enough. `is_allowed` checks everything besides room. The answer is minimal.
    """

    def enough(gone: Bools) -> bool:
        return search.fits(gone) and is_allowed(gone)

    rank = np.cumsum([False, *(one != other for one, other in pairwise(groups))])
    low, high = 0, int(rank[-1])
    if not enough(rank <= high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(rank <= middle) else (middle + 1, high)
    able: Bools = rank <= low
    tried = [_topped_up(gone, able, enough) for gone in search.sets(able)] or [able]
    best = [_filled_back(search, gone, enough) for gone in tried]
    return min(best, key=lambda gone: int(search.weight[gone].sum()))


def _topped_up(gone: Bools, able: Bools, enough: Callable[[Bools], bool]) -> Bools:
    """Add victims in order until all conditions hold: room may not be the only one."""
    gone = gone.copy()
    for one in np.flatnonzero(able & ~gone).tolist():
        if enough(gone):
            break
        gone[one] = True
    return gone


def _filled_back(search: VictimSearch, gone: Bools, enough: Callable[[Bools], bool]) -> Bools:
    """Remove every victim that is not needed, those with the most lost work first."""
    gone = gone.copy()
    chosen = np.flatnonzero(gone)
    for one in chosen[np.argsort(-search.weight[chosen], kind="stable")].tolist():
        gone[one] = False
        if not enough(gone):
            gone[one] = True
    return gone


def _spots(pool: Pool, profile: str | None) -> list[tuple[int, Bools]]:
    """Spots of the shape: their bits, and the columns that can have them."""
    eligible = pool.eligible(profile)
    if profile is None:
        return [(WHOLE_MASK, eligible)]
    found: dict[int, Bools] = {}
    for geometry, columns in pool.kinds:
        for place in geometry.places(profile) if geometry.serves(profile) else ():
            able = found.setdefault(geometry.mask_of(place), np.zeros(len(pool), dtype=np.bool_))
            able[columns] = eligible[columns]
    return list(found.items())


class _Row(NamedTuple):
    """Host resources of a running booking on a node, until it or the window ends."""

    booking: str
    cores: int
    memory: int
    ends: int


class FreedHostResources:
    """Cores and memory that the nodes of a class can have free in a window.

    Cores add up only while bookings overlap, so each node is examined up to the end of each booking
    on it.
    """

    def __init__(self, state: CycleState, demand: Demand, starts: int, firm: Free) -> None:
        """`firm` is what is free in the window if every pausable booking leaves."""
        self._hosts, self._starts, self._firm = state.firm.hosts, starts, firm
        self._nodes = state.pools[demand.gpu_class].nodes
        self._least: dict[tuple[int, int], tuple[int, int]] = {}
        self._rows: dict[int, list[_Row]] = {}
        number = {node: at for at, node in enumerate(self._nodes)}
        running = state.running
        for name in running.classes:
            for runner in running.of_class(name):
                ends = min(running.ends(runner), starts + demand.duration)
                if ends <= starts or not any(runner.host_resources):
                    continue
                for node in map(state.all.hosts.node_of, runner.places):
                    if node in number:
                        row = _Row(runner.booking, *runner.host_resources, ends)
                        self._rows.setdefault(number[node], []).append(row)

    def without(self, gone: Container[str]) -> Free:
        """Cores and memory that are free at every instant once these bookings have left."""
        free = Free(self._firm.cores.copy(), self._firm.memory.copy())
        for node, rows in self._rows.items():
            for until in {row.ends for row in rows if row.booking not in gone}:
                stays = [row for row in rows if row.booking not in gone and row.ends >= until]
                cores, memory = self._free_until(node, until)
                cores -= sum(row.cores for row in stays)
                memory -= sum(row.memory for row in stays)
                free.cores[node] = max(0, min(free.cores[node], cores))
                free.memory[node] = max(0, min(free.memory[node], memory))
        return free

    def _free_until(self, node: int, until: int) -> tuple[int, int]:
        """What a node has free of work that can't leave, from the window's start until then."""
        if (node, until) not in self._least:
            window = (self._starts, until)
            self._least[node, until] = self._hosts.least(self._nodes[node], window)
        return self._least[node, until]


def freed_host_resources(state: CycleState, demand: Demand, starts: int) -> FreedHostResources | None:
    """Host resources in the window; None: the demand needs none."""
    if not any(demand.host_resources):
        return None
    at, pool = np.array([starts], dtype=np.int64), state.pools[demand.gpu_class]
    firm = state.firm.hosts.free(pool, at, demand.duration).row(0)
    return FreedHostResources(state, demand, starts, firm)


def has_host_resources(state: CycleState, found: Fit, gone: Container[str]) -> bool:
    """True when the nodes have the cores and memory once these bookings have left."""
    hosts = freed_host_resources(state, found.demand, found.starts)
    if hosts is None:
        return True
    pool = state.pools[found.demand.gpu_class]
    nodes = pool.node_of[[pool.column[place.gpu] for place in found.places]]
    most = hosts.without(gone).devices(*found.demand.host_resources)
    return all(int((nodes == node).sum()) <= most[node] for node in nodes.tolist())


def taken_after_leaving(
    state: CycleState, demand: Demand, starts: int, able: Sequence[RunningBooking]
) -> Masks:
    """Bits of each column that can't become free for the window."""
    running, name = state.running, demand.gpu_class
    at = np.array([starts], dtype=np.int64)
    taken: Masks = state.firm.gpus[name].busy(at, demand.duration)[0].copy()
    # Slices and whole GPUs can't use a shared GPU.
    taken[taken >= SHARED] = WHOLE_MASK
    if demand.is_bound:
        taken[~state.pools[name].allowed(demand.pin, demand.where)] = WHOLE_MASK
    if state.all.modes.may_switch(name):
        # Nobody is paused for a change of mode: only empty GPUs change.
        others = state.all.modes.others(state.pools[name], demand.shape, (at, demand.duration))
        taken[others[0]] = WHOLE_MASK
    stays = running.staying(name, able, starts)
    np.bitwise_or.at(taken, stays.column, stays.bits)
    return taken


def occupants_of(state: CycleState, found: Fit) -> set[str]:
    """Pausable bookings that use some of its places when it starts."""
    running, pool = state.running, state.pools[found.demand.gpu_class]
    bits: dict[int, int] = {}
    for each in found.places:
        column = pool.column[each.gpu]
        bits[column] = bits.get(column, 0) | pool.mask_of(each)
    return {
        runner.booking
        for runner in running.on(found.demand.gpu_class, bits).values()
        if running.ends(runner) > found.starts
        and any(mask & bits.get(column, 0) for column, mask in runner.rows)
    }
