"""GPU-hour caps: past and booked use of each owner and class, by UTC day.

Whole days are counted: a rolling cap counts all of the day on which its window begins, and
everything booked after it, so that it holds for every position of the window.
"""

from collections.abc import Iterable

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools
from solver.model.inner_limits import LabLimit
from solver.model.limits import Cap, Override, Used

DAY = 86_400

Key = tuple[str, str]
Window = tuple[int, int]


class GpuHourCaps:
    """Unit-seconds of each (owner, class) that has a cap."""

    def __init__(
        self,
        caps: Iterable[Cap],
        used: Iterable[Used],
        overrides: Iterable[Override] = (),
        labs: Iterable[LabLimit] = (),
    ) -> None:
        self._overrides: dict[Key, list[Override]] = {}
        self._kept: set[tuple[str, str, str]] = set()
        """Uses, by name, that no cap of an owner and class forbids."""
        for each in overrides:
            if each.keeps and not each.guarantee:
                self._kept.add((each.booking, each.owner, each.gpu_class))
            if each.unit_seconds:
                self._overrides.setdefault((each.owner, each.gpu_class), []).append(each)
        self._caps: dict[Key, list[Cap]] = {}
        for cap in caps:
            self._caps.setdefault((cap.owner, cap.gpu_class), []).append(cap)
        self._days: dict[Key, dict[int, int]] = {key: {} for key in self._caps}
        self._labs = {
            (project, lab.gpu_class): lab.owner
            for lab in labs
            if (lab.owner, lab.gpu_class) in self._caps
            for project in lab.projects
        }
        for row in used:
            for owner in self._with_lab((row.tenant, row.project), row.gpu_class):
                self._more((owner, row.gpu_class), row.day // DAY, row.unit_seconds)

    def is_same(self, other: "GpuHourCaps | None") -> bool:
        """True when the same counts against caps."""
        return other is not None and self._days == other._days

    def add(self, owners: Iterable[str], gpu_class: str, units: int, window: Window) -> None:
        """Add `units` (negative: remove) in [starts, ends)."""
        for owner in self._with_lab(owners, gpu_class):
            key = (owner, gpu_class)
            if key in self._caps:
                for day in range(window[0] // DAY, (window[1] - 1) // DAY + 1):
                    self._more(key, day, units * _overlap(window, day * DAY, (day + 1) * DAY))

    def over(self, owners: Iterable[str], gpu_class: str, units: int, window: Window) -> Cap | None:
        """The first cap that `units` in [starts, ends) would exceed."""
        for cap in self._of(owners, gpu_class):
            starts = np.array([window[0]], dtype=np.int64)
            if not self._within(cap, units, starts, window[1] - window[0])[0]:
                return cap
        return None

    def never(self, owners: Iterable[str], gpu_class: str, units: int, seconds: int) -> Cap | None:
        """A rolling cap that is less than the booking alone."""
        return next(
            (
                cap
                for cap in self._of(owners, gpu_class)
                if cap.rolling_days is not None
                and units * seconds
                > cap.most
                + sum(
                    each.unit_seconds
                    for each in self._overrides.get((cap.owner, gpu_class), ())
                    if each.ends - each.starts >= seconds
                )
            ),
            None,
        )

    def allows(
        self, owners: Iterable[str], gpu_class: str, units: int, starts: Ints, duration: int
    ) -> Bools | None:
        """Which windows [start, start + duration) no cap forbids; None: all of them."""
        allowed: Bools | None = None
        for cap in self._of(owners, gpu_class):
            mine = self._within(cap, units, starts, duration)
            if not mine.all():
                allowed = mine if allowed is None else allowed & mine
        return allowed

    def has_cap(self, owners: Iterable[str], gpu_class: str) -> bool:
        """True when one of the owners has a cap for the class."""
        return bool(self._of(owners, gpu_class))

    def most(self, cap: Cap, window: Window) -> int:
        """The cap for work in [starts, ends): that of its row, and overrides for all of it."""
        starts = np.array([window[0]], dtype=np.int64)
        return int(self._most(cap, starts, window[1] - window[0])[0])

    def used(self, cap: Cap, starts: int) -> int:
        """Unit-seconds that count against the cap for a booking that starts then."""
        days = self._days[(cap.owner, cap.gpu_class)]
        if cap.rolling_days is None:
            first, last = cap.starts // DAY, cap.ends // DAY
            return sum(amount for day, amount in days.items() if first <= day < last)
        since = starts // DAY - cap.rolling_days
        return sum(amount for day, amount in days.items() if day >= since)

    def instants(self, owners: Iterable[str], gpu_class: str, units: int) -> Ints:
        """Starts from which a cap may allow `units` that it forbade before."""
        found: list[int] = []
        for cap in self._of(owners, gpu_class):
            if cap.rolling_days is None:
                left = max(0, cap.most - self.used(cap, cap.starts))
                found.append(max(cap.starts, cap.ends - left // max(1, units)))
            else:
                days = self._days[(cap.owner, cap.gpu_class)]
                found += [(day + cap.rolling_days + 1) * DAY for day in days]
            found += [each.starts for each in self._overrides.get((cap.owner, cap.gpu_class), ())]
        return np.array(sorted(found), dtype=np.int64)

    def _within(self, cap: Cap, units: int, starts: Ints, duration: int) -> Bools:
        if cap.rolling_days is None:
            ends = np.minimum(starts + duration, cap.ends)
            inside = np.maximum(0, ends - np.maximum(starts, cap.starts))
            most = self._most(cap, starts, duration)
            found: Bools = (inside == 0) | (self.used(cap, cap.starts) + inside * units <= most)
            return found
        left = self._most(cap, starts, duration) - units * duration
        days, sums = self._later(cap)
        since = starts // DAY - cap.rolling_days
        within: Bools = sums[days.searchsorted(since)] <= left
        return within

    def _most(self, cap: Cap, starts: Ints, duration: int) -> Ints:
        most: Ints = np.full(len(starts), cap.most, dtype=np.int64)
        for each in self._overrides.get((cap.owner, cap.gpu_class), ()):
            inside = (starts >= each.starts) & (starts + duration <= each.ends)
            most += np.where(inside, each.unit_seconds, 0)
        return most

    def _later(self, cap: Cap) -> tuple[Ints, Ints]:
        """Days with use, and the sum of use from each on (one more: zero)."""
        rows = sorted(self._days[(cap.owner, cap.gpu_class)].items())
        days = np.array([day for day, _ in rows], dtype=np.int64)
        amounts = np.array([*(amount for _, amount in rows), 0], dtype=np.int64)
        return days, amounts[::-1].cumsum()[::-1]

    def _of(self, owners: Iterable[str], gpu_class: str) -> list[Cap]:
        found = self._with_lab(owners, gpu_class)
        caps = [cap for owner in found for cap in self._caps.get((owner, gpu_class), ())]
        if not self._kept:
            return caps
        names = tuple(owners)
        return [cap for cap in caps if (names[-1], cap.owner, gpu_class) not in self._kept]

    def _with_lab(self, owners: Iterable[str], gpu_class: str) -> Iterable[str]:
        """The owners with the lab of the project among them, if it has a cap."""
        if not self._labs:
            return owners
        known = tuple(owners)
        lab = next(filter(None, (self._labs.get((each, gpu_class)) for each in known)), None)
        return known if lab is None else (*known, lab)

    def _more(self, key: Key, day: int, amount: int) -> None:
        days = self._days.get(key)
        if days is not None:
            days[day] = days.get(day, 0) + amount


def _overlap(window: Window, starts: int, ends: int) -> int:
    return max(0, min(window[1], ends) - max(window[0], starts))
