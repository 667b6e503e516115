"""What lies where and may be laid elsewhere, with every move, so that moves can be undone."""

from collections.abc import Iterator, Mapping

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.state.working import Fit, Working

Rows = dict[str, Fit]


class MovableReservations:
    """By class and booking: what is reserved there and may move, each at its own time."""

    def __init__(self, working: Working) -> None:
        """Nothing lies anywhere."""
        self._working = working
        self._rows: dict[str, Rows] = {}
        self._windows: dict[str, _Windows] = {}
        self._moved: list[tuple[str, Fit]] = []

    def add(self, booking: str, found: Fit) -> None:
        """It is reserved there, and may move."""
        self._rows.setdefault(found.demand.gpu_class, {})[booking] = found
        self._windows.pop(found.demand.gpu_class, None)

    def take(self, booking: str, gpu_class: str) -> Fit | None:
        """Where it lies; it moves no more. None: it did not."""
        self._windows.pop(gpu_class, None)
        return self._rows.get(gpu_class, {}).pop(booking, None)

    def found(self, booking: str, gpu_class: str) -> Fit | None:
        """Where it lies; None: it does not move."""
        return self._rows.get(gpu_class, {}).get(booking)

    def near(self, gpu_class: str, window: tuple[int, int]) -> Rows:
        """What shares an instant with the window."""
        rows = self._rows.get(gpu_class, {})
        known = self._windows.get(gpu_class)
        if known is None:
            known = self._windows[gpu_class] = _Windows(rows)
        return {booking: rows[booking] for booking in known.meeting(window)}

    def move(self, gpu_class: str, ends: Mapping[str, Fit]) -> None:
        """They lie elsewhere now, and are reserved there."""
        rows = self._rows[gpu_class]
        self._moved += [(booking, rows[booking]) for booking in ends]
        rows |= ends

    def mark(self) -> int:
        """For `moved_since` and `back`: the moves so far."""
        return len(self._moved)

    def moved_since(self, mark: int) -> int:
        """How many lie elsewhere than they did then."""
        return sum(rows[name].places != found.places for name, found, rows in self._before(mark))

    def back(self, mark: int) -> None:
        """Undo the moves since then: all that still may move lie again where they did."""
        changed = list(self._before(mark))
        del self._moved[mark:]
        for booking, _, rows in changed:
            self._working.free(rows[booking])
        for booking, found, rows in changed:
            self._working.reserve(found)
            rows[booking] = found

    def _before(self, mark: int) -> Iterator[tuple[str, Fit, Rows]]:
        """Where who has been moved since then lay, and among whom it lies now."""
        first: Rows = {}
        for booking, found in self._moved[mark:]:
            first.setdefault(booking, found)
        for booking, found in first.items():
            rows = self._rows[found.demand.gpu_class]
            if booking in rows:
                yield booking, found, rows


class _Windows:
    """When bookings of one class begin and end: they keep that, wherever they are moved."""

    def __init__(self, rows: Rows) -> None:
        """As they are now; neither more of them nor fewer."""
        self._names = tuple(rows)
        self._starts: Ints = np.fromiter((found.starts for found in rows.values()), dtype=np.int64)
        self._ends: Ints = np.fromiter((found.ends for found in rows.values()), dtype=np.int64)

    def meeting(self, window: tuple[int, int]) -> list[str]:
        near = (self._starts < window[1]) & (window[0] < self._ends)
        return [self._names[at] for at in np.flatnonzero(near).tolist()]
