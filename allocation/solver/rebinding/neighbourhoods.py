"""Which few bookings would have to lie elsewhere for one more to fit, the fewest first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.groups import Counts
from allocation.solver.fleet.pool import Pool
from allocation.solver.model.inputs import Place, Together
from allocation.solver.placement.gang import Demand
from allocation.solver.state.working import Fit, Working

Reserved = Mapping[str, Fit]

_MOST_MOVED = 16
"""No more bookings are laid anew for one newcomer,"""
_MOST_SETS = 3
"""on one of no more sets of nodes, one after the other."""


def level_of(demand: Demand) -> Together:
    """Where its nodes have to be looked for: a gang that needs no more than one is on one."""
    return demand.level if demand.level in ("rack", "any") else "node"


def neighbourhoods(
    working: Working, demand: Demand, starts: int, near: Reserved, room: Counts
) -> list[dict[str, Fit]]:
    """Those of `near` on sets of nodes that hold the want without them.

    `room`: how many of the want each column holds if all that may move were elsewhere.
    """
    pool = working.pools[demand.gpu_class]
    node_of = pool.groups("node").tolist()
    here: dict[int, dict[str, Fit]] = {}
    for booking, found in near.items():
        for place in found.places:
            here.setdefault(node_of[pool.column[place.gpu]], {})[booking] = found
    rooms = pool.sums("node", room)
    free = _free(working, demand, starts)
    sets: list[tuple[int, list[int], dict[str, Fit]]] = []
    for nodes in _groups(pool, level_of(demand), here):
        for chosen in _chosen(nodes, here, demand.count, (free, rooms)):
            rows = {name: found for node in chosen for name, found in here.get(node, {}).items()}
            if 0 < len(rows) <= _MOST_MOVED:
                sets.append((len(rows), chosen, rows))
    return [rows for _, _, rows in sorted(sets, key=lambda each: each[:2])[:_MOST_SETS]]


def joined(sets: Iterable[Reserved]) -> dict[str, Fit]:
    """As many of the neighbourhoods as are few together."""
    found: dict[str, Fit] = {}
    for rows in sets:
        if len(found.keys() | rows.keys()) <= _MOST_MOVED:
            found |= rows
    return found


def at_one_place(near: Reserved, most: int) -> dict[Place, dict[str, Fit]]:
    """Single slices by the place that they have, one after the other, of the first so many."""
    found: dict[Place, dict[str, Fit]] = {}
    for booking, each in sorted(near.items()):
        if each.demand.profile is not None and each.demand.count == 1 and len(found) < most:
            found.setdefault(each.places[0], {})[booking] = each
    return found


def slices(near: Reserved, most: int) -> dict[str, Fit]:
    """Slices that may lie anywhere, the first so many in the order of their starts."""
    able = [
        (found.starts, booking)
        for booking, found in near.items()
        if found.demand.profile is not None and found.demand.level == "any"
    ]
    return {booking: near[booking] for _, booking in sorted(able)[:most]}


def _free(working: Working, demand: Demand, starts: int) -> Ints:
    """How many of the want each node holds as it is."""
    pool = working.pools[demand.gpu_class]
    masks, beside = working.busy(demand, np.array([starts], dtype=np.int64))
    sums = pool.sums("node", pool.capacity(demand.shape, masks[0]))
    if beside is not None and any(demand.of_host):
        sums = np.minimum(sums, beside.row(0).devices(*demand.of_host))
    return sums


def _groups(pool: Pool, level: Together, here: Mapping[int, object]) -> Iterator[Sequence[int]]:
    """Nodes of each group of the level that has somebody who could move."""
    if level == "node":
        yield from ([node] for node in sorted(here))
        return
    of_node = pool.groups(level)[pool.bounds["node"]].tolist()
    members: dict[int, list[int]] = {}
    for node, group in enumerate(of_node):
        members.setdefault(group, []).append(node)
    for group in sorted({of_node[node] for node in here}):
        yield members[group]


def _chosen(
    nodes: Sequence[int],
    here: Mapping[int, Mapping[str, Fit]],
    count: int,
    capacities: tuple[Ints, Ints],
) -> Iterator[list[int]]:
    """Enough nodes for the want: those that need not be touched, then those with the fewest to
    move; then the same without the first of these."""
    free, rooms = capacities
    idle = [node for node in nodes if node not in here and free[node]]
    movers = sorted((n for n in nodes if n in here and rooms[n]), key=lambda n: (len(here[n]), n))
    have = int(free[idle].sum())
    for skip in range(min(len(movers), _MOST_SETS)):
        chosen, total = list(idle), have
        for node in movers[skip:]:
            if total >= count:
                break
            chosen.append(node)
            total += int(rooms[node])
        if total < count:
            return
        yield chosen
