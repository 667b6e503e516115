"""Since when there is no room: a cheap proof that a promise can't begin any sooner.

Most promises stay where they are, cycle after cycle. Looking for an earlier start takes every
window before the promised one; the proof here takes one look at each stretch of time for all
promises of a kind.
"""

import numpy as np

from allocation.solver.calendar import Calendar
from allocation.solver.fragmentation import Ints
from allocation.solver.placement import Want, fits
from allocation.solver.topology import Bools


class Outlook:
    """What of a class is full when, for each kind of ask, read from now on as far as needed.

    What was full stays so while room only gets less; `freed` says from when on that is not so.
    """

    def __init__(self, calendars: dict[str, Calendar]) -> None:
        """Nothing has been looked at yet."""
        self._calendars = calendars
        self._kinds: dict[str, dict[tuple[object, ...], _Kind]] = {}

    def freed(self, gpu_class: str, since: int) -> None:
        """Something of the class may have come free from then on."""
        for kind in self._kinds.get(gpu_class, {}).values():
            kind.forget(since)

    def is_full_until(self, want: Want, starts: int) -> bool:
        """True when no window of the want that begins before `starts` has room for certain.

        A window that begins before `starts` either ends by then, so that the whole of it lies in
        a stretch with room that is long enough, or it has the instant before `starts` in it. If
        neither exists there is none, whatever is free from `starts` on. So what the asker itself
        has reserved from then on need not be taken away. Only GPUs are looked at: nodes, owners
        and quota only ever keep more out.
        """
        if want.share is not None:
            return False
        kinds = self._kinds.setdefault(want.gpu_class, {})
        key = (want.shape, want.count, want.level)
        if key not in kinds:
            kinds[key] = _Kind(self._calendars[want.gpu_class], want)
        return kinds[key].is_full_until(starts, want.duration)


class _Kind:
    """One shape, count and nearness on one class."""

    def __init__(self, calendar: Calendar, want: Want) -> None:
        self._calendar, self._want = calendar, want
        self._until = 0
        self._ends: Ints = np.zeros(0, dtype=np.int64)
        self._full: Bools = np.zeros(0, dtype=np.bool_)
        self._longest: Ints = np.zeros(0, dtype=np.int64)

    def forget(self, since: int) -> None:
        """What was seen from `since` on is not true any more."""
        self._until = min(self._until, since)

    def is_full_until(self, starts: int, duration: int) -> bool:
        """See `Outlook`."""
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
