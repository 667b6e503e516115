"""Changes of bookings in a play: made at their time, as far as the policy under trial has room for them.

A change of what waits without a place is made at once, and so is what gives something up. What needs room is
asked of the solver in each turn, as a change or a later end, until it is granted, begins or ends.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from allocation.features.policy_lab.plays.jobs import Job, Meter
from allocation.features.policy_lab.plays.past import Changed, Past
from solver import Change, Extension, Request
from solver.model.plan import Plan


@dataclass(frozen=True, slots=True)
class _Later:
    """A later end that a running booking asks for since an instant."""

    since: int
    until: int


class PlayedChanges:
    """The changes of a past: those to come, and those that wait for room."""

    def __init__(self, past: Iterable[Past]) -> None:
        rows = [(change.at, each.request.booking, change) for each in past for change in each.changes]
        self._left = deque(sorted(rows, key=lambda row: row[:2]))
        self._asked = {each.request.booking: each.request for each in past if each.changes}
        self._targets: dict[str, Changed] = {}
        self._later: dict[str, _Later] = {}

    @property
    def is_asking(self) -> bool:
        """Whether something waits for room."""
        return bool(self._targets or self._later)

    def times(self) -> Iterator[int]:
        """Yields when something is changed."""
        return (at for at, *_ in self._left)

    def take(self, now: int) -> Iterator[tuple[str, Changed]]:
        """Yields what is changed by now."""
        while self._left and self._left[0][0] <= now:
            _, booking, changed = self._left.popleft()
            yield booking, changed

    def make(
        self,
        booking: str,
        changed: Changed,
        waiting: dict[str, Request],
        jobs: Mapping[str, Job],
        meter: Meter,
    ) -> None:
        """Makes a change, or asks for it from now on. What is over, or never came, has none."""
        before, after = self._asked[booking], changed.request
        self._asked[booking] = after
        job, request = jobs.get(booking), waiting.get(booking)
        if request is not None and request.paused:
            rest = request.duration + after.duration - before.duration
            waiting[booking] = replace(request, duration=max(1, rest))
        elif request is not None and request.planned is None:
            waiting[booking] = _now_on(after, changed.at)
        elif request is not None or (job is not None and not job.rows[0].started):
            self._targets[booking] = changed
        elif job is not None and not job.rows[0].pausing:
            self._change_run(booking, job, changed, before, meter)

    def _change_run(self, booking: str, job: Job, changed: Changed, before: Request, meter: Meter) -> None:
        """Gives up GPUs and time of a run at once, and asks for a later end."""
        count, by = changed.request.ask.count, changed.request.duration - before.duration
        if count < len(job.rows) and count < before.ask.count and not before.ask.groups:
            meter.count(job, changed.at)
            job.rows = job.rows[:count]
            job.request = replace(job.request, ask=replace(job.request.ask, count=count))
            meter.forget(job)
        ends = job.rows[0].ends
        if by > 0:
            self._later[booking] = _Later(changed.at, ends + by)
        elif by < 0:
            self._later.pop(booking, None)
            job.rows = [replace(row, ends=max(changed.at, row.starts + 1, ends + by)) for row in job.rows]

    def over(self, booking: str) -> None:
        """Forgets a booking that is over."""
        self._targets.pop(booking, None)
        self._later.pop(booking, None)

    def targets(self, now: int, waiting: Mapping[str, Request], jobs: Mapping[str, Job]) -> Iterator[Change]:
        """Yields what bookings that have not begun ask for, as a snapshot has it."""
        for booking, changed in tuple(self._targets.items()):
            job, request = jobs.get(booking), waiting.get(booking)
            if (job is not None and job.rows[0].started) or (job is None and request is None):
                del self._targets[booking]
                continue
            target = _now_on(changed.request, now)
            yield Change(
                booking, replace(target, booking=f"change {booking}", submitted=changed.at), waiting=True
            )

    def extensions(self, jobs: Mapping[str, Job], class_of: Mapping[str, str]) -> Iterator[Extension]:
        """Yields the later ends that running bookings ask for, as a snapshot has them."""
        for booking, later in tuple(self._later.items()):
            job = jobs.get(booking)
            if job is None or job.rows[0].pausing:
                del self._later[booking]
                continue
            first, request = job.rows[0], job.request
            added = replace(
                request,
                booking=f"longer {booking}",
                submitted=later.since,
                ask=replace(request.ask, classes=(class_of[first.place.gpu],)),
                duration=later.until - first.ends,
                earliest=first.ends,
                latest=None,
                fixed=True,
                planned=None,
                paused=False,
                durations=(),
                cheapest=False,
            )
            yield Extension(booking, later.until, None if request.ask.groups else added, waiting=True)

    def answer(self, plan: Plan, waiting: dict[str, Request], jobs: dict[str, Job]) -> None:
        """Makes the changes that a plan grants. What they get is in the plan."""
        for answer in plan.changes:
            if answer.granted:
                jobs.pop(answer.booking, None)
                waiting[answer.booking] = replace(self._targets.pop(answer.booking).request, planned=None)
        for longer in plan.extensions:
            if longer.granted:
                job = jobs[longer.booking]
                job.rows = [replace(row, ends=longer.until) for row in job.rows]
                del self._later[longer.booking]


def _now_on(request: Request, now: int) -> Request:
    """The request, whose window begins now at the earliest."""
    return replace(request, earliest=now) if request.fixed and request.earliest < now else request
