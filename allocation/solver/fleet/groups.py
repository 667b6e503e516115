"""Groups of the hardware that hold a gang: how much fits in each, and which is the fullest."""

from typing import Any

import numpy as np
import numpy.typing as npt

from allocation.solver.fleet.columns import LEVELS, Index
from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.pool import Pool
from allocation.solver.model.inputs import Together

Counts = npt.NDArray[Any]


def sums_within(pool: Pool, level: Together, capacity: Counts, most: Counts | None) -> Ints:
    """Capacity per group of the level, no node serving more than its `most` (…, nodes)."""
    if most is None:
        return pool.sums(level, capacity)
    if level in ("gpu", "domain"):
        node_of = pool.groups("node")[pool.bounds[level]]
        inside: Ints = np.minimum(pool.sums(level, capacity), most[..., node_of])
        return inside
    nodes: Ints = np.minimum(pool.sums("node", capacity), most)
    if level == "node":
        return nodes
    bounds = pool.groups("node")[pool.bounds[level]]
    found: Ints = np.add.reduceat(nodes, bounds, axis=-1)
    return found


def fullest(pool: Pool, level: Together, sums: Ints, capacity: Counts, candidates: Index) -> int:
    """Of the candidates the group with least room left, then in the fullest surroundings."""
    if len(candidates) == 1:
        return int(candidates[0])
    first = pool.bounds[level][candidates]
    outer = reversed(LEVELS[LEVELS.index(level) + 1 : -1])
    around = (pool.sums(each, capacity)[pool.groups(each)[first]] for each in outer)
    keys: list[Ints] = [candidates, *around, sums[candidates]]
    return int(candidates[np.lexsort(keys)[0]])


def whole_columns(
    pool: Pool, chosen: tuple[Together, int], count: int, capacity: Counts, most: Counts | None
) -> list[int]:
    """`count` free columns of a group out of the fewest subgroups, the rest best fit."""
    level, group = chosen
    members = pool.members(level, group)
    free = (np.flatnonzero(capacity[members.start : members.stop]) + members.start).tolist()
    finer = LEVELS[LEVELS.index(level) - 1]
    is_flat = finer == "gpu" or (finer == "domain" and not pool.has_domains)
    if is_flat or (len(free) == count and most is None):
        # A GPU fixed to whole serves nobody else; one that may be sliced is kept for slices.
        return sorted(free, key=lambda column: (bool(pool.flexible[column]), column))[:count]
    by_group = _room_by_group(pool, finer, free, most)
    taken: list[int] = []
    while len(taken) < count:
        need = count - len(taken)
        room = sorted((n, g) for g, n in by_group.items() if n >= need)
        size, best = room[0] if room else max((n, -g) for g, n in by_group.items())
        best = best if room else -best
        del by_group[best]
        taken += whole_columns(pool, (finer, best), min(need, size), capacity, most)
    return taken


def _room_by_group(
    pool: Pool, level: Together, free: list[int], most: Counts | None
) -> dict[int, int]:
    """Free columns of each group, no more than its node serves; a rack's nodes in all."""
    of_column, node_of = pool.groups(level), pool.groups("node")
    by_node: dict[int, int] = {}
    found: dict[int, int] = {}
    for column in free:
        group, node = int(of_column[column]), int(node_of[column])
        if most is not None and level in ("node", "rack"):
            by_node[node] = by_node.get(node, 0) + 1
            if by_node[node] > most[node]:
                continue
        found[group] = found.get(group, 0) + 1
    return found
