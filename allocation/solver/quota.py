"""Quota over time: what each owner uses of a class, and whether a window stays under the limit.

Bookings lie in the future, so a limit holds at every instant of a window, reservations included.
Only owners with a limit are followed: no row, no limit. Units; seconds.
"""

from collections.abc import Iterable

import numpy as np

from allocation.solver.calendar import Steps
from allocation.solver.fragmentation import Ints
from allocation.solver.topology import Bools
from allocation.solver.types import Limit

Key = tuple[str, str]


class Quota:
    """Usage of each (owner, class) that has a limit."""

    def __init__(self, limits: Iterable[Limit], origin: int) -> None:
        """Nobody uses anything from `origin` on."""
        self._limits: dict[Key, int] = {
            (row.owner, row.gpu_class): row.limit for row in limits if row.limit is not None
        }
        self._usage = {key: Steps(origin, 1, np.int64) for key in self._limits}

    def prime(self, instants: dict[str, list[int]]) -> None:
        """Prepare for these starts and ends by class; before anything is added."""
        for (_, gpu_class), usage in self._usage.items():
            usage.prime(instants.get(gpu_class, ()))

    def add(
        self, owners: Iterable[str], gpu_class: str, units: int, window: tuple[int, int]
    ) -> None:
        """Each owner uses `units` more (fewer when negative) in [starts, ends)."""
        for owner in owners:
            usage = self._usage.get((owner, gpu_class))
            if usage is not None:
                rows = usage.cut(*window)
                usage.values[rows, 0] += units

    def limit(self, owner: str, gpu_class: str) -> int | None:
        """Most units at any instant; None when there is no limit."""
        return self._limits.get((owner, gpu_class))

    def peak(self, owner: str, gpu_class: str, window: tuple[int, int]) -> int:
        """Most units used at any instant of [starts, ends); 0 for an owner without a limit."""
        usage = self._usage.get((owner, gpu_class))
        if usage is None:
            return 0
        return int(usage.values[usage.rows(*window), 0].max(initial=0))

    def over(
        self, owners: Iterable[str], gpu_class: str, units: int, window: tuple[int, int]
    ) -> str | None:
        """First owner whose limit `units` more would break somewhere in [starts, ends)."""
        for owner in owners:
            limit = self._limits.get((owner, gpu_class))
            if limit is not None and self.peak(owner, gpu_class, window) + units > limit:
                return owner
        return None

    def allows(
        self, owners: Iterable[str], gpu_class: str, units: int, starts: Ints, duration: int
    ) -> Bools | None:
        """Which windows [start, start + duration) no owner's limit forbids; None: all of them."""
        allowed: Bools | None = None
        for owner in owners:
            key = (owner, gpu_class)
            if key not in self._limits:
                continue
            full = self._usage[key].values[:, 0] + units > self._limits[key]
            if not full.any():
                continue
            mine = _clear_of(full, self._usage[key].times, starts, duration)
            allowed = mine if allowed is None else allowed & mine
        return allowed

    def frees_at(
        self, owner: str, gpu_class: str, units: int, window: tuple[int, int]
    ) -> int | None:
        """Earliest start from the window's on at which the owner's limit lets it through."""
        starts, ends = window
        usage = self._usage.get((owner, gpu_class))
        if usage is None:
            return starts
        times = usage.times
        tried = np.concatenate([np.array([starts]), times[times > starts]])
        allowed = self.allows((owner,), gpu_class, units, tried, ends - starts)
        if allowed is None:
            return starts
        return int(tried[int(allowed.argmax())]) if allowed.any() else None


def _clear_of(full: Bools, times: Ints, starts: Ints, duration: int) -> Bools:
    """True for windows that touch no row in which `full` holds."""
    begins = np.append(times[full], np.iinfo(np.int64).max)
    ends = np.append(times[1:], np.iinfo(np.int64).max)[full]
    following = begins[ends.searchsorted(starts, side="right")]
    clear: Bools = following >= starts + duration
    return clear
