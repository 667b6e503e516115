"""Host cores and memory over time."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Index, Pool
from solver.model.inputs import Place
from solver.model.sites.nodes import Host
from solver.timeline.grid import Grid
from solver.timeline.step_function import StepFunction


@dataclass(frozen=True, slots=True)
class Free:
    """Free cores (thousandths) and memory (MiB) of each node of a pool.

    Both (windows × nodes), or for a single window (nodes).
    """

    cores: Ints
    memory: Ints

    def row(self, at: int) -> "Free":
        """One of the windows."""
        return Free(self.cores[at], self.memory[at])

    def as_window(self) -> "Free":
        """A single window as one of several."""
        return Free(self.cores[None, :], self.memory[None, :])

    def less(self, node: int, cores: int, memory: int) -> "Free":
        """A single window with this much of a node taken."""
        left = Free(self.cores.copy(), self.memory.copy())
        left.cores[node] = max(0, left.cores[node] - cores)
        left.memory[node] = max(0, left.memory[node] - memory)
        return left

    def devices(self, cores: int, memory: int) -> Ints:
        """How many more devices that need this much each node can serve."""
        by_cores = self.cores // cores if cores else None
        if not memory:
            return by_cores if by_cores is not None else np.full_like(self.cores, 1 << 16)
        by_memory = self.memory // memory
        return by_memory if by_cores is None else np.minimum(by_cores, by_memory)


class HostCalendar:
    """The nodes' cores and memory, and their use over time.

    A node without known host resources serves no demand for cores or memory.
    """

    def __init__(self, hosts: Iterable[Host], pools: Collection[Pool], grid: Grid, instants: Ints) -> None:
        """Nothing is taken; there are rows for the starts and ends in `instants`."""
        rows = tuple(hosts)
        self._grid = grid
        self._number = {host.id: number for number, host in enumerate(rows)}
        # The last column stands for unknown nodes.
        self._cores: Ints = np.array([*(host.cores for host in rows), 0], dtype=np.int64)
        self._memory: Ints = np.array([*(host.memory for host in rows), 0], dtype=np.int64)
        self._taken: StepFunction | None = None
        self._instants = instants
        self._at: dict[str, Index] = {
            pool.gpu_class: np.array([self._column(node) for node in pool.nodes], dtype=np.intp)
            for pool in pools
        }
        self._node = {gpu.id: gpu.node for pool in pools for gpu in pool.gpus}
        self._pools_of: dict[str, set[str]] = {}
        for pool in pools:
            for node in pool.nodes:
                self._pools_of.setdefault(node, set()).add(pool.gpu_class)
        self.version: Counter[str] = Counter()
        """Number of changes so far on the nodes of each class."""

    @property
    def are_known(self) -> bool:
        """True when any node has known host resources."""
        return bool(self._number)

    def node_of(self, place: Place) -> str:
        """The node that a place is on."""
        return self._node[place.gpu]

    def copy(self) -> "HostCalendar":
        twin = HostCalendar.__new__(HostCalendar)
        twin.__dict__.update(self.__dict__)
        twin._taken = self._taken and self._taken.copy()
        twin.version = self.version.copy()
        return twin

    def is_same(self, other: "HostCalendar") -> bool:
        """True when the same is taken at the same times."""
        mine, its = self._taken, other._taken
        return mine is its or (mine is not None and mine.is_same(its))

    def add(
        self, places: Iterable[Place], each: tuple[int, int], window: tuple[int, int], sign: int = 1
    ) -> None:
        """Take cores and memory for each place; `sign` -1 gives them back."""
        if not any(each):
            return
        for place in places:
            self.take(self._node[place.gpu], each, window, sign)

    def take(self, node: str, what: tuple[int, int], window: tuple[int, int], sign: int = 1) -> None:
        """Take cores and memory of a node without a check: running work is there."""
        if self._taken is None:
            width = 2 * len(self._cores)
            self._taken = StepFunction(self._grid, width, np.int64, self._instants)
        self.version.update(self._pools_of.get(node, ()))
        rows = self._taken.cut(*window)
        column = self._column(node)
        self._taken.values[rows, column] += sign * what[0]
        self._taken.values[rows, len(self._cores) + column] += sign * what[1]

    def between(self, first: int, last: int) -> Ints:
        """Instants in (first, last] at which something changes."""
        if self._taken is None:
            return np.empty(0, dtype=np.int64)
        return self._taken.between(first, last)

    def free(self, pool: Pool, starts: Ints, duration: int) -> Free:
        """What is free at every instant of each window on the nodes of the pool."""
        at = self._at[pool.gpu_class]
        if self._taken is None:
            shape = (len(starts), len(at))
            whole = self.whole(pool)
            return Free(np.broadcast_to(whole.cores, shape), np.broadcast_to(whole.memory, shape))
        taken = self._taken.over((starts, duration), np.maximum)
        cores = self._cores[at] - taken[:, at]
        memory = self._memory[at] - taken[:, len(self._cores) + at]
        return Free(np.maximum(cores, 0), np.maximum(memory, 0))

    def least(self, node: str, window: tuple[int, int]) -> tuple[int, int]:
        """Cores and memory of a node that are free at every instant of a window."""
        column = self._column(node)
        both = [column, len(self._cores) + column]
        taken = np.zeros(2, dtype=np.int64)
        if self._taken is not None:
            rows = self._taken.values[self._taken.rows(*window)]
            taken = np.maximum.reduce(rows[:, both], axis=0, initial=0)
        return int(self._cores[column] - taken[0]), int(self._memory[column] - taken[1])

    def whole(self, pool: Pool) -> Free:
        """All host resources of the pool's nodes."""
        at = self._at[pool.gpu_class]
        return Free(self._cores[at], self._memory[at])

    def has(self, places: Iterable[Place], each: tuple[int, int], window: tuple[int, int]) -> bool:
        """True when the places' nodes have this much free for each of them."""
        if not any(each):
            return True
        devices = Counter(self._column(self._node[place.gpu]) for place in places)
        width = len(self._cores)
        taken = np.zeros(2 * width, dtype=np.int64)
        if self._taken is not None:
            rows = self._taken.values[self._taken.rows(*window)]
            taken = np.maximum.reduce(rows, axis=0, initial=0)
        return all(
            taken[node] + count * each[0] <= self._cores[node]
            and taken[width + node] + count * each[1] <= self._memory[node]
            for node, count in devices.items()
        )

    def _column(self, node: str) -> int:
        return self._number.get(node, len(self._number))
