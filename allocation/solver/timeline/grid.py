"""The seconds at which room opens: a booking's end, rounded up when it is far away.

The booking keeps its own end, and is charged to its second.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from allocation.solver.fleet.fragmentation import Ints

_EXACT_STEPS = 12


@dataclass(frozen=True, slots=True)
class Grid:
    """When room opens: an end that is far away is rounded up to a multiple of `step`, so that not
    every end makes a row of its own.

    Ends within twelve steps of `origin` keep their second, because what starts there is next. So
    do ends in `exact_cells` (multiples of `step` by number), where a start off the grid is planned:
    rounding never takes room away from it. Room never opens later than an earlier cycle said.
    """

    origin: int
    step: int = 1
    exact_cells: frozenset[int] = frozenset()

    def end(self, ends: int) -> int:
        """The second at which the room of something that ends then opens."""
        if ends <= self._near or ends // self.step in self.exact_cells:
            return ends
        return -(-ends // self.step) * self.step

    def ends(self, ends: Ints) -> Ints:
        """The same for many."""
        if self.step == 1:
            return ends
        is_exact = ends <= self._near
        if self.exact_cells:
            is_exact |= np.isin(ends // self.step, list(self.exact_cells))
        return np.where(is_exact, ends, -(-ends // self.step) * self.step)

    @classmethod
    def of(cls, origin: int, step: int, starts: Iterable[int]) -> "Grid":
        """The grid for these planned starts."""
        near = origin + _EXACT_STEPS * step
        return cls(origin, step, frozenset(s // step for s in starts if s % step and s > near))

    @property
    def _near(self) -> int:
        return self.origin + _EXACT_STEPS * self.step
