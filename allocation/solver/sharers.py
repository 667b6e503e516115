"""Who has shares of which GPU when: by default one owner at a time, as nodes are set up."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from allocation.solver.fragmentation import Ints
from allocation.solver.topology import Bools, Pool
from allocation.solver.types import Place

Window = tuple[int, int]


class Sharers:
    """Shares by GPU. Without `alone` anybody shares with anybody, and nothing is kept."""

    def __init__(self, *, alone: bool) -> None:
        """Nobody shares."""
        self._alone = alone
        self._rows: dict[str, Counter[tuple[str, int, int]]] = {}

    def copy(self) -> "Sharers":
        """The same, apart from this one."""
        twin = Sharers(alone=self._alone)
        twin._rows = {gpu: rows.copy() for gpu, rows in self._rows.items()}
        return twin

    def lay(self, places: Iterable[Place], owner: str, window: Window, sign: int = 1) -> None:
        """The owner has these places, as far as they are shares; with `sign` -1 no longer."""
        for place in places if self._alone else ():
            if place.share is not None:
                rows = self._rows.setdefault(place.gpu, Counter())
                rows[owner, *window] += sign
                if not rows[owner, *window]:
                    del rows[owner, *window]

    def is_free(self, places: Iterable[Place], owner: str, window: Window) -> bool:
        """True when nobody else has a share of the same GPUs at any instant of the window."""
        starts, ends = window
        return not any(
            whose != owner and since < ends and starts < until
            for place in places
            if place.share is not None
            for whose, since, until in self._rows.get(place.gpu, ())
        )

    def others(self, pool: Pool, owner: str, windows: tuple[Ints, int]) -> Bools:
        """Columns of which others have shares at some instant of each window."""
        starts, duration = windows
        found: Bools = np.zeros((len(starts), len(pool)), dtype=np.bool_)
        for gpu, rows in self._rows.items():
            column = pool.column.get(gpu)
            if column is None:
                continue
            for whose, since, until in rows:
                if whose != owner:
                    found[:, column] |= (since < starts + duration) & (starts < until)
        return found
