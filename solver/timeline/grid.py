"""The seconds at which room opens: a booking's end, rounded up when it is far away.

The booking keeps its own end, and is charged to its second.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools

_EXACT_STEPS = 12
# A year in steps of ten seconds.
_MOST_CELLS = 3_200_000


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
    _cells: Ints = field(init=False, repr=False, compare=False)
    _is_cell: Bools | None = field(init=False, repr=False, compare=False)
    _near: int = field(init=False, repr=False, compare=False)
    """Until then ends keep their second."""

    def __post_init__(self) -> None:
        """Keep the cells as an array, too, and as a table from the first to the last one: looking
        up ten thousand ends in it takes a tenth of the time of a search."""
        cells = np.array(sorted(self.exact_cells), dtype=np.int64)
        object.__setattr__(self, "_cells", cells)
        is_cell = None
        if len(cells) and (span := int(cells[-1] - cells[0]) + 1) <= _MOST_CELLS:
            is_cell = np.zeros(span, dtype=np.bool_)
            is_cell[cells - cells[0]] = True
        object.__setattr__(self, "_is_cell", is_cell)
        object.__setattr__(self, "_near", self.origin + _EXACT_STEPS * self.step)

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
            is_exact |= self._are_exact(ends // self.step)
        return np.where(is_exact, ends, -(-ends // self.step) * self.step)

    def _are_exact(self, cells: Ints) -> Bools:
        """Whether each of these cells is an exact one."""
        if self._is_cell is None:
            at = np.minimum(self._cells.searchsorted(cells), len(self._cells) - 1)
            found: Bools = self._cells[at] == cells
            return found
        at = cells - self._cells[0]
        is_inside = (at >= 0) & (at < len(self._is_cell))
        is_exact: Bools = is_inside & self._is_cell.take(at, mode="clip")
        return is_exact

    @classmethod
    def of(cls, origin: int, step: int, starts: Iterable[int] | Ints) -> "Grid":
        """The grid for these planned starts."""
        every = starts if isinstance(starts, np.ndarray) else np.array([*starts], dtype=np.int64)
        far = every[(every % step != 0) & (every > origin + _EXACT_STEPS * step)]
        return cls(origin, step, frozenset((far // step).tolist()))
