"""A cache of stretches without room, so that later searches can skip them.

While room only gets less, a full stretch stays full. Most planned starts stay where they are: one
look at each stretch proves that for all demands of a kind. A newcomer that found no room rules the
same out for the next of its kind.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.pool import Bools
from allocation.solver.model.demand import Demand
from allocation.solver.placement.gang import fits
from allocation.solver.timeline.gpu_calendar import GpuCalendar


class NoRoomCache:
    """Full stretches of each class, for each kind of demand, read as far as needed."""

    def __init__(self, calendars: dict[str, GpuCalendar]) -> None:
        """Nothing is known."""
        self._calendars = calendars
        self._kinds: dict[str, dict[tuple[object, ...], _Kind]] = {}
        self._none_before: dict[str, dict[tuple[object, ...], dict[int, int]]] = {}

    def forget(self, gpu_class: str, since: int) -> None:
        """Room of the class may have become free from `since` on."""
        for kind in self._kinds.get(gpu_class, {}).values():
            kind.forget(since)
        self._none_before.pop(gpu_class, None)

    def first_possible(self, demand: Demand) -> int:
        """The second before which, by earlier searches, no window of the demand has room.

        Searches for the same or a shorter duration count.
        """
        known = self._none_before.get(demand.gpu_class, {}).get(_what(demand), {})
        return max((at for seconds, at in known.items() if seconds <= demand.duration), default=0)

    def record_search(self, demand: Demand, starts: int) -> None:
        """Record that every window from now on that begins before `starts` failed.

        Host cores and memory may become free with another class, and others have no pin, so demands
        with either record nothing.
        """
        if demand.share is None and not demand.pin and not any(demand.host_resources):
            kinds = self._none_before.setdefault(demand.gpu_class, {})
            known = kinds.setdefault(_what(demand), {})
            known[demand.duration] = max(starts, known.get(demand.duration, 0))

    @contextmanager
    def trial(self, gpu_class: str) -> Iterator[Callable[[], None]]:
        """Restore what is known at the end, unless the yielded function was called: then what was
        freed inside has not been taken again."""
        kept: list[bool] = []
        known = self._none_before.get(gpu_class)
        yield lambda: kept.append(True)
        if known is not None and not kept:
            self._none_before[gpu_class] = known

    def is_full_until(self, demand: Demand, starts: int) -> bool:
        """True when certainly no window that begins before `starts` has room.

        Such a window either ends by then, inside a long enough stretch with room, or contains
        the instant before `starts`. If neither exists there is none, whatever is free later. So the
        caller's own reservation from `starts` on need not be removed first. Only GPUs are examined:
        hosts, share owners and quota can only forbid more.
        """
        if demand.share is not None or demand.pin:
            return False
        kinds = self._kinds.setdefault(demand.gpu_class, {})
        what = _what(demand)
        if what not in kinds:
            kinds[what] = _Kind(self._calendars[demand.gpu_class], demand)
        return kinds[what].is_full_until(starts, demand.duration)


def _what(demand: Demand) -> tuple[object, ...]:
    return (demand.shape, demand.count, demand.level)


class _Kind:
    """One shape, count and level on one class."""

    def __init__(self, calendar: GpuCalendar, demand: Demand) -> None:
        self._calendar, self._want = calendar, demand
        self._until = 0
        self._ends: Ints = np.zeros(0, dtype=np.int64)
        self._full: Bools = np.zeros(0, dtype=np.bool_)
        self._longest: Ints = np.zeros(0, dtype=np.int64)

    def forget(self, since: int) -> None:
        """Forget what was seen from `since` on."""
        self._until = min(self._until, since)

    def is_full_until(self, starts: int, duration: int) -> bool:
        """See `NoRoomCache.is_full_until`."""
        if starts > self._until:
            self._look(starts)
        at = int(self._ends.searchsorted(starts))
        # The stretch that contains the instant before `starts`.
        return bool(self._full[at]) and int(self._longest[at]) < duration

    def _look(self, until: int) -> None:
        """Examine the stretches up to `until` that are not known yet."""
        known = int(self._ends.searchsorted(self._until, side="right"))
        since = int(self._ends[known - 1]) if known else self._calendar.origin
        ends, masks = self._calendar.stretches(since, until)
        full = ~fits(self._calendar.pool, self._want, masks)
        self._full = np.concatenate([self._full[:known], full])
        self._ends = np.concatenate([self._ends[:known], ends])
        self._until = until
        last_full = np.where(self._full, self._ends, self._calendar.origin)
        # The longest time without a full stretch, up to the end of each.
        since_full = self._ends - np.maximum.accumulate(last_full)
        self._longest = np.maximum.accumulate(since_full)
