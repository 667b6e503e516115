"""Which nodes of a class have the data that a request names."""

from collections.abc import Iterable

import numpy as np

from solver.fleet.pool import Bools, Pool
from solver.model.inputs import Place
from solver.model.nodes import Cache

Key = tuple[str, tuple[str, ...]]


class DataPlaces:
    """The columns of each class by how much of some data their nodes have."""

    def __init__(self, caches: Iterable[Cache]) -> None:
        self._data = {cache.node: frozenset(cache.data) for cache in caches}
        self._preferred: dict[Key, tuple[Bools, ...]] = {}

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
