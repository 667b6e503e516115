"""A simulated site with a virtual clock: plans take effect, time passes, bookings arrive and end.

A fold of `solve` over arrivals. It uses no randomness: the same site, policy and arrivals give the
same result, byte for byte.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from devtools.simulation.metrics import Rates, Result, SimulationMetrics
from solver.model.demand import demands_of
from solver.model.inputs import Held, PlannedStart, Request, Snapshot
from solver.model.plan import Assign, Move, Pause, Plan, Waiting
from solver.model.policy import Policy
from solver.sharding.shards import solve

_AGAIN = 3_600
"""Seconds after which a booking without a proven start is tried again."""


@dataclass(slots=True)
class _Job:
    """A booking with places and its request (None: it was there from the begin and has none)."""

    rows: list[Held]
    ask: Request | None


class Simulation:
    """One site from `site.now` on, `step` by step or all at once by `simulate`."""

    def __init__(
        self,
        site: Snapshot,
        policy: Policy,
        arrivals: Iterable[Request],
        rates: Rates | None = None,
        every: int = 60,
    ) -> None:
        """Arrivals at `submitted` and ends are noticed every `every` seconds.

        Planned starts happen on their second.
        """
        self.metrics = SimulationMetrics(site, rates or {})
        self.now = site.now
        self._site, self._policy, self._every = site, policy, every
        self._arrivals = sorted(arrivals, key=lambda each: (each.submitted, each.booking))
        self._arrived = 0
        self._waiting = {request.booking: request for request in site.requests}
        self._jobs: dict[str, _Job] = {}
        asks = {request.booking: request for request in site.running}
        for row in site.held:
            self._jobs.setdefault(row.booking, _Job([], asks.get(row.booking))).rows.append(row)
        for request in site.requests:
            self.metrics.record_arrival(request)
        graces = {tier.grace for tier in site.tiers if tier.pausable}
        self._notices = tuple(sorted(grace + policy.notice_margin for grace in graces))
        self._pausable = {tier.slug for tier in site.tiers if tier.pausable}

    def step(self, until: int, no_sooner: int = 0) -> Plan | None:
        """Run the next cycle before `until`, at the next event; None: there is no event before
        then."""
        now = max(self._next(), no_sooner)
        if now >= until:
            self._pass(until)
            return None
        self._pass(now)
        plan = solve(self._snapshot(), self._policy)
        self._apply(plan)
        return plan

    @property
    def is_over(self) -> bool:
        """True when no booking runs, waits or arrives."""
        return not self._jobs and not self._waiting and self._arrived == len(self._arrivals)

    def _next(self) -> int:
        """The next event after the last cycle; far ahead when there is none."""
        soonest = self.now + (self.metrics.cycles > 0)
        later = [time for time in self._events(soonest) if time >= soonest]
        return min(later, default=1 << 62)

    def _events(self, soonest: int) -> Iterator[int]:
        if self._arrived < len(self._arrivals):
            yield max(soonest, self._seen(self._arrivals[self._arrived].submitted))
        for job in self._jobs.values():
            for row in job.rows:
                yield self._seen(row.ends)
                if not row.started:
                    yield row.starts
        for request in self._waiting.values():
            yield self.now + _AGAIN
            if request.planned is not None:
                yield request.planned.starts
                for notice in self._notices:
                    yield request.planned.starts - notice

    def _seen(self, time: int) -> int:
        return -(-time // self._every) * self._every

    def _pass(self, now: int) -> None:
        """Let time pass: start and end what is due, queue what was submitted."""
        self.metrics.record_use((row for job in self._jobs.values() for row in job.rows), self.now, now)
        self.now = now
        for booking, job in tuple(self._jobs.items()):
            left = [_begun(row, now) for row in job.rows if row.ends > now]
            if left:
                job.rows = left
                continue
            del self._jobs[booking]
            self.metrics.finished += booking not in self._waiting
        while self._arrived < len(self._arrivals):
            request = self._arrivals[self._arrived]
            if request.submitted > now:
                break
            self.metrics.record_arrival(request)
            self._waiting[request.booking] = request
            self._arrived += 1

    def _snapshot(self) -> Snapshot:
        for booking, request in tuple(self._waiting.items()):
            rest = _rest(request, self.now)
            if rest is None:
                # Nothing is left of its fixed window.
                del self._waiting[booking]
                self.metrics.finished += 1
            elif rest is not request:
                self._waiting[booking] = rest
        remembered = self.now - 10 * self._policy.half_life
        return replace(
            self._site,
            now=self.now,
            held=tuple(row for job in self._jobs.values() for row in job.rows),
            requests=tuple(self._waiting.values()),
            extensions=(),
            used=(*self._site.used, *self.metrics.used(remembered)),
            running=tuple(self._running()),
        )

    def _running(self) -> Iterator[Request]:
        """The rest of each running booking that may be paused."""
        for job in self._jobs.values():
            row, ask = job.rows[0], job.ask
            if ask is None or not row.started or row.pausing or row.tier not in self._pausable:
                continue
            yield replace(ask, duration=row.ends - self.now, planned=None, pauses=row.pauses)

    def _apply(self, plan: Plan) -> None:
        self.metrics.record_plan(plan)
        for refusal in plan.refusals:
            del self._waiting[refusal.booking]
        for move in plan.moves:
            self._move(move)
        for given in plan.assigns:
            self._give(given)
        for pause in plan.pauses:
            self._pause(pause)
        for wait in plan.waits:
            request = self._waiting[wait.booking]
            self._waiting[wait.booking] = replace(request, planned=_planned_start(wait))

    def _give(self, given: Assign) -> None:
        ask = self._waiting.pop(given.booking)
        rows = [_row(ask, given, number, self.now) for number in range(len(given.places))]
        # A booking that resumes before its last place is free has both for a moment.
        before = self._jobs.get(given.booking)
        self._jobs[given.booking] = _Job([*(before.rows if before else ()), *rows], ask)

    def _move(self, move: Move) -> None:
        """Change the places of the rows."""
        job = self._jobs[move.booking]
        job.rows = [replace(row, place=place) for row, place in zip(job.rows, move.places, strict=True)]

    def _pause(self, pause: Pause) -> None:
        """End its rows then; its rest waits to resume."""
        job = self._jobs[pause.booking]
        ends = job.rows[0].ends
        job.rows = [replace(row, ends=pause.at, pausing=True) for row in job.rows]
        if job.ask is None:
            return
        self._waiting[pause.booking] = replace(
            job.ask,
            earliest=pause.at,
            duration=ends - pause.at,
            latest=ends if job.ask.fixed else job.ask.latest,
            fixed=False,
            planned=None,
            paused=True,
            pauses=job.rows[0].pauses + 1,
        )


def simulate(
    site: Snapshot,
    policy: Policy,
    arrivals: Sequence[Request],
    seconds: int,
    rates: Rates | None = None,
) -> Result:
    """The metrics of so many seconds of the site with these arrivals."""
    simulation = Simulation(site, policy, arrivals, rates)
    until = site.now + seconds
    while simulation.step(until) is not None:
        pass
    return simulation.metrics.result(until)


def _begun(row: Held, now: int) -> Held:
    if row.started or row.starts > now:
        return row
    return replace(row, started=True, since=row.starts)


def _rest(request: Request, now: int) -> Request | None:
    """The request as of now: of a paused window only what is left; None: nothing is."""
    if not request.paused or request.latest is None:
        return request
    left = request.latest - max(now, request.earliest)
    if left <= 0:
        return None
    return request if left >= request.duration else replace(request, duration=left)


def _planned_start(wait: Waiting) -> PlannedStart | None:
    """The planned start; None without places, because nothing proves it."""
    return PlannedStart(wait.starts, wait.ends, wait.places, wait.strength) if wait.places else None


def _row(ask: Request, given: Assign, number: int, now: int) -> Held:
    """One row of the booking, on the calendar from now on."""
    is_there = given.starts <= now
    return Held(
        id=f"{given.booking}/{number}/{given.starts}",
        booking=given.booking,
        tenant=ask.tenant,
        project=ask.project,
        place=given.places[number],
        starts=given.starts,
        ends=given.ends,
        started=is_there,
        tier=ask.tier,
        since=given.starts if is_there else None,
        pauses=ask.pauses,
        cores=ask.ask.cores,
        memory=ask.ask.memory,
        owner=ask.owner,
        level=None if is_there or ask.paused else demands_of(ask)[0].level,
    )
