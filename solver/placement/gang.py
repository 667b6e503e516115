"""Place one gang, whole or not at all: the tightest group first, then the places with the least
loss of score for later demand."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import Masks
from solver.fleet.pool import LEVELS, Bools, Counts, Index, Pool
from solver.model.demand import Demand
from solver.model.inputs import Place, Together
from solver.model.ordering import place_order
from solver.model.sites.nodes import Cache
from solver.placement.scoring import PoolState
from solver.timeline.host_calendar import Free


@dataclass(frozen=True, slots=True)
class Choice:
    """Places of a gang. `apart` is how loose their group is, `loss` the score that they take."""

    places: tuple[Place, ...]
    apart: int
    loss: int


def fits(pool: Pool, demand: Demand, busy: Masks, free: Free | None = None) -> Bools:
    """For each row of busy masks (windows × columns): True when the whole gang fits.

    `free` is what the nodes have in the same windows; None: hosts do not matter.
    """
    capacity = pool.capacity(demand.shape, busy)
    sums = sums_within(pool, demand.level, capacity, _devices(demand, free))
    found: Bools = np.any(sums >= demand.count, axis=-1)
    return found


def most_together(pool: Pool, demand: Demand, busy: Masks, free: Free | None = None) -> int:
    """How many of the shape fit in the best allowed group."""
    capacity = pool.capacity(demand.shape, busy)
    return int(sums_within(pool, demand.level, capacity, _devices(demand, free)).max())


def place(pool: Pool, demand: Demand, busy: Masks, free: Free | None = None) -> tuple[Place, ...] | None:
    """Places for the gang in one row of busy masks; None when it does not fit whole."""
    choice = choose(PoolState(pool, busy, free), demand)
    return None if choice is None else choice.places


def choose(pool_state: PoolState, demand: Demand, preferred: Sequence[Bools] = ()) -> Choice | None:
    """The same with its cost, to be compared with another class.

    No GPU changes its mode unnecessarily. The first `preferred` columns that hold the gang no looser are
    taken.
    """
    if pool_state.switches is None:
        return _choose_preferred(pool_state, demand, preferred)
    calm = _choose_preferred(pool_state.without_switches(), demand, preferred)
    return calm or _choose_preferred(pool_state, demand, preferred)


def _choose_preferred(pool_state: PoolState, demand: Demand, preferred: Sequence[Bools]) -> Choice | None:
    found = _choose(pool_state, demand)
    for columns in preferred if found else ():
        near = _choose(pool_state.only(columns), demand)
        if found and near and near.apart <= found.apart:
            return near
    return found


def _choose(pool_state: PoolState, demand: Demand) -> Choice | None:
    pool = pool_state.pool
    capacity, most = pool.capacity(demand.shape, pool_state.busy), _devices(demand, pool_state.free)
    tightest = _tightest(pool, demand, capacity, most)
    if tightest is None:
        return None
    level, sums = tightest
    if demand.share is not None:
        able = capacity.nonzero()[0]
        if most is not None:
            able = able[most[pool.node_of[able]] > 0]
        places, loss = pool_state.share(demand, able)
    elif demand.profile is None:
        places, loss = _whole(pool_state, demand, (level, sums), capacity, most)
    else:
        group = fullest(pool, level, sums, capacity, np.flatnonzero(sums >= demand.count))
        # A single slice is not bound to the fullest zone.
        members = range(len(pool)) if demand.count == 1 else pool.members(level, group)
        places, loss = pool_state.slices(demand, members, most)
    return Choice(tuple(sorted(places, key=place_order)), LEVELS.index(level), loss)


def _devices(demand: Demand, free: Free | None) -> Counts | None:
    """How many devices of the demand each node can serve; None: hosts do not matter."""
    return free.devices(*demand.host_resources) if free is not None and any(demand.host_resources) else None


def _tightest(
    pool: Pool, demand: Demand, capacity: Counts, most: Counts | None
) -> tuple[Together, Ints] | None:
    """The tightest level with a group that holds the gang, and what each of its groups holds."""
    is_whole = demand.shape is None
    for level in LEVELS[: LEVELS.index(demand.level) + 1]:
        if demand.count == 1 and level != "any" and not is_whole:
            continue
        # Even single whole GPUs start at the domain, to break the fewest idle groups; slices have
        # no NVLink.
        if level == ("gpu" if is_whole else "domain") or (level == "domain" and not pool.has_domains):
            continue
        sums = sums_within(pool, level, capacity, most)
        if int(sums.max()) >= demand.count:
            return level, sums
    return None


def _whole(
    pool_state: PoolState,
    demand: Demand,
    held: tuple[Together, Ints],
    capacity: Counts,
    most: Counts | None,
) -> tuple[list[Place], int]:
    """Whole GPUs of one group: of equal score the fullest, in the fullest surroundings."""
    pool, (level, sums) = pool_state.pool, held
    groups, loss = np.flatnonzero(sums >= demand.count), 0
    still = capacity if pool_state.switches is None else np.where(pool_state.switches, 0, capacity)
    if pool_state.switches is not None:
        # Change the mode of the fewest GPUs.
        most_still = np.minimum(sums_within(pool, level, still, most)[groups], demand.count)
        groups = groups[most_still == most_still.max()]
    if level == "node" and demand.count > 1:
        groups = _nearest_nodes(pool, demand.count, capacity, groups)
    if level in ("domain", "node"):
        losses = pool_state.whole_losses(demand, _first_columns(pool, level, capacity, groups))
        loss = int(losses.min())
        groups = groups[losses == loss]
    group = fullest(pool, level, sums, capacity, groups)
    columns = _columns(pool, (level, group), demand.count, (still, capacity), most)
    return [Place(pool.gpus[column].id, None, 0, 8) for column in columns], loss


def _columns(
    pool: Pool,
    chosen: tuple[Together, int],
    count: int,
    either: tuple[Counts, Counts],
    most: Counts | None,
) -> list[int]:
    """Free columns of a group, those without a change of mode first."""
    still, capacity = either
    if still is capacity:
        return whole_columns(pool, chosen, count, capacity, most)
    level, group = chosen
    ready = min(count, int(sums_within(pool, level, still, most)[group]))
    columns = whole_columns(pool, chosen, ready, still, most) if ready else []
    if ready == count:
        return columns
    left = np.where(still > 0, 0, capacity)
    if most is not None:
        most = most.copy()
        np.subtract.at(most, pool.node_of[columns], 1)
    return columns + whole_columns(pool, chosen, count - ready, left, most)


def _first_columns(pool: Pool, level: Together, capacity: Counts, groups: Index) -> Index:
    """The first free column of each group; all of them have one."""
    columns = np.flatnonzero(capacity)
    found: Index = columns[columns.searchsorted(pool.bounds[level][groups])]
    return found


def sums_within(pool: Pool, level: Together, capacity: Counts, most: Counts | None) -> Ints:
    """Capacity per group of the level, no node serving more than its `most` (…, nodes)."""
    if most is None:
        return pool.sums(level, capacity)
    if level in ("gpu", "domain"):
        node_of = pool.node_of[pool.bounds[level]]
        inside: Ints = np.minimum(pool.sums(level, capacity), most[..., node_of])
        return inside
    nodes: Ints = np.minimum(pool.sums("node", capacity), most)
    if level == "node":
        return nodes
    bounds = pool.node_of[pool.bounds[level]]
    found: Ints = np.add.reduceat(nodes, bounds, axis=-1)
    return found


def fullest(pool: Pool, level: Together, sums: Ints, capacity: Counts, candidates: Index) -> int:
    """Of the candidates, the group with the least room left, then in the fullest surroundings."""
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
    """`count` free columns of a group from the fewest subgroups, best fit for the rest."""
    level, group = chosen
    members = pool.members(level, group)
    free = (np.flatnonzero(capacity[members.start : members.stop]) + members.start).tolist()
    finer = LEVELS[LEVELS.index(level) - 1]
    is_flat = finer == "gpu" or (finer == "domain" and not pool.has_domains)
    if is_flat or (len(free) == count and most is None):
        # A GPU fixed to whole serves nothing else; one that may be sliced is kept for slices.
        fixed = [column for column in free if not pool.flexible[column]]
        able = fixed if len(fixed) >= count else sorted(free, key=lambda each: (pool.flexible[each], each))
        return _nearest_columns(pool, count, able) if pool.near_of else able[:count]
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


def _nearest_nodes(pool: Pool, count: int, capacity: Counts, nodes: Index) -> Index:
    """Of the nodes those where the tightest group by PCIe holds the gang; all where none does."""
    for near in reversed(pool.near_of):
        sums = np.bincount(near, weights=capacity)
        holding = np.unique(pool.node_of[sums[near] >= count])
        found: Index = np.intersect1d(nodes, holding)
        if len(found):
            return found
    return nodes


def _nearest_columns(pool: Pool, count: int, able: list[int]) -> list[int]:
    """`count` of the columns, which are ordered: those of the tightest group by PCIe that holds all, of
    these the fullest in the fullest surroundings; where none does, most of a group and then the rest."""
    if len(able) == count:
        return able
    groups = {column: [int(near[column]) for near in reversed(pool.near_of)] for column in able}
    rooms = [Counter(group[depth] for group in groups.values()) for depth in range(len(pool.near_of))]
    for depth, room in enumerate(rooms):
        holding = [column for column in able if room[groups[column][depth]] >= count]
        if holding:
            first = min(holding, key=lambda each: _room_around(groups[each], rooms, depth))
            able = [column for column in able if groups[column][depth] == groups[first][depth]]
            return able[:count] if depth == 0 else _most_of_a_group(pool, count, able)
    return _most_of_a_group(pool, count, able)


def _room_around(groups: list[int], rooms: list[Counter[int]], depth: int) -> list[int]:
    return [rooms[each][groups[each]] for each in range(depth, len(groups))]


def _most_of_a_group(pool: Pool, count: int, able: list[int]) -> list[int]:
    """All of the tightest group with the most of the columns, which are too few, and the nearest of the
    rest."""
    near = pool.near_of[-1][able].tolist()
    room = Counter(near)
    most = max(near, key=lambda group: (room[group], -group))
    members = [column for column, group in zip(able, near, strict=True) if group == most]
    rest = [column for column, group in zip(able, near, strict=True) if group != most]
    return members + _nearest_columns(pool, count - len(members), rest)


def _room_by_group(pool: Pool, level: Together, free: list[int], most: Counts | None) -> dict[int, int]:
    """Free columns of each group, no more than its node serves; in a rack, the sum of its nodes."""
    of_column, node_of = pool.groups(level), pool.node_of
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


_Key = tuple[str, tuple[str, ...]]


class DataPlaces:
    """The columns of each class by how much of some data their nodes have."""

    def __init__(self, caches: Iterable[Cache]) -> None:
        self._data = {cache.node: frozenset(cache.data) for cache in caches}
        self._preferred: dict[_Key, tuple[Bools, ...]] = {}

    def preferred(self, pool: Pool, data: tuple[str, ...]) -> tuple[Bools, ...]:
        """Columns to try before all others: those whose nodes have all of the data, then those that miss
        one of it, and so on. Nothing where no node has any, or all have the same."""
        key = (pool.gpu_class, data)
        if key not in self._preferred:
            has = np.array([self._count(gpu.node, data) for gpu in pool.gpus], dtype=np.int64)
            counts = sorted(set(has.tolist()), reverse=True)[:-1]
            self._preferred[key] = tuple(has >= count for count in counts)
        return self._preferred[key]

    def missing(self, pool: Pool, places: Iterable[Place], data: tuple[str, ...]) -> int:
        """How many data sets the nodes of these places lack, each node by itself."""
        nodes = {pool.gpus[pool.column[place.gpu]].node for place in places} if data else ()
        return sum(len(data) - self._count(node, data) for node in nodes)

    def nodes_with(self, data: tuple[str, ...]) -> list[str]:
        """The nodes that have all of the data."""
        return sorted(node for node, there in self._data.items() if there.issuperset(data))

    def _count(self, node: str, data: tuple[str, ...]) -> int:
        return len(self._data.get(node, frozenset()).intersection(data))
