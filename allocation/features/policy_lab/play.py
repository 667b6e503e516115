"""The past of a site, played again under a policy by the solver of the portal.

Requests come when they came, runs last as long as they lasted, outages and maintenance are where
they were; starts and pauses are those of the policy. Pure: the same history, policy and lengths
have the same outcome. Time passes in steps of five minutes, except that planned starts are exact.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from solver import (
    Held,
    Maintenance,
    Place,
    PlannedStart,
    Policy,
    Request,
    Snapshot,
    Used,
    solve,
    units_of,
)
from solver.model.demand import demands_of
from solver.model.plan import Assign, Move, Pause, Plan, Waiting
from solver.state.kept import Kept

STEP = 300
DAY = 86_400
# A booking without a proven start is tried again after so many seconds.
_AGAIN = 3_600
# As the solver orders past use, which is cheaper for rows in order.
_USED_ORDER = attrgetter("project", "gpu_class", "day", "tenant", "owner")


@dataclass(frozen=True, slots=True)
class Past:
    """A booking of the past: its request, how long its run was, and when it was cancelled before one.

    `really` is None where nobody knows; `least`: it has run for so long and still runs. `is_first`: it
    ran when the history begins.
    """

    request: Request
    really: int | None = None
    cancelled: int | None = None
    least: int = 0
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Outage:
    """A GPU that could not be used in [starts, ends)."""

    gpu: str
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A maintenance, and since when it was known."""

    known: int
    row: Maintenance


@dataclass(frozen=True, slots=True)
class History:
    """What happened in [site.now, ends). The site has its rules and its fleet, and nothing runs."""

    site: Snapshot
    past: tuple[Past, ...]
    ends: int
    outages: tuple[Outage, ...] = ()
    maintenance: tuple[Planned, ...] = ()


@dataclass(slots=True)
class Fate:
    """What became of a booking. `lost`: GPU-seconds since its last save, by pauses. `inside`: it fitted
    into its organisation's guarantee when it was asked for."""

    started: int | None = None
    pauses: int = 0
    lost: int = 0
    refused: str = ""
    inside: bool = False
    cancelled: bool = False


@dataclass(slots=True)
class Outcome:
    """The fates of all bookings by id, and unit-seconds by tenant, project, class and tier."""

    fates: dict[str, Fate] = field(default_factory=dict)
    used: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    turns: int = 0


@dataclass(slots=True)
class _Job:
    """Rows of a booking, its request, and for how long it runs from their start on."""

    rows: list[Held]
    request: Request
    need: int

    @property
    def over(self) -> int:
        """Returns when it ends."""
        return min(self.rows[0].ends, self.rows[0].starts + self.need)


