"""A world that lives: people ask, cancel and extend, plans are made true, work ends early."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from solver import (
    Ask,
    Cooling,
    Extension,
    Held,
    Limit,
    Maintenance,
    Notice,
    Place,
    Plan,
    PlannedStart,
    Policy,
    Request,
    Snapshot,
    Tier,
    Used,
    Waiting,
    solve,
)
from solver.model.rows import rows_of
from solver.reasons.catalogue import UNPROVEN
from solver.state.kept import QuietClasses
from tests.solver.builders import MODELS, NOON
from tests.solver.standing import units_of
from tests.worlds.draw import Drawn, Event
from tests.worlds.drawn import drawn_of
from tests.worlds.guarantees import dates_of
from tests.worlds.jobs import DAY, Job
from tests.worlds.operators import Operators
from tests.worlds.outside import outside_happen
from tests.worlds.people import People, Weakened

EVERY = 300
"""Seconds between two cycles in which nothing happens."""
QUIET = 7
"""After so many cycles without an event from outside nothing but time passes until the next one:
no protection or cool-down is longer."""
LONGEST = 6 * DAY
UNITS = 56_000


@dataclass
class Run:
    """What is left of a booking: as planned, and really; `notified`: its end before a notice."""

    job: Job
    planned: int
    really: int
    pauses: int = 0
    began: int | None = None
    granted: int = 0
    notified: int | None = None
    beneficiary: str = ""
    is_preemptor: bool = False


@dataclass
class Turn:
    """One cycle for the oracle: the site before, the plan, what was outside it, and who gave up something."""

    site: Snapshot
    plan: Plan
    outside: frozenset[str]
    weakened: tuple[Weakened, ...] = ()


@dataclass
class World:
    """What is true between cycles."""

    drawn: Drawn
    now: int = NOON
    rows: list[Held] = field(default_factory=list)
    waiting: dict[str, Request] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    blackouts: tuple[Maintenance, ...] = ()
    broken: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    cooling: tuple[Cooling, ...] = ()
    limits: tuple[Limit, ...] = ()
    used: dict[tuple[str, str, str, int], int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    extended: set[str] = field(default_factory=set)
    cycles: int = 0
    arrivals: list[Job] = field(default_factory=list)
    _events: list[Event] = field(default_factory=list)
    _grants: int = 0
    _quiet: int = 0
    people: People = field(init=False)
    operators: Operators = field(init=False)
    policy: Policy = field(init=False)
    tiers: tuple[Tier, ...] = field(init=False)
    classes: QuietClasses = field(init=False)

    def __post_init__(self) -> None:
        self.policy, self.tiers = self.drawn.policy, self.drawn.tiers
        self.people = People(self, self.drawn.requests)
        self.operators = Operators(self, self.drawn.operations)
        self.classes = QuietClasses(self.drawn.search_every, least=0)

    @classmethod
    def of(cls, seed: int) -> "World":
        """The world of this number, before anything has happened."""
        return cls.of_drawn(drawn_of(seed))

    @classmethod
    def of_drawn(cls, drawn: Drawn) -> "World":
        """A world of the caller's, before anything has happened."""
        world = cls(drawn, limits=drawn.limits)
        world.arrivals = sorted(drawn.jobs, key=lambda job: (job.at, job.name))
        world._events = sorted(drawn.events, key=lambda event: event.at)
        return world

    def turns(self) -> Iterator[Turn]:
        """Lives to the end; yields after each plan that has been made true."""
        while self._is_going_on():
            outside = frozenset(self._happen())
            self._quiet = 0 if outside else self._quiet + 1
            site = self.snapshot()
            site = replace(site, quiet=self.classes.of(rows_of(site)))
            plan = solve(site, self.policy)
            self.cycles += 1
            turn = Turn(site, plan, outside, tuple(self.people.weakened))
            self._make_true(plan)
            yield turn
            self.operators.read(site, plan)
            self.now = self._next()

    def snapshot(self) -> Snapshot:
        """What the solver reads."""
        drawn, out = self.drawn, self.broken | self.drained
        return Snapshot(
            now=self.now,
            models=MODELS,
            gpus=tuple(
                replace(gpu, usable=gpu.id not in out, silent=gpu.node in self.silent) for gpu in drawn.gpus
            ),
            held=tuple(self.rows),
            requests=tuple(self.waiting.values()),
            extensions=tuple(self._extensions()),
            limits=self.limits,
            tiers=self.tiers,
            caps=drawn.caps,
            cooling=tuple(each for each in self.cooling if each.until > self.now),
            used=tuple(
                Used(tenant, project, gpu_class, day, seconds)
                for (tenant, project, gpu_class, day), seconds in sorted(self.used.items())
            ),
            running=tuple(self._running()),
            hosts=drawn.hosts,
            energy=drawn.energy,
            guarantees=tuple(each for each in drawn.guarantees if each.ends > self.now),
            tier_parts=drawn.tier_parts,
            blackouts=tuple(each for each in self.blackouts if each.ends > self.now),
            unneeded=tuple(self._unneeded()),
            notices=tuple(self._notices()),
            **self.people.snapshot(),
            **self.operators.snapshot(),
        )

    def rows_of(self, name: str) -> list[Held]:
        """The rows of a booking."""
        return [row for row in self.rows if row.booking == name]

    def _is_going_on(self) -> bool:
        is_busy = self.arrivals or self.rows or self.waiting or self.people.is_open()
        is_busy = is_busy or self.operators.is_open()
        return bool(is_busy) and self.now < NOON + LONGEST

    def _next(self) -> int:
        """The second of the next event, or of the next cycle while somebody waits."""
        is_busy = bool(self.waiting) or self.people.is_awaited()
        is_open = is_busy and self._quiet < QUIET
        times = [self.now + EVERY] if is_open else [NOON + LONGEST]
        times += [job.at for job in self.arrivals[:1]]
        times += [event.at for event in self._events[:1]]
        times += [time for row in self.rows for time in (row.starts, row.ends)]
        times += [self._real_end(row) for row in self.rows if row.since is not None]
        starts = [r.planned.starts for r in self.waiting.values() if r.planned is not None]
        # Notice is given in time only if there is a cycle in time.
        margin, graces = self.policy.notice_margin, {t.grace for t in self.tiers}
        times += [*starts, *(at - grace - margin for at in starts for grace in graces)]
        times += [*self.people.times(), *self.operators.times()]
        times += dates_of(self.drawn, [0, *(grace + margin for grace in graces)]) if is_busy else []
        return min((time for time in times if time > self.now), default=NOON + LONGEST)

    def _real_end(self, row: Held) -> int:
        run = self.runs[row.booking]
        return (run.began or row.starts) + run.really

    # What happens from outside.

    def _happen(self) -> Iterator[str]:
        yield from self._end()
        for index, row in enumerate(self.rows):
            if row.starts <= self.now and not row.started:
                self.rows[index] = replace(row, started=True, since=row.starts)
                self.runs[row.booking].began = row.starts
                self.started.setdefault(row.booking, row.starts)
        while self.arrivals and self.arrivals[0].at <= self.now:
            job = self.arrivals.pop(0)
            if not self.people.takes(job):
                self.arrive(job)
            yield "arrival"
        yield from self._cancel()
        yield from self.people.happen()
        yield from self.operators.happen()
        while self._events and self._events[0].at <= self.now:
            yield outside_happen(self, self._events.pop(0))

    def arrive(self, job: Job) -> None:
        """Somebody waits in the queue from now on."""
        self.runs[job.name] = self.run_of(job)
        self.waiting[job.name] = self.request_of(job)

    def run_of(self, job: Job) -> Run:
        """The run of a booking that has not begun."""
        return Run(job, job.seconds, job.really)

    def _end(self) -> Iterator[str]:
        """Ends what is over, and what has been given notice by now."""
        for name in sorted({row.booking for row in self.rows}):
            rows, run = self.rows_of(name), self.runs[name]
            is_over = rows[0].since is not None and self._real_end(rows[0]) <= self.now
            if is_over or rows[0].ends <= self.now:
                is_paused = run.notified is not None and not is_over
                self.leave(name, min(rows[0].ends, self.now), is_paused=is_paused)
                yield "pause" if is_paused else "end"

    def leave(self, name: str, at: int, *, is_paused: bool) -> None:
        """What somebody has is free from then on."""
        rows, run = self.rows_of(name), self.runs[name]
        self.rows = [row for row in self.rows if row.booking != name]
        began = run.began if run.began is not None else at
        had = max(0, at - began)
        for row in rows:
            self._use(row, began, at)
        run.began, run.notified, run.is_preemptor = None, None, False
        if is_paused:
            run.planned, run.really = run.planned - had, run.really - had
        else:
            self.waiting.pop(name, None)
            self.ended[name] = at

    def _use(self, row: Held, starts: int, ends: int) -> None:
        """Count what a row has used, by day."""
        gpu = next(gpu for gpu in self.drawn.gpus if gpu.id == row.place.gpu)
        units = units_of(next(each for each in MODELS if each.slug == gpu.model), row.place)
        for day in range(starts // DAY * DAY, ends, DAY):
            seconds = max(0, min(ends, day + DAY) - max(starts, day))
            key = (row.tenant, row.project, gpu.gpu_class, day)
            self.used[key] = self.used.get(key, 0) + seconds * units

    def _cancel(self) -> Iterator[str]:
        for name in [*self.waiting, *sorted({row.booking for row in self.rows})]:
            job = self.runs[name].job
            after = job.cancelled_after
            if after is not None and job.at + after <= self.now and name not in self.ended:
                self.waiting.pop(name, None)
                until = self.now + self.policy.cool_down
                for gpu_class in self._awaited_on(name):
                    self.cooling += (Cooling(job.tenant, until, job.owner, gpu_class),)
                self.leave(name, self.now, is_paused=False)
                yield "cancel"

    def _awaited_on(self, name: str) -> list[str]:
        """The classes on which others have notice for it."""
        leave = {who for who, run in self.runs.items() if run.notified and run.beneficiary == name}
        return sorted({self.class_of(row) for row in self.rows if row.booking in leave})

    # What the solver gets.

    def request_of(self, job: Job) -> Request:
        """What the solver is asked for it."""
        return Request(
            booking=job.name,
            tenant=job.tenant,
            project=job.project,
            tier=job.tier.slug,
            priority=job.tier.priority,
            submitted=job.at,
            ask=job.ask,
            duration=job.seconds,
            earliest=job.earliest,
            latest=None if job.patience is None else job.earliest + job.seconds + job.patience,
            fixed=job.fixed,
            planned=None,
            owner=job.owner,
            durations=job.durations,
            cheapest=job.cheapest,
            series=job.series,
            within=job.within,
        )

    def _running(self) -> Iterator[Request]:
        for name in sorted({row.booking for row in self.rows}):
            run, row = self.runs[name], self.rows_of(name)[0]
            if run.job.tier.pausable and row.started and not row.pausing:
                yield self._rest(name, row.ends - self.now, self.now)

    def _rest(self, name: str, left: int, earliest: int) -> Request:
        """What is asked for the rest of a run, on its class if its time depends on the class."""
        run, row = self.runs[name], self.rows_of(name)[0]
        request = self.request_of(run.job)
        ask = request.ask
        home: tuple[Place, ...] = ()
        if run.job.durations:
            ask = replace(ask, classes=(self.class_of(row),))
        if self.drawn.suspends and ask.count == 1 and not (ask.profile or ask.share or ask.groups):
            home = (row.place,)
        return replace(
            request,
            ask=ask,
            duration=left,
            earliest=earliest,
            latest=None,
            fixed=False,
            series=None,
            durations=(),
            pauses=run.pauses,
            home=home,
            home_wait=self.now - (run.began or self.now) if home else 0,
        )

    def _extensions(self) -> Iterator[Extension]:
        """Each asks once, in the first cycle of its run's second half."""
        for name in sorted({row.booking for row in self.rows}):
            run, row = self.runs[name], self.rows_of(name)[0]
            is_late = row.since is not None and self.now * 2 >= row.since + row.ends
            if run.job.extended_by and is_late and not row.pausing and name not in self.extended:
                self.extended.add(name)
                yield Extension(name, row.ends + run.job.extended_by, self._added(run.job, row))

    def _added(self, job: Job, row: Held) -> Request:
        """The place in the queue of what an extension adds."""
        return replace(
            self.request_of(job),
            booking=f"longer {job.name}",
            submitted=self.now,
            ask=job.ask if job.ask.groups else replace(job.ask, classes=(self.class_of(row),)),
            duration=job.extended_by,
            earliest=row.ends,
            latest=None,
            fixed=True,
            series=None,
            durations=(),
            cheapest=False,
        )

    def class_of(self, row: Held) -> str:
        """The class of a row's GPU."""
        return next(gpu.gpu_class for gpu in self.drawn.gpus if gpu.id == row.place.gpu)

    def _ask_on(self, ask: Ask, gpu: str) -> Ask:
        """The group of a mixed request that this GPU is of."""
        name = next(each.gpu_class for each in self.drawn.gpus if each.id == gpu)
        return next((each for each in ask.groups if each.classes == (name,)), ask)

    def _unneeded(self) -> Iterator[Extension]:
        """Those given notice for a booking that is over or starts before they leave, or by an
        operator who has lifted the pause."""
        for name, run in sorted(self.runs.items()):
            if run.notified is not None and self._is_unneeded(name, run):
                yield Extension(name, run.notified)

    def _notices(self) -> Iterator[Notice]:
        """The others that were given notice for a booking."""
        for name, run in sorted(self.runs.items()):
            # An idle booking leaves whatever its beneficiary does.
            if run.notified is None or not run.beneficiary or name in self.operators.leaving:
                continue
            if not self._is_unneeded(name, run):
                yield Notice(name, run.beneficiary, run.notified)

    def _is_unneeded(self, name: str, run: Run) -> bool:
        at, rows = self.rows_of(name)[0].ends, self.rows_of(run.beneficiary)
        is_lifted = not run.beneficiary and name in self.operators.lifted
        is_early = any(row.starts < at and not row.pausing for row in rows)
        return run.beneficiary in self.ended or is_lifted or is_early

    # What becomes of the plan.

    def _make_true(self, plan: Plan) -> None:
        self.people.read(plan)
        waiting = dict(self.waiting)
        for pause in plan.pauses:
            self.notify(pause.booking, pause.beneficiary, pause.at)
        for name in plan.withdrawn:
            self._keep(name)
        moved = {move.booking: list(move.places) for move in plan.moves}
        self.rows = [
            replace(row, place=moved[row.booking].pop()) if row.booking in moved else row for row in self.rows
        ]
        for each in (extend for extend in plan.extensions if extend.granted):
            self._extend(each.booking, each.until)
        for assign in sorted(plan.assigns, key=lambda each: each.position):
            self.give(waiting[assign.booking], assign.places, assign.starts, assign.ends)
        for name in (refused.booking for refused in plan.refusals):
            if not self.people.waits_for_its_window(name):
                del self.waiting[name]
                self.refused[name] = self.now
        for wait in plan.waits:
            planned = _planned_start_of(wait)
            self.waiting[wait.booking] = replace(self.waiting[wait.booking], planned=planned)

    def notify(self, name: str, beneficiary: str, at: int) -> None:
        """Somebody leaves then for the beneficiary, or because an operator says so."""
        run, row = self.runs[name], self.rows_of(name)[0]
        run.notified, run.beneficiary = row.ends, beneficiary
        if beneficiary:
            self.runs[beneficiary].is_preemptor = True
        run.pauses += 1
        self.rows = [
            replace(each, ends=at, pausing=True) if each.booking == name else each for each in self.rows
        ]
        self.waiting[name] = replace(self._rest(name, row.ends - at, at), paused=True)

    def _keep(self, name: str) -> None:
        run = self.runs[name]
        assert run.notified is not None
        until, run.notified = run.notified, None
        run.pauses -= 1
        self.waiting.pop(name, None)
        self.operators.forget(name)
        self.rows = [
            replace(row, ends=until, pausing=False) if row.booking == name else row for row in self.rows
        ]

    def _extend(self, name: str, until: int) -> None:
        run, row = self.runs[name], self.rows_of(name)[0]
        run.planned += until - row.ends
        run.really += until - row.ends
        self.rows = [replace(each, ends=until) if each.booking == name else each for each in self.rows]

    def give(self, request: Request, places: tuple, starts: int, ends: int) -> None:  # type: ignore[type-arg]
        """Write the rows of a booking."""
        if self.rows_of(request.booking):
            # As the services do: who has notice gets GPUs to resume on once it has left.
            planned = PlannedStart(starts, ends, places)
            self.waiting[request.booking] = replace(request, planned=planned)
            return
        del self.waiting[request.booking]
        ask = request.ask
        run = self.runs[request.booking]
        self._grants += 1
        run.granted = self._grants
        if request.durations:
            # The class decides how long it takes.
            run.really = max(1, run.really * (ends - starts) // run.planned)
        run.planned = ends - starts
        is_started = starts <= self.now
        if is_started:
            run.began = starts
            self.started.setdefault(request.booking, starts)
        self.rows += [
            Held(
                id=f"{request.booking}/{place.gpu}/{place.start}/{starts}",
                booking=request.booking,
                tenant=request.tenant,
                project=request.project,
                place=place,
                starts=starts,
                ends=ends,
                started=is_started,
                since=starts if is_started else None,
                tier=request.tier,
                pauses=run.pauses,
                granted=(self.cycles, self._grants),
                preemptor=run.is_preemptor,
                cores=self._ask_on(ask, place.gpu).cores,
                memory=ask.memory,
                owner=request.owner,
                pinned=bool(ask.pin),
                mixed=bool(ask.groups),
                where=ask.where,
                level=None
                if request.paused or ask.pin or ask.groups
                else (ask.together if ask.required and ask.count > 1 else "any"),
            )
            for place in places
        ]


def _planned_start_of(wait: Waiting) -> PlannedStart | None:
    """As the services store it: without places there is none, and without a proof no strength."""
    is_proven = all(reason.code not in UNPROVEN for reason in wait.reasons[:1])
    strength = wait.strength if is_proven else None
    return PlannedStart(wait.starts, wait.ends, wait.places, strength) if wait.places else None
