"""What a choice of place costs those who come later: one measure for slices, shares and gangs.

The worth of a GPU in some state is what the recent mix of asks could still get out of it: in the
long run, one ask after the other (`sale`), and at once, each ask for itself (`useful`). Around it
stands the node: gangs need idle GPUs beside each other, and host cores for all. A place is good
when it takes little worth beyond the units that it gives. Integers only: units of a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allocation.solver.model.inputs import UNITS_PER_GPU

Ints = npt.NDArray[np.int64]

ILLEGAL = -1
"""State after a place that can't be."""
SALE = 5
"""What is sold in the long run weighs five times what is useful at once."""
_SCALE = 1 << 12
"""Weights of a mix are parts of this."""
_ASKS = 50
"""How many asks ahead a GPU is looked at."""
_MOST_IDLE = 16
"""More idle GPUs of a node than this are not told apart."""
_UNITS_PER_CORE_OFF = 1_400
"""Cost of each host core per GPU that a node has more or less than the ask has use for."""
_CORES_OFF_MOST = 20_000


@dataclass(frozen=True, slots=True)
class DemandTable:
    """Asks of one shape as one kind of GPU sees them: `weight` of them, for `count` each.

    `after` (places × states) is the GPU's state with one more, ILLEGAL where it does not fit;
    state 0 is an idle GPU. `useful` (states) are the units that are open to it. `cores` are host
    cores in thousandths, 0 where they do not matter.
    """

    weight: int
    count: int
    cores: int
    units: int
    after: Ints
    useful: Ints


@dataclass(frozen=True, slots=True)
class NodeState:
    """The node of each candidate, as arrays of one length: kind of its GPUs, sum of `useful` over
    them, how many are idle, and free host cores in thousandths."""

    kind: Ints
    useful: Ints
    idle: Ints
    cores: Ints

    def less(self, useful: "Ints | int", idle: "Ints | int", cores: int) -> "NodeState":
        """The same nodes with so much taken from each."""
        return NodeState(self.kind, self.useful - useful, self.idle - idle, self.cores - cores)


class ScoreTables:
    """Worth under a mix, as tables: `sale` and `useful` are (kinds × states)."""

    def __init__(self, kinds: Sequence[Sequence[DemandTable]], demand: int) -> None:
        """What each kind is asked for; `demand` is the weight of all asks, served or not."""
        states = max((offer.after.shape[1] for offers in kinds for offer in offers), default=1)
        shape = (len(kinds), states)
        self.sale: Ints = np.zeros(shape, dtype=np.int64)
        self.useful: Ints = np.zeros(shape, dtype=np.int64)
        steps = {offer.cores for offers in kinds for offer in offers}
        self._steps: Ints = np.array(sorted({0} | steps), dtype=np.int64)
        self.minds_cores = len(self._steps) > 1
        self._served: Ints = np.zeros((len(kinds), len(self._steps)), dtype=np.int64)
        shape_gangs = (len(kinds), _MOST_IDLE + 1, len(self._steps))
        self._gangs: Ints = np.zeros(shape_gangs, dtype=np.int64)
        for kind, offers in enumerate(kinds):
            parts = [(offer, offer.weight * _SCALE // demand) for offer in offers]
            singles = [each for each in parts if each[0].count == 1]
            if singles:
                width = singles[0][0].after.shape[1]
                self.sale[kind, :width] = _sale(singles)
                self.useful[kind, :width] = _useful(singles)
            self._add_cores(kind, singles)
            self._add_gangs(kind, [each for each in parts if each[0].count > 1])

    def around(self, nodes: NodeState) -> Ints:
        """Units at each node that asks could use at once: single ones, and gangs of idle GPUs."""
        step = self._steps.searchsorted(nodes.cores, side="right") - 1
        gangs = self._gangs[nodes.kind, np.minimum(nodes.idle, _MOST_IDLE), step]
        found: Ints = self._served[nodes.kind, step] * nodes.useful // _SCALE + gangs
        return found

    def loss(self, sale_lost: "Ints | int", before: NodeState, after: NodeState) -> Ints:
        """Worth that each candidate takes; the least is the best place."""
        found: Ints = SALE * sale_lost + self.around(before) - self.around(after)
        return found

    def _add_cores(self, kind: int, singles: Sequence[tuple[DemandTable, int]]) -> None:
        total = max(sum(part for _, part in singles), 1)
        for offer, part in singles:
            self._served[kind, self._steps >= offer.cores] += part
        self._served[kind] = self._served[kind] * _SCALE // total

    def _add_gangs(self, kind: int, gangs: Sequence[tuple[DemandTable, int]]) -> None:
        for offer, part in gangs:
            for idle in range(offer.count, _MOST_IDLE + 1):
                units = part * idle * UNITS_PER_GPU // _SCALE
                self._gangs[kind, idle, self._steps >= offer.cores] += units


def mismatch(cores: Ints, units: Ints, wanted_cores: int, wanted_units: int) -> Ints:
    """Cost of taking an ask to nodes whose free cores per free GPU differ from its own."""
    have = cores * UNITS_PER_GPU // np.maximum(units, 1)
    off = np.abs(have - wanted_cores * UNITS_PER_GPU // wanted_units)
    cost: Ints = np.minimum(off, _CORES_OFF_MOST) * _UNITS_PER_CORE_OFF // 1_000
    return cost


def _sale(singles: Sequence[tuple[DemandTable, int]]) -> Ints:
    """Units that the next asks take of a GPU when each is let in only if that pays.

    The asks come by chance, so each step is the mean over the mix; floors keep it an integer.
    """
    # The state at the end is where what does not fit would lead; ILLEGAL points at it.
    worth: Ints = np.zeros(singles[0][0].after.shape[1] + 1, dtype=np.int64)
    worth[ILLEGAL] = -2 * UNITS_PER_GPU
    units = np.array([offer.units for offer, _ in singles], dtype=np.int64)[:, None]
    part = np.array([part for _, part in singles], dtype=np.int64)
    for _ in range(_ASKS):
        best = np.array([worth[offer.after].max(axis=0) for offer, _ in singles]) + units
        worth[:-1] += part @ np.maximum(best - worth[:-1], 0) // _SCALE
    return worth[:-1]


def _useful(singles: Sequence[tuple[DemandTable, int]]) -> Ints:
    """Mean over the mix of the units that are open to each ask."""
    total: Ints = np.zeros(singles[0][0].after.shape[1], dtype=np.int64)
    for offer, part in singles:
        total += part * offer.useful
    return total // _SCALE
