"""Work that has places in a play: its rows, how long it runs, and what it has used."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from allocation.features.policy_lab.plays.past import Outcome
from billing.rates import PeakHours
from solver import Held, Model, Place, Request, Used, units_of
from solver.model.demand import demands_of
from solver.model.plan import Assign

DAY = 86_400
DayUse = tuple[str, str, int, str, str]
"""Project, class, day, tenant and person, in the order of the solver."""


@dataclass(slots=True)
class Job:
    """Rows of a booking, its request, and for how long it runs from their start on. What it used is
    counted until `counted`."""

    rows: list[Held]
    request: Request
    need: int
    counted: int

    @property
    def over(self) -> int:
        """Returns when it ends."""
        return min(self.rows[0].ends, self.rows[0].starts + self.need)


class PeakSeconds:
    """The peak hours of a time, as sums from its begin on."""

    def __init__(self, hours: PeakHours, since: int, until: int) -> None:
        """Sums in [since, until); there is no peak outside."""
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (since, until))
        self._starts, self._ends, self._before = list[int](), list[int](), list[int]()
        total = 0
        for starts, ends, is_peak in hours.parts(begin, end) if hours.weekly else ():
            if is_peak:
                self._starts.append(int(starts.timestamp()))
                self._ends.append(int(ends.timestamp()))
                self._before.append(total)
                total += self._ends[-1] - self._starts[-1]

    def between(self, since: int, until: int) -> int:
        """Returns the peak seconds of [since, until)."""
        return self._until(until) - self._until(since) if self._starts else 0

    def _until(self, at: int) -> int:
        number = bisect_right(self._starts, at) - 1
        if number < 0:
            return 0
        return self._before[number] + min(at, self._ends[number]) - self._starts[number]


class Meter:
    """Counts use by day, as the solver reads it, and in all, as a report does."""

    def __init__(
        self,
        class_of: Mapping[str, str],
        model_of: Mapping[str, Model],
        peaks: PeakSeconds,
        outcome: Outcome,
    ) -> None:
        self.days: Counter[DayUse] = Counter()
        self._class_of, self._model_of, self._peaks, self._outcome = class_of, model_of, peaks, outcome
        self._shares: dict[str, tuple[tuple[str, str, int], ...]] = {}

    def units(self, place: Place) -> int:
        """Returns the quota units of a place."""
        return units_of(self._model_of[place.gpu], place.shape)

    def count(self, job: Job, until: int) -> None:
        """Counts what a job uses until an instant, from the last one on."""
        first = job.rows[0]
        since, job.counted = max(job.counted, first.starts), max(job.counted, until)
        if since >= until:
            return
        peak = self._peaks.between(since, until)
        for gpu_class, profile, units in self.shares(job):
            use = (first.tenant, first.project, gpu_class, first.tier, profile)
            self._outcome.used[use] += units * (until - since)
            if peak:
                self._outcome.peak[use] += units * peak
            at = since
            while at < until:
                day = at // DAY * DAY
                stop = min(until, day + DAY)
                self.days[first.project, gpu_class, day, first.tenant, first.owner] += units * (stop - at)
                at = stop

    def shares(self, job: Job) -> tuple[tuple[str, str, int], ...]:
        """Returns class, profile and units of what a job has, kept for its first row."""
        key = job.rows[0].id
        found = self._shares.get(key)
        if found is None:
            sums: Counter[tuple[str, str]] = Counter()
            for row in job.rows:
                sums[self._class_of[row.place.gpu], row.place.profile or ""] += self.units(row.place)
            found = self._shares[key] = tuple((*each, units) for each, units in sorted(sums.items()))
        return found

    def forget(self, job: Job) -> None:
        """Reads the rows of a job anew, because some of them are others."""
        self._shares.pop(job.rows[0].id, None)

    def of_days(self, since: int, until: int) -> Iterator[Used]:
        """Yields the use of days that begin in [since, until)."""
        for (project, gpu_class, day, tenant, owner), amount in self.days.items():
            if since <= day < until:
                yield Used(tenant, project, gpu_class, day, amount, owner)


def rows_of(request: Request, given: Assign, now: int) -> list[Held]:
    """The rows of an assignment."""
    is_there = given.starts <= now
    is_mixed = bool(request.ask.groups)
    level = None if is_there or request.paused or is_mixed else demands_of(request)[0].level
    return [
        Held(
            id=f"{given.booking}/{number}/{given.starts}",
            booking=given.booking,
            tenant=request.tenant,
            project=request.project,
            place=place,
            starts=given.starts,
            ends=given.ends,
            started=is_there,
            tier=request.tier,
            since=given.starts if is_there else None,
            pauses=request.pauses,
            cores=request.ask.cores,
            memory=request.ask.memory,
            owner=request.owner,
            pinned=bool(request.ask.pin),
            level=level,
            granted=(now, given.position),
            override=request.override,
            mixed=is_mixed,
        )
        for number, place in enumerate(given.places)
    ]
