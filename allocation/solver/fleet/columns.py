"""The GPUs of one class as columns, ordered so that every hardware group is a contiguous run.

Groups, from tight to loose: one GPU, one NVLink domain, one node, one rack, the whole class.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.model.inputs import Gpu, Place, Together

LEVELS: tuple[Together, ...] = ("gpu", "domain", "node", "rack", "any")

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


class Columns:
    """The columns of a class, ordered by rack, node, domain, index, id."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        """Order the columns."""
        self.gpus = tuple(sorted(gpus, key=_column_key))
        self.column = {gpu.id: column for column, gpu in enumerate(self.gpus)}
        self.in_service: Bools = np.array([gpu.usable for gpu in self.gpus], dtype=np.bool_)
        silent: Bools = np.array([gpu.silent for gpu in self.gpus], dtype=np.bool_)
        # Usable GPUs take new work; others in service only keep what they have.
        self.usable: Bools = self.in_service & ~silent
        self.flexible: Bools = np.array([gpu.mode is None for gpu in self.gpus], dtype=np.bool_)
        self.bounds: dict[Together, Index] = {level: self._bounds(level) for level in LEVELS}
        self._widest = {level: self._most_columns(level) for level in LEVELS}
        self.nodes = tuple(self.gpus[first].node for first in self.bounds["node"])
        self.has_domains = len(self.bounds["domain"]) < len(self.gpus)
        self._groups: dict[Together, Index] = {}
        self._within: dict[tuple[str, ...], Bools] = {}

    def __len__(self) -> int:
        """How many GPUs."""
        return len(self.gpus)

    def sums(self, level: Together, capacity: npt.NDArray[np.uint8]) -> Ints:
        """Capacity per group of the level: (…, columns) -> (…, groups)."""
        if level == "any":
            total: Ints = np.sum(capacity, axis=-1, dtype=np.int64, keepdims=True)
            return total
        sums: Ints = np.add.reduceat(capacity, self.bounds[level], axis=-1, dtype=np.int64)
        return sums

    def has_group(self, level: Together, idle: npt.NDArray[np.uint8], count: int) -> Bools:
        """For windows × columns of ones where idle: True when some group of the level has that
        many."""
        narrow = np.uint8 if self._widest[level] < 256 else np.int64
        sums = np.add.reduceat(idle, self.bounds[level], axis=-1, dtype=narrow)
        found: Bools = np.any(sums >= count, axis=-1)
        return found

    def members(self, level: Together, group: int) -> range:
        """Columns of a group."""
        bounds = self.bounds[level]
        last = int(bounds[group + 1]) if group + 1 < len(bounds) else len(self)
        return range(int(bounds[group]), last)

    def groups(self, level: Together) -> Index:
        """The group of each column."""
        if level not in self._groups:
            columns = np.arange(len(self))
            self._groups[level] = self.bounds[level].searchsorted(columns, side="right") - 1
        return self._groups[level]

    def together(self, level: Together, places: Iterable[Place]) -> bool:
        """True when all the places lie in one group of the level."""
        if level == "any":
            return True
        groups = self.groups(level)
        return len({int(groups[self.column[place.gpu]]) for place in places}) == 1

    def within(self, pin: tuple[str, ...]) -> Bools:
        """Columns that a pin names: whole nodes, and GPUs as `node/index`."""
        if pin not in self._within:
            named = [gpu.node in pin or f"{gpu.node}/{gpu.index}" in pin for gpu in self.gpus]
            self._within[pin] = np.array(named, dtype=np.bool_)
        return self._within[pin]

    def _most_columns(self, level: Together) -> int:
        """Size of the largest group."""
        return int(np.diff(np.append(self.bounds[level], len(self.gpus))).max(initial=0))

    def _bounds(self, level: Together) -> Index:
        keys = list(map(_GROUP_KEYS[level], self.gpus))
        starts = [c for c in range(len(keys)) if c == 0 or keys[c] != keys[c - 1]]
        return np.array(starts, dtype=np.intp)


def levels_within(level: Together) -> Iterator[Together]:
    """The level and all tighter ones, tightest first."""
    yield from LEVELS[: LEVELS.index(level) + 1]


def _column_key(gpu: Gpu) -> tuple[str, str, bool, int, int, str]:
    return (gpu.rack, gpu.node, gpu.domain is None, gpu.domain or 0, gpu.index, gpu.id)


def _domain_key(gpu: Gpu) -> object:
    return gpu.id if gpu.domain is None else (gpu.rack, gpu.node, gpu.domain)


def _no_key(_: Gpu) -> None:
    return None


_GROUP_KEYS: dict[Together, Callable[[Gpu], object]] = {
    "gpu": attrgetter("id"),
    "domain": _domain_key,
    "node": attrgetter("rack", "node"),
    "rack": attrgetter("rack"),
    "any": _no_key,
}


Counts = npt.NDArray[Any]


def sums_within(pool: Columns, level: Together, capacity: Counts, most: Counts | None) -> Ints:
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


def fullest(pool: Columns, level: Together, sums: Ints, capacity: Counts, candidates: Index) -> int:
    """Of the candidates, the group with the least room left, then in the fullest surroundings."""
    if len(candidates) == 1:
        return int(candidates[0])
    first = pool.bounds[level][candidates]
    outer = reversed(LEVELS[LEVELS.index(level) + 1 : -1])
    around = (pool.sums(each, capacity)[pool.groups(each)[first]] for each in outer)
    keys: list[Ints] = [candidates, *around, sums[candidates]]
    return int(candidates[np.lexsort(keys)[0]])


def whole_columns(
    pool: Columns, chosen: tuple[Together, int], count: int, capacity: Counts, most: Counts | None
) -> list[int]:
    """`count` free columns of a group from the fewest subgroups, best fit for the rest."""
    level, group = chosen
    members = pool.members(level, group)
    free = (np.flatnonzero(capacity[members.start : members.stop]) + members.start).tolist()
    finer = LEVELS[LEVELS.index(level) - 1]
    is_flat = finer == "gpu" or (finer == "domain" and not pool.has_domains)
    if is_flat or (len(free) == count and most is None):
        # A GPU fixed to whole serves nothing else; one that may be sliced is kept for slices.
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
    pool: Columns, level: Together, free: list[int], most: Counts | None
) -> dict[int, int]:
    """Free columns of each group, no more than its node serves; in a rack, the sum of its nodes."""
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
