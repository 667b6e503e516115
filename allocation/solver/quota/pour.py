"""Uses that take up guarantees one after the other."""

from collections.abc import Iterable, Sequence

import numpy as np

from allocation.solver.quota.quota import Guarantees, Quota, Use
from allocation.solver.quota.tree import Tree

_FEW = 16
"""From so many rows on, all are added to the quota at once."""


class Pour:
    """Guarantees of an empty quota, taken up by rows in turn. Rows are named by their numbers."""

    def __init__(self, quota: Quota, rows: Sequence[tuple[Use, tuple[int, int]]]) -> None:
        """Nothing is taken up yet."""
        self._quota, self._rows = quota, rows
        kinds = {use[:3]: use for use, _ in rows}
        known = {kind: quota.guarantees(use) for kind, use in kinds.items()}
        self._of = [known[use[:3]] for use, _ in rows]
        self._slices = self._slices_of(filter(None, known.values()))

    def _slices_of(self, known: Iterable[Guarantees]) -> dict[int, dict[int, slice]]:
        """By tree and row, the rows of the tree in its window."""
        trees: dict[int, Tree] = {}
        for each in known:
            trees |= {id(tree): tree for tree in (each.tree, *each.written)}
        numbers: dict[int, list[int]] = {name: [] for name in trees}
        for number, own in enumerate(self._of):
            for name in {id(own.tree), *map(id, own.written)} if own is not None else ():
                numbers[name].append(number)
        found = {}
        for name, tree in trees.items():
            windows = np.array([self._rows[n][1] for n in numbers[name]], dtype=np.int64)
            windows = windows.reshape(-1, 2)
            slices = tree.slices(windows[:, 0], windows[:, 1])
            found[name] = dict(zip(numbers[name], slices, strict=True))
        return found

    def borrowed(self, number: int) -> int:
        """How many units of a row are above the guarantees that are left."""
        own, use = self._of[number], self._rows[number][0]
        if own is None:
            return use.units if self._quota.has_limit(use) else 0
        room = own.tree.room_in(own.path, self._slices[id(own.tree)][number])
        return max(0, use.units - room)

    def add(self, numbers: Sequence[int]) -> None:
        """Take up what these rows have: one by one where they are few, which is cheaper then."""
        if len(numbers) >= _FEW:
            self._quota.add_all(self._rows[number] for number in numbers)
            return
        for number in numbers:
            own, units = self._of[number], self._rows[number][0].units
            if own is not None:
                for tree in own.written:
                    tree.add_in(own.path, units, self._slices[id(tree)][number])
