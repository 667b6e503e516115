"""The cost of a place for later demand: one score for slices, shares and gangs.

The score of a GPU in a state is what the recent mix of demand could still get from it: in the long
run, one request after the other (`long_run`), and at once, each request by itself (`immediate`).
Its node adds to that: gangs need neighbouring idle GPUs, and host cores for all. A place is good
when it takes little score beyond its own units. Integers only: units of a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.model.inputs import UNITS_PER_GPU
from solver.model.policy import Scoring

Ints = npt.NDArray[np.int64]

DEFAULT_SCORING = Scoring()
ILLEGAL = -1
"""State after an impossible place."""
_SCALE = 1 << 12
"""Weights of a mix are parts of this."""
_MOST_IDLE = 16
"""Upper bound of the idle GPUs that are counted for a node."""


@dataclass(frozen=True, slots=True)
class DemandTable:
    """Demand for one shape on one kind of GPU: `weight` requests for `count` each.

    `after` (places × states) is the GPU's state with one more, ILLEGAL where it does not fit; state
    0 is an idle GPU. `immediate` (states) are the units open to it. `cores` are host cores in
    thousandths, 0 where they do not matter.
    """

    weight: int
    count: int
    cores: int
    units: int
    after: Ints
    immediate: Ints


@dataclass(frozen=True, slots=True)
class NodeState:
    """The node of each candidate, as arrays of one length: kind of its GPUs, sum of their
    `immediate`, number of idle GPUs, and free host cores in thousandths."""

    kind: Ints
    immediate: Ints
    idle: Ints
    cores: Ints

    def less(self, immediate: "Ints | int", idle: "Ints | int", cores: int) -> "NodeState":
        """The same nodes with this much taken from each."""
        return NodeState(self.kind, self.immediate - immediate, self.idle - idle, self.cores - cores)


class ScoreTables:
    """Scores under a mix, as tables: `long_run` and `immediate` are (kinds × states)."""

    def __init__(
        self,
        kinds: Sequence[Sequence[DemandTable]],
        demand: int,
        scoring: Scoring = DEFAULT_SCORING,
    ) -> None:
        """Tables for each kind; `demand` is the weight of all requests, served or not."""
        self.scoring = scoring
        states = max((offer.after.shape[1] for offers in kinds for offer in offers), default=1)
        shape = (len(kinds), states)
        self.long_run: Ints = np.zeros(shape, dtype=np.int64)
        self.immediate: Ints = np.zeros(shape, dtype=np.int64)
        steps = {offer.cores for offers in kinds for offer in offers}
        self._steps: Ints = np.array(sorted({0} | steps), dtype=np.int64)
        self.needs_cores = len(self._steps) > 1
        self._served: Ints = np.zeros((len(kinds), len(self._steps)), dtype=np.int64)
        shape_gangs = (len(kinds), _MOST_IDLE + 1, len(self._steps))
        self._gangs: Ints = np.zeros(shape_gangs, dtype=np.int64)
        for kind, offers in enumerate(kinds):
            parts = [(offer, offer.weight * _SCALE // demand) for offer in offers]
            singles = [each for each in parts if each[0].count == 1]
            if singles:
                width = singles[0][0].after.shape[1]
                self.long_run[kind, :width] = _long_run(singles, scoring.future_requests)
                self.immediate[kind, :width] = _immediate(singles)
            self._add_cores(kind, singles)
            self._add_gangs(kind, [each for each in parts if each[0].count > 1])

    def around(self, nodes: NodeState) -> Ints:
        """Units at each node that demand could use at once: single requests, and gangs of idle
        GPUs."""
        step = self._steps.searchsorted(nodes.cores, side="right") - 1
        gangs = self._gangs[nodes.kind, np.minimum(nodes.idle, _MOST_IDLE), step]
        found: Ints = self._served[nodes.kind, step] * nodes.immediate // _SCALE + gangs
        return found

    def loss(self, long_run_lost: "Ints | int", before: NodeState, after: NodeState) -> Ints:
        """Score that each candidate takes; the least is the best place."""
        weight = self.scoring.long_run_weight
        found: Ints = weight * long_run_lost + self.around(before) - self.around(after)
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


def mismatch(scoring: Scoring, cores: Ints, units: Ints, wanted_cores: int, wanted_units: int) -> Ints:
    """Cost of nodes whose free cores per free GPU differ from the demand's."""
    have = cores * UNITS_PER_GPU // np.maximum(units, 1)
    off = np.abs(have - wanted_cores * UNITS_PER_GPU // wanted_units)
    cost: Ints = np.minimum(off, scoring.host_cores_off) * scoring.host_core_cost // 1_000
    return cost


def _long_run(singles: Sequence[tuple[DemandTable, int]], requests: int) -> Ints:
    """Units that the next `requests` take of a GPU when each is accepted only if that pays.

    Requests come at random, so each step is the mean over the mix; rounding down keeps it an
    integer.
    """
    # ILLEGAL indexes the last state, which stands for what does not fit.
    score: Ints = np.zeros(singles[0][0].after.shape[1] + 1, dtype=np.int64)
    score[ILLEGAL] = -2 * UNITS_PER_GPU
    units = np.array([offer.units for offer, _ in singles], dtype=np.int64)[:, None]
    part = np.array([part for _, part in singles], dtype=np.int64)
    for _ in range(requests):
        best = np.array([score[offer.after].max(axis=0) for offer, _ in singles]) + units
        score[:-1] += part @ np.maximum(best - score[:-1], 0) // _SCALE
    return score[:-1]


def _immediate(singles: Sequence[tuple[DemandTable, int]]) -> Ints:
    """Mean over the mix of the units open to each request."""
    total: Ints = np.zeros(singles[0][0].after.shape[1], dtype=np.int64)
    for offer, part in singles:
        total += part * offer.immediate
    return total // _SCALE