class Play:
    """One play of a history, turn by turn."""

    def __init__(self, history: History, policy: Policy, lengths: Mapping[str, int]) -> None:
        """`lengths`: how long each booking runs, in seconds."""
        self.outcome = Outcome()
        self.now = history.site.now
        self._history, self._policy = history, policy
        self._need = dict(lengths)
        self._arriving = sorted(history.past, key=lambda each: (each.request.submitted, each.request.booking))
        self._arrived = 0
        self._waiting: dict[str, Request] = {}
        self._jobs: dict[str, _Job] = {}
        # Turns are minutes apart; what is kept is compared as rarely as with a solver in operation.
        self._kept = Kept(compare_every=DAY)
        self._class_of = {gpu.id: gpu.gpu_class for gpu in history.site.gpus}
        models = {model.slug: model for model in history.site.models}
        self._model_of = {gpu.id: models[gpu.model] for gpu in history.site.gpus}
        self._of_class = {gpu.gpu_class: models[gpu.model] for gpu in history.site.gpus}
        self._tiers = {tier.slug: tier for tier in history.site.tiers}
        limits = history.site.limits
        self._sure = {(each.owner, each.gpu_class): each.guaranteed for each in limits if each.parent is None}
        graces = {tier.grace for tier in history.site.tiers if tier.pausable}
        self._notices = tuple(sorted(grace + policy.notice_margin for grace in graces))
        self._cancelled = {
            each.request.booking: each.cancelled for each in history.past if each.cancelled is not None
        }
        edges = {_seen(at) for out in history.outages for at in (out.starts, out.ends)}
        edges |= {_seen(each.known) for each in history.maintenance}
        self._edges = sorted(at for at in edges if self.now <= at < history.ends)
        self._used: Counter[tuple[str, str, str, int, str]] = Counter()
        self._days_over, self._of_days_over = (0, 0), tuple[Used, ...]()

    def turns(self) -> Iterator[int]:
        """Plays to the end of the history; yields the instant of each turn."""
        until = self._history.ends
        while (now := self._next()) < until:
            self._pass(now)
            self.outcome.turns += 1
            if self._waiting:
                self._apply(solve(self._snapshot(), self._policy, kept=self._kept, brief=True))
            yield now
        self._pass(until)

    def _next(self) -> int:
        """The next instant with something to decide; far ahead when there is none."""
        soonest = self.now + (self.outcome.turns > 0)
        return min((at for at in self._events(soonest) if at >= soonest), default=1 << 62)

    def _events(self, soonest: int) -> Iterator[int]:
        if self._arrived < len(self._arriving):
            yield max(soonest, _seen(self._arriving[self._arrived].request.submitted))
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
        yield from (at for at in self._edges[:1] if at >= soonest)

    def _pass(self, now: int) -> None:
        """Lets time pass: starts and ends what is due, and queues what came."""
        for booking, job in tuple(self._jobs.items()):
            self._run(booking, job, now)
        self.now = now
        while self._edges and self._edges[0] <= now:
            del self._edges[0]
        self._break()
        while self._arrived < len(self._arriving) and self._arriving[self._arrived].request.submitted <= now:
            self._arrive(self._arriving[self._arrived])
            self._arrived += 1
        for booking in tuple(self._waiting):
            fate = self.outcome.fates[booking]
            if self._cancelled.get(booking, now + 1) <= now and fate.started is None:
                fate.cancelled = True
                del self._waiting[booking]

    def _run(self, booking: str, job: _Job, now: int) -> None:
        first = job.rows[0]
        if not first.started and first.starts <= now:
            job.rows = [replace(row, started=True, since=row.starts) for row in job.rows]
            self._began(booking, first.starts)
        until = min(job.over, now)
        for row in job.rows:
            self._count(row, max(row.starts, self.now), until)
        if job.over <= now:
            del self._jobs[booking]

    def _began(self, booking: str, at: int) -> None:
        fate = self.outcome.fates[booking]
        if fate.started is None:
            fate.started = at

    def _count(self, row: Held, since: int, until: int) -> None:
        gpu_class, units = self._class_of[row.place.gpu], self._units(row.place)
        while since < until:
            stop = min(until, since // DAY * DAY + DAY)
            amount = units * (stop - since)
            key = (row.tenant, row.project, gpu_class, since // DAY * DAY, row.owner)
            self._used[key] += amount
            self.outcome.used[row.tenant, row.project, gpu_class, row.tier] += amount
            since = stop

    def _units(self, place: Place) -> int:
        return units_of(self._model_of[place.gpu], place.shape)

    def _break(self) -> None:
        """Takes running work from GPUs that fail now; its rest waits."""
        broken = self._out()
        for booking, job in tuple(self._jobs.items()):
            if broken and any(row.place.gpu in broken for row in job.rows):
                del self._jobs[booking]
                self._rest(booking, job, self.now, is_pause=False)

    def _out(self) -> set[str]:
        return {each.gpu for each in self._history.outages if each.starts <= self.now < each.ends}

    def _arrive(self, past: Past) -> None:
        request = past.request
        if request.fixed and request.earliest < self.now:
            # It came between two steps.
            request = replace(request, earliest=self.now)
        self.outcome.fates[request.booking] = Fate(inside=self._fits_inside(request))
        self._waiting[request.booking] = request

    def _fits_inside(self, request: Request) -> bool:
        """Whether all that its organisation runs and waits for fits with it into the guarantee."""
        tier, gpu_class = self._tiers.get(request.tier), next(iter(request.ask.classes), "")
        model = self._of_class.get(gpu_class)
        if tier is None or not tier.counts or model is None or request.ask.groups:
            return False
        names = {each.profile for each in model.placements}
        if isinstance(request.ask.shape, str) and request.ask.shape not in names:
            return False
        wanted = request.ask.count * units_of(model, request.ask.shape)
        for job in self._jobs.values():
            if self._counts(job.request, request.tenant):
                places = [row.place for row in job.rows if self._class_of[row.place.gpu] == gpu_class]
                wanted += sum(map(self._units, places))
        for other in self._waiting.values():
            if self._counts(other, request.tenant) and gpu_class in other.ask.classes:
                is_known = not isinstance(other.ask.shape, str) or other.ask.shape in names
                wanted += other.ask.count * units_of(model, other.ask.shape) if is_known else 0
        return wanted <= self._sure.get((request.tenant, gpu_class), 0)

    def _counts(self, request: Request, tenant: str) -> bool:
        tier = self._tiers.get(request.tier)
        return request.tenant == tenant and (tier is None or tier.counts)

    def _snapshot(self) -> Snapshot:
        out = self._out()
        site, known = self._history.site, self._history.maintenance
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
        )

    def _past_use(self) -> Iterator[Used]:
        """Use by day, as far back as it matters. What was used on a day that is over stays."""
        today, oldest = self.now // DAY * DAY, self.now - 10 * self._policy.half_life
        over = (today, -(-oldest // DAY))
        if over != self._days_over:
            rows = (_used(key, n) for key, n in self._used.items() if oldest <= key[3] < today)
            self._days_over, self._of_days_over = over, tuple(sorted(rows, key=_USED_ORDER))
        yield from self._of_days_over
        since = max(today, oldest)
        yield from (_used(key, n) for key, n in self._used.items() if key[3] >= since)

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
        rows = [_row(request, given, number, self.now) for number in range(len(given.places))]
        # What leaves at the end of a notice and resumes elsewhere at once has both until then.
        before = self._jobs.pop(given.booking, None)
        if before is not None:
            for row in before.rows:
                self._count(row, self.now, row.ends)
        length = given.ends - given.starts
        self._jobs[given.booking] = _Job(rows, request, min(length, self._need[given.booking]))
        if given.starts <= self.now:
            self._began(given.booking, given.starts)

    def _pause(self, pause: Pause) -> None:
        job = self._jobs[pause.booking]
        fate = self.outcome.fates[pause.booking]
        fate.pauses += 1
        fate.lost += pause.lost
        self._rest(pause.booking, job, pause.at, is_pause=True)
        job.rows = [replace(row, ends=pause.at, pausing=True) for row in job.rows]

    def _rest(self, booking: str, job: _Job, at: int, *, is_pause: bool) -> None:
        """Queues what is left of a run that ends at an instant; nothing, if it is over by then."""
        first = job.rows[0]
        left = first.starts + job.need - max(at, first.starts)
        if left <= 0:
            return
        self._need[booking] = left
        request = job.request
        self._waiting[booking] = replace(
            request,
            earliest=at,
            duration=first.ends - max(at, first.starts),
            latest=first.ends if request.fixed and is_pause else request.latest,
            fixed=False,
            planned=None,
            paused=True,
            pauses=first.pauses + is_pause,
        )


def _seen(time: int) -> int:
    return -(-time // STEP) * STEP


def _used(key: tuple[str, str, str, int, str], amount: int) -> Used:
    return Used(key[0], key[1], key[2], key[3], amount, key[4])


def _planned(wait: Waiting) -> PlannedStart | None:
    """The planned start; None without places, because nothing proves it."""
    return PlannedStart(wait.starts, wait.ends, wait.places, wait.strength) if wait.places else None


def _row(request: Request, given: Assign, number: int, now: int) -> Held:
    is_there = given.starts <= now
    is_mixed = bool(request.ask.groups)
    return Held(
        id=f"{given.booking}/{number}/{given.starts}",
        booking=given.booking,
        tenant=request.tenant,
        project=request.project,
        place=given.places[number],
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
        level=None if is_there or request.paused or is_mixed else demands_of(request)[0].level,
        granted=(now, given.position),
        mixed=is_mixed,
    )


def played(history: History, policy: Policy, lengths: Mapping[str, int]) -> Outcome:
    """Plays a history to its end."""
    play = Play(history, policy, lengths)
    for _ in play.turns():
        pass
    return play.outcome
