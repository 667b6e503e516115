"""Until when there is no room: what one search has seen, so that the next need not look again.

While room only gets less, what was full stays so. Most promises stay where they are, cycle after
cycle: one look at each stretch of time proves it for all of a kind. And where there was no room for
one newcomer there is none for the next of its kind.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from allocation.solver.fleet.columns import Bools
from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.placement.gang import Demand, fits
from allocation.solver.timeline.gpu_calendar import GpuCalendar


class NoRoomCache:
    """What of a class is full when, for each kind of ask, read from now on as far as needed.

    What was full stays so while room only gets less; `forget` says from when on that is not so.
    """

    def __init__(self, calendars: dict[str, GpuCalendar]) -> None:
        """Nothing has been looked at yet."""
        self._calendars = calendars
        self._kinds: dict[str, dict[tuple[object, ...], _Kind]] = {}
        self._none_before: dict[str, dict[tuple[object, ...], dict[int, int]]] = {}

    def forget(self, gpu_class: str, since: int) -> None:
        """Something of the class may have come free from then on."""
        for kind in self._kinds.get(gpu_class, {}).values():
            kind.forget(since)
        self._none_before.pop(gpu_class, None)

    def first_possible(self, demand: Demand) -> int:
        """No window of the want that begins before this second has room, by an earlier search.

        It was for the same or for less time.
        """
        known = self._none_before.get(demand.gpu_class, {}).get(_what(demand), {})
        return max((at for seconds, at in known.items() if seconds <= demand.duration), default=0)

    def record_search(self, demand: Demand, starts: int) -> None:
        """Every window of the want from now on that begins before `starts` was tried in vain.

        Cores and memory of a node may come free on another class, and others are not pinned: what
        asks for either says nothing.
        """
        if demand.share is None and not demand.pin and not any(demand.of_host):
            kinds = self._none_before.setdefault(demand.gpu_class, {})
            known = kinds.setdefault(_what(demand), {})
            known[demand.duration] = max(starts, known.get(demand.duration, 0))

    @contextmanager
    def trial(self, gpu_class: str) -> Iterator[Callable[[], None]]:
        """What is freed inside, and not kept by a call of what this gives, has been taken again
        at the end: all is known that was known before."""
        kept: list[bool] = []
        known = self._none_before.get(gpu_class)
        yield lambda: kept.append(True)
        if known is not None and not kept:
            self._none_before[gpu_class] = known

    def is_full_until(self, demand: Demand, starts: int) -> bool:
        """True when no window of the want that begins before `starts` has room for certain.

        A window that begins before `starts` either ends by then, so that the whole of it lies in
        a stretch with room that is long enough, or it has the instant before `starts` in it. If
        neither exists there is none, whatever is free from `starts` on. So what the asker itself
        has reserved from then on need not be taken away. Only GPUs are looked at: nodes, owners
        and quota only ever keep more out.
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
    """One shape, count and nearness on one class."""

    def __init__(self, calendar: GpuCalendar, demand: Demand) -> None:
        self._calendar, self._want = calendar, demand
        self._until = 0
        self._ends: Ints = np.zeros(0, dtype=np.int64)
        self._full: Bools = np.zeros(0, dtype=np.bool_)
        self._longest: Ints = np.zeros(0, dtype=np.int64)

    def forget(self, since: int) -> None:
        """What was seen from `since` on is not true any more."""
        self._until = min(self._until, since)

    def is_full_until(self, starts: int, duration: int) -> bool:
        """See `NoRoomCache`."""
        if starts > self._until:
            self._look(starts)
        at = int(self._ends.searchsorted(starts))
        # The stretch with the instant before `starts`.
        return bool(self._full[at]) and int(self._longest[at]) < duration

    def _look(self, until: int) -> None:
        """See each stretch up to `until`, going on from where it is known."""
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
