"""The past of a site, played again under a policy by the solver of the portal.

Requests come when they came, runs last as long as they lasted, outages and maintenance are where
they were; starts and pauses are those of the policy. Pure: the same history, policy and lengths
have the same outcome. Time passes in steps of five minutes, except that planned starts are exact.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

from allocation.features.policy_lab.plays.arrivals import Arrivals
from allocation.features.policy_lab.plays.jobs import DAY, Job, Meter, PeakSeconds, rows_of
from allocation.features.policy_lab.plays.past import Fate, History, Outcome, Past
from allocation.features.policy_lab.plays.played_changes import PlayedChanges
from allocation.features.policy_lab.plays.rules_in_time import RulesInTime
from solver import UNITS_PER_GPU, Place, PlannedStart, Policy, Request, Snapshot, Used, solve, units_of
from solver.model.plan import Assign, Move, Pause, Plan, Waiting
from solver.state.kept import Kept

STEP = 300
# A booking without a proven start is tried again after so many seconds.
_AGAIN = 3_600
# As the solver orders past use, which is cheaper for rows in order.
_USED_ORDER = attrgetter("project", "gpu_class", "day", "tenant", "owner")


class Guarantees:
    """The guarantees of organisations, and what of a play uses them."""

    def __init__(self, site: Snapshot, units: Callable[[Place], int]) -> None:
        """`units` are those of a place."""
        self._units = units
        self._tiers = {tier.slug: tier for tier in site.tiers}
        self._class_of = {gpu.id: gpu.gpu_class for gpu in site.gpus}
        models = {model.slug: model for model in site.models}
        self._models = {gpu.gpu_class: models[gpu.model] for gpu in site.gpus}
        self._sure = {
            (each.owner, each.gpu_class): each.guaranteed for each in site.limits if each.parent is None
        }

    def have_room(self, request: Request, jobs: Iterable[Job], waiting: Iterable[Request]) -> bool:
        """Whether all that its organisation runs and waits for fits with it into the guarantee."""
        tier, gpu_class = self._tiers.get(request.tier), next(iter(request.ask.classes), "")
        model = self._models.get(gpu_class)
        if tier is None or not tier.counts or model is None or request.ask.groups:
            return False
        names = {each.profile for each in model.placements}
        if isinstance(request.ask.shape, str) and request.ask.shape not in names:
            return False
        wanted = request.ask.count * units_of(model, request.ask.shape)
        for job in jobs:
            if self._counts(job.request, request.tenant):
                places = [row.place for row in job.rows if self._class_of[row.place.gpu] == gpu_class]
                wanted += sum(map(self._units, places))
        for other in waiting:
            if self._counts(other, request.tenant) and gpu_class in other.ask.classes:
                is_known = not isinstance(other.ask.shape, str) or other.ask.shape in names
                wanted += other.ask.count * units_of(model, other.ask.shape) if is_known else 0
        return wanted <= self._sure.get((request.tenant, gpu_class), 0)

    def _counts(self, request: Request, tenant: str) -> bool:
        tier = self._tiers.get(request.tier)
        return request.tenant == tenant and (tier is None or tier.counts)


class Play:
    """One play of a history, turn by turn."""

    def __init__(self, history: History, policy: Policy, lengths: Mapping[str, int]) -> None:
        """`lengths`: how long each booking runs, in seconds."""
        self.outcome = Outcome({each.request.booking: Fate() for each in history.past})
        self.now = history.site.now
        self._history, self._policy = history, policy
        self._need = dict(lengths)
        self._arrivals = Arrivals(history.past)
        self._waiting: dict[str, Request] = {}
        self._jobs: dict[str, Job] = {}
        self._changes = PlayedChanges(history.past)
        self._rules = RulesInTime(history.rules)
        # Turns are minutes apart; what is kept is compared as rarely as with a solver in operation.
        self._kept = Kept(compare_every=DAY)
        self._class_of = {gpu.id: gpu.gpu_class for gpu in history.site.gpus}
        models = {model.slug: model for model in history.site.models}
        model_of = {gpu.id: models[gpu.model] for gpu in history.site.gpus}
        peaks = PeakSeconds(history.peak_hours, history.site.now, history.ends)
        self._meter = Meter(self._class_of, model_of, peaks, self.outcome)
        self._tiers = {tier.slug: tier for tier in history.site.tiers}
        self._guarantees = Guarantees(history.site, self._meter.units)
        graces = {tier.grace for tier in history.site.tiers if tier.pausable}
        self._notices = tuple(sorted(grace + policy.notice_margin for grace in graces))
        self._cancelled = {
            each.request.booking: each.cancelled for each in history.past if each.cancelled is not None
        }
        edges = {_seen(at) for out in history.outages for at in (out.starts, out.ends)}
        edges |= {_seen(each.known) for each in history.maintenance}
        edges |= {_seen(at) for at in history.rules.edges()}
        edges |= {_seen(at) for at in self._changes.times()}
        self._edges = sorted(at for at in edges if self.now <= at < history.ends)
        self._days_over, self._of_days_over = (0, 0), tuple[Used, ...]()

    def turns(self) -> Iterator[int]:
        """Plays to the end of the history; yields the instant of each turn."""
        until = self._history.ends
        while (now := self._next()) < until:
            self._pass(now)
            self.outcome.turns += 1
            if self._waiting or self._changes.is_asking:
                self._apply(solve(self._snapshot(), self._policy, kept=self._kept, brief=True))
            yield now
        self._pass(until)

    def _next(self) -> int:
        """The next instant with something to decide; far ahead when there is none."""
        soonest = self.now + (self.outcome.turns > 0)
        return min((at for at in self._events(soonest) if at >= soonest), default=1 << 62)

    def _events(self, soonest: int) -> Iterator[int]:
        comes = self._arrivals.next_at()
        if comes is not None:
            yield max(soonest, _seen(comes))
        for job in self._jobs.values():
            yield _seen(job.over)
            if not job.rows[0].started:
                yield job.rows[0].starts
        for booking, request in self._waiting.items():
            if booking in self._cancelled:
                yield _seen(self._cancelled[booking])
            if request.planned is None:
                yield self.now + _AGAIN
                continue
            yield request.planned.starts
            for notice in self._notices:
                yield request.planned.starts - notice
        at = bisect_right(self._edges, soonest - 1)
        yield from self._edges[at : at + 1]

    def _pass(self, now: int) -> None:
        """Lets time pass: starts and ends what is due, queues what came, and changes what was changed."""
        for booking, job in tuple(self._jobs.items()):
            self._run(booking, job, now)
        self.now = now
        self._break()
        come: tuple[Past, ...] | None = None
        while come != ():
            come = tuple(self._arrivals.take(now))
            for past in come:
                self._arrive(past)
            self._cancel(now)
        for booking, changed in self._changes.take(now):
            self._changes.make(booking, changed, self._waiting, self._jobs, self._meter)

    def _cancel(self, now: int) -> None:
        """Takes what is cancelled out of the queue."""
        for booking in tuple(self._waiting):
            fate = self.outcome.fates[booking]
            if self._cancelled.get(booking, now + 1) <= now and fate.started is None:
                fate.cancelled = True
                del self._waiting[booking]
                self._over(booking)

    def _over(self, booking: str) -> None:
        self._changes.over(booking)
        self._arrivals.over(booking)

    def _run(self, booking: str, job: Job, now: int) -> None:
        first = job.rows[0]
        if not first.started and first.starts <= now:
            job.rows = [replace(row, started=True, since=row.starts) for row in job.rows]
            self._began(booking, first.starts)
        self._meter.count(job, min(job.over, now))
        if job.over <= now:
            del self._jobs[booking]
            if booking not in self._waiting:
                self._over(booking)

    def _began(self, booking: str, at: int) -> None:
        fate = self.outcome.fates[booking]
        if fate.started is not None:
            return
        fate.started = at
        array = self._arrivals.array_of(booking)
        for other, request in self._waiting.items() if array else ():
            if not request.paused and self._arrivals.array_of(other) == array:
                # An array ages as one booking.
                self._waiting[other] = replace(request, submitted=at)

    def _break(self) -> None:
        """Takes running work from GPUs that fail now; its rest waits."""
        broken = self._out()
        for booking, job in tuple(self._jobs.items()) if broken else ():
            if any(row.place.gpu in broken for row in job.rows):
                del self._jobs[booking]
                self._rest(booking, job, self.now, is_pause=False)
                if booking not in self._waiting:
                    self._over(booking)

    def _out(self) -> set[str]:
        return {each.gpu for each in self._history.outages if each.starts <= self.now < each.ends}

    def _arrive(self, past: Past) -> None:
        request = past.request
        if request.fixed and request.earliest < self.now:
            # It came between two steps.
            request = replace(request, earliest=self.now)
        if past.array and not past.is_first:
            request = replace(request, submitted=self.now, earliest=max(self.now, request.earliest))
        fate = self.outcome.fates[request.booking]
        fate.inside = self._guarantees.have_room(request, self._jobs.values(), self._waiting.values())
        fate.came = request.submitted
        self._waiting[request.booking] = request

    def _snapshot(self) -> Snapshot:
        out = self._out()
        site, known = self._history.site, self._history.maintenance
        changes = self._changes
        return replace(
            site,
            now=self.now,
            gpus=tuple(replace(gpu, usable=False) if gpu.id in out else gpu for gpu in site.gpus)
            if out
            else site.gpus,
            held=tuple(row for job in self._jobs.values() for row in job.rows),
            requests=tuple(self._waiting.values()),
            used=(*site.used, *self._past_use()),
            running=tuple(self._pausable()),
            blackouts=tuple(each.row for each in known if each.known <= self.now < each.row.ends),
            changes=tuple(changes.targets(self.now, self._waiting, self._jobs)),
            extensions=tuple(changes.extensions(self._jobs, self._class_of)),
            **self._rules.sections(self.now, lambda: (*site.used, *self._meter.of_days(0, 1 << 62))),
        )

    def _past_use(self) -> Iterator[Used]:
        """Use by day, as far back as it matters. What was used on a day that is over stays."""
        today, oldest = self.now // DAY * DAY, self.now - 10 * self._policy.half_life
        # Caps count all of it, whatever its age.
        oldest = 0 if self._history.rules.caps else -(-oldest // DAY) * DAY
        over = (today, oldest)
        if over != self._days_over:
            rows = self._meter.of_days(oldest, today)
            self._days_over, self._of_days_over = over, tuple(sorted(rows, key=_USED_ORDER))
        yield from self._of_days_over
        yield from self._meter.of_days(max(today, oldest), 1 << 62)

    def _pausable(self) -> Iterator[Request]:
        """The rest of each running booking that may be paused, as far as the portal knows it."""
        for job in self._jobs.values():
            row = job.rows[0]
            tier = self._tiers.get(row.tier)
            if row.started and not row.pausing and tier is not None and tier.pausable:
                yield replace(job.request, duration=row.ends - self.now, planned=None, pauses=row.pauses)

    def _apply(self, plan: Plan) -> None:
        for refusal in plan.refusals:
            if self._waiting.pop(refusal.booking, None) is not None:
                self.outcome.fates[refusal.booking].refused = refusal.reasons[0].code
                self._over(refusal.booking)
        self._changes.answer(plan, self._waiting, self._jobs)
        for move in plan.moves:
            self._move(move)
        for given in plan.assigns:
            self._give(given)
        for pause in plan.pauses:
            self._pause(pause)
        for wait in plan.waits:
            if wait.booking in self._waiting:
                request = self._waiting[wait.booking]
                self._waiting[wait.booking] = replace(request, planned=_planned(wait))

    def _move(self, move: Move) -> None:
        job = self._jobs[move.booking]
        job.rows = [replace(row, place=place) for row, place in zip(job.rows, move.places, strict=True)]

    def _give(self, given: Assign) -> None:
        request = self._waiting.pop(given.booking)
        # What leaves at the end of a notice and resumes elsewhere at once has both until then.
        before = self._jobs.pop(given.booking, None)
        if before is not None:
            self._meter.count(before, before.rows[0].ends)
        need, rows = self._need[given.booking], rows_of(request, given, self.now)
        self._jobs[given.booking] = Job(rows, request, need, given.starts)
        if given.starts <= self.now:
            self._began(given.booking, given.starts)

    def _pause(self, pause: Pause) -> None:
        job = self._jobs[pause.booking]
        fate = self.outcome.fates[pause.booking]
        fate.pauses += 1
        fate.lost += self._rest(pause.booking, job, pause.at, is_pause=True)
        job.rows = [replace(row, ends=pause.at, pausing=True) for row in job.rows]

    def _rest(self, booking: str, job: Job, at: int, *, is_pause: bool) -> int:
        """Queues what is left of a run that ends at an instant; nothing, if it is over by then. Returns
        the GPU-seconds of work that a pause makes it repeat."""
        first, request = job.rows[0], job.request
        ran = max(at, first.starts) - first.starts
        if min(job.need, first.ends - first.starts) <= ran:
            return 0
        again = min(ran, self._history.repeated.get(request.tier, 0)) if is_pause else 0
        rest = first.ends - first.starts - ran
        # What is lost is credited, except behind the end of a window or a deadline.
        is_late = request.latest is not None and at + rest + again > request.latest
        self._need[booking] = job.need - ran + again
        self._waiting[booking] = replace(
            request,
            earliest=at,
            duration=rest if request.fixed or is_late else rest + again,
            latest=first.ends if request.fixed and is_pause else request.latest,
            fixed=False,
            planned=None,
            paused=True,
            pauses=first.pauses + is_pause,
        )
        return again * sum(units for *_, units in self._meter.shares(job)) // UNITS_PER_GPU


def _seen(time: int) -> int:
    return -(-time // STEP) * STEP


def _planned(wait: Waiting) -> PlannedStart | None:
    """The planned start; None without places, because nothing proves it."""
    return PlannedStart(wait.starts, wait.ends, wait.places, wait.strength) if wait.places else None


def played(history: History, policy: Policy, lengths: Mapping[str, int]) -> Outcome:
    """Plays a history to its end."""
    play = Play(history, policy, lengths)
    for _ in play.turns():
        pass
    return play.outcome
