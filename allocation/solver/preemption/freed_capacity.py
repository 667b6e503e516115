"""What can come free in one window when some of those who may be paused leave: slots, host cores
and memory.

Slots are taken or not; cores add up, and who ends before another begins is not beside it. So each
node is looked at up to the end of each of those that are on it.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np

from allocation.solver.fleet.mig_geometry import SHARED, WHOLE_MASK, Masks
from allocation.solver.placement.gang import Demand
from allocation.solver.state.running import RunningBooking
from allocation.solver.state.working import Fit, Working
from allocation.solver.timeline.host_calendar import Free


class _Row(NamedTuple):
    """What a running booking has of a node, until it ends or the window does."""

    booking: str
    cores: int
    memory: int
    ends: int


class FreedHostResources:
    """What the nodes of a class can have free in a window."""

    def __init__(self, working: Working, demand: Demand, starts: int, firm: Free) -> None:
        """`firm` is what is free in the window if everybody who may be paused leaves."""
        self._working, self._starts, self._firm = working, starts, firm
        self._nodes = working.pools[demand.gpu_class].nodes
        self._least: dict[tuple[int, int], tuple[int, int]] = {}
        self._rows: dict[int, list[_Row]] = {}
        number = {node: at for at, node in enumerate(self._nodes)}
        running = working.running
        for name in running.classes:
            for runner in running.there(name):
                ends = min(running.ends(runner), starts + demand.duration)
                if ends <= starts or not any(runner.of_host):
                    continue
                for node in map(working.hosts.node_of, runner.places):
                    if node in number:
                        row = _Row(runner.booking, *runner.of_host, ends)
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
        """Of a node, beside what can't leave, from the window's start until then."""
        if (node, until) not in self._least:
            window = (self._starts, until)
            self._least[node, until] = self._working.firm_beside(self._nodes[node], window)
        return self._least[node, until]


def freed_host_resources(
    working: Working, demand: Demand, starts: int
) -> FreedHostResources | None:
    """None: it asks for nothing of its nodes."""
    firm = working.free_of_firm(demand, starts)
    return None if firm is None else FreedHostResources(working, demand, starts, firm)


def has_host_resources(working: Working, found: Fit, gone: Container[str]) -> bool:
    """True when the places' nodes have the cores and memory once these have left."""
    beside = freed_host_resources(working, found.demand, found.starts)
    if beside is None:
        return True
    pool = working.pools[found.demand.gpu_class]
    nodes = pool.groups("node")[[pool.column[place.gpu] for place in found.places]]
    most = beside.without(gone).devices(*found.demand.of_host)
    return all(int((nodes == node).sum()) <= most[node] for node in nodes.tolist())


def taken_after_leaving(
    working: Working, demand: Demand, starts: int, able: Sequence[RunningBooking]
) -> Masks:
    """Bits of each column that can't come free for the window."""
    running, name = working.running, demand.gpu_class
    at = np.array([starts], dtype=np.int64)
    taken: Masks = working.firm[name].busy(at, demand.duration)[0].copy()
    # What is shared is not free for slices and whole GPUs.
    taken[taken >= SHARED] = WHOLE_MASK
    if demand.pin:
        taken[~working.pools[name].within(demand.pin)] = WHOLE_MASK
    if working.modes.may_switch(name):
        # Nobody is paused so that a GPU changes its mode: only empty ones change.
        others = working.modes.others(working.pools[name], demand.shape, (at, demand.duration))
        taken[others[0]] = WHOLE_MASK
    leaving = {runner.booking for runner in able}
    for runner in running.there(name):
        if runner.booking not in leaving and running.ends(runner) > starts:
            for column, bits in runner.rows:
                taken[column] |= bits
    return taken


def occupants_of(working: Working, found: Fit) -> set[str]:
    """Bookings that may be paused and have something of its places when it starts."""
    running, pool = working.running, working.pools[found.demand.gpu_class]
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
