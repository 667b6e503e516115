"""Place asks for shares of GPUs, whole GPUs, host cores and memory on nodes, one at a time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allocation.solver.fragmentation import (
    ILLEGAL,
    Beside,
    Ints,
    Offer,
    Values,
    mismatch,
    spare,
)
from allocation.solver.types import UNITS_PER_GPU

WHOLE = 1_000
"""A GPU in thousandths."""
_UNITS = UNITS_PER_GPU // WHOLE


@dataclass(frozen=True, slots=True)
class Host:
    """A node: cores in thousandths, memory in MiB, `gpus` alike of one model."""

    id: str
    model: str
    gpus: int
    cores: int
    memory: int


@dataclass(frozen=True, slots=True)
class HostAsk:
    """`count` GPUs on one node, `share` thousandths of each, of the models if any are named.

    A share below a whole GPU is of a single one. No GPU at all: count 0, share 0.
    """

    count: int
    share: int
    cores: int
    memory: int
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """ValueError for an ask that has no meaning."""
        if not 0 <= self.share <= WHOLE or (self.count == 0) != (self.share == 0):
            raise ValueError(f"{self.count} × {self.share} thousandths of a GPU")
        if self.count > 1 and self.share != WHOLE:
            raise ValueError("only one GPU can be shared by an ask")


@dataclass(frozen=True, slots=True)
class Spot:
    """Where an ask goes: the node's place in the list of hosts, and its GPUs by index."""

    node: int
    gpus: tuple[int, ...]


class Hosts:
    """Nodes and what is taken of them. Equal choices fall to the lower id."""

    def __init__(self, hosts: Iterable[Host], mix: Counter[HostAsk]) -> None:
        """Empty nodes in the order of their ids; `mix` is what has been asked for lately."""
        self.hosts = tuple(sorted(hosts, key=lambda host: host.id))
        self.models = tuple(sorted({host.model for host in self.hosts}))
        number = {model: kind for kind, model in enumerate(self.models)}
        self._kind = _ints(number[host.model] for host in self.hosts)
        self.cores = _ints(host.cores for host in self.hosts)
        self.memory = _ints(host.memory for host in self.hosts)
        gpus = _ints(host.gpus for host in self.hosts)
        self._first: Ints = np.concatenate([[0], np.cumsum(gpus)]).astype(np.int64)
        self._node: Ints = np.repeat(np.arange(len(gpus)), gpus)
        self.busy: Ints = np.zeros(int(gpus.sum()), dtype=np.int64)
        demand = max(1, sum(weight for ask, weight in mix.items() if ask.count))
        self._values = Values([_offers(mix, model) for model in self.models], demand)
        self._idle: Ints = gpus.copy()
        self._free: Ints = gpus * UNITS_PER_GPU
        self._useful: Ints = gpus * self._values.useful[self._kind, 0]
        # Candidates for a share: every GPU in use, and of a node's idle ones the first.
        self._open: npt.NDArray[np.bool_] = np.zeros(len(self.busy), dtype=np.bool_)
        self._open[self._first[:-1][gpus > 0]] = True

    def choose(self, ask: HostAsk) -> Spot | None:
        """The place that costs later asks least; None when no node has the room."""
        able = (self.cores >= ask.cores) & (self.memory >= ask.memory)
        if ask.models:
            able &= np.array([model in ask.models for model in self.models])[self._kind]
        if ask.count == 0:
            return self._for_cores(ask, np.flatnonzero(able))
        if ask.share == WHOLE:
            return self._for_whole(ask, np.flatnonzero(able & (self._idle >= ask.count)))
        fits = self._open & (self.busy <= WHOLE - ask.share)
        columns = np.flatnonzero(fits)
        return self._for_share(ask, columns[able[self._node[columns]]])

    def take(self, ask: HostAsk, spot: Spot) -> None:
        """Make it so. ValueError when the room is not free."""
        self._change(spot, ask.share, ask.cores, ask.memory)

    def give_back(self, ask: HostAsk, spot: Spot) -> None:
        """Undo of `take`. ValueError when it was not taken."""
        self._change(spot, -ask.share, -ask.cores, -ask.memory)

    def _for_cores(self, ask: HostAsk, nodes: Ints) -> Spot | None:
        if not len(nodes):
            return None
        before = self._beside(nodes)
        loss = self._values.loss(0, before, before.less(0, 0, ask.cores))
        loss -= spare(before.cores, self._free[nodes])
        return Spot(int(nodes[loss.argmin()]), ())

    def _for_whole(self, ask: HostAsk, nodes: Ints) -> Spot | None:
        if not len(nodes):
            return None
        before, values = self._beside(nodes), self._values
        gone = ask.count * (values.useful[before.kind, 0] - values.useful[before.kind, WHOLE])
        sold = ask.count * (values.sale[before.kind, 0] - values.sale[before.kind, WHOLE])
        loss = values.loss(sold, before, before.less(gone, ask.count, ask.cores))
        loss += mismatch(before.cores, self._free[nodes], ask.cores, ask.count * UNITS_PER_GPU)
        node = int(nodes[loss.argmin()])
        idle = np.flatnonzero(self.busy[self._first[node] : self._first[node + 1]] == 0)
        return Spot(node, tuple(idle[: ask.count].tolist()))

    def _for_share(self, ask: HostAsk, columns: Ints) -> Spot | None:
        if not len(columns):
            return None
        nodes, busy, values = self._node[columns], self.busy[columns], self._values
        before, after = self._beside(nodes), busy + ask.share
        gone = values.useful[before.kind, busy] - values.useful[before.kind, after]
        sold = values.sale[before.kind, busy] - values.sale[before.kind, after]
        loss = values.loss(sold, before, before.less(gone, busy == 0, ask.cores))
        loss += mismatch(before.cores, self._free[nodes], ask.cores, ask.share * _UNITS)
        best = int(loss.argmin())
        node = int(nodes[best])
        return Spot(node, (int(columns[best] - self._first[node]),))

    def _beside(self, nodes: Ints) -> Beside:
        return Beside(self._kind[nodes], self._useful[nodes], self._idle[nodes], self.cores[nodes])

    def _change(self, spot: Spot, share: int, cores: int, memory: int) -> None:
        node, first = spot.node, int(self._first[spot.node])
        row = self.busy[first : int(self._first[node + 1])]
        gpus = list(spot.gpus)
        host, after = self.hosts[node], row.copy()
        after[gpus] += share
        left = (int(self.cores[node]) - cores, int(self.memory[node]) - memory)
        if ((after < 0) | (after > WHOLE)).any() or len(set(gpus)) != len(gpus):
            raise ValueError(f"not free: {share} thousandths of {gpus} on {host.id}")
        if not (0 <= left[0] <= host.cores and 0 <= left[1] <= host.memory):
            raise ValueError(f"not free: {cores} cores and {memory} MiB on {host.id}")
        row[:] = after
        self.cores[node], self.memory[node] = left
        self._free[node] -= share * _UNITS * len(gpus)
        idle = row == 0
        self._idle[node] = idle.sum()
        self._useful[node] = self._values.useful[self._kind[node], row].sum()
        opened = ~idle
        if idle.any():
            opened[int(idle.argmax())] = True
        self._open[first : first + len(row)] = opened


def _offers(mix: Counter[HostAsk], model: str) -> list[Offer]:
    """What the mix asks of a model."""
    states = np.arange(WHOLE + 1, dtype=np.int64)
    shapes: Counter[tuple[int, int, int]] = Counter()
    for ask, weight in mix.items():
        if ask.count and (not ask.models or model in ask.models):
            shapes[ask.count, ask.share, ask.cores] += weight
    return [
        Offer(
            weight,
            count,
            cores,
            share * _UNITS,
            np.where(states + share <= WHOLE, states + share, ILLEGAL)[None, :],
            (WHOLE - states) * _UNITS,
        )
        for (count, share, cores), weight in sorted(shapes.items())
    ]


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)
