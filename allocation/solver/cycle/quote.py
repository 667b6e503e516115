"""Options for an ask before anybody books: when, where, at what rate, and what else would work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from allocation.reasons.reason import Reason, reason
from allocation.solver.cycle.extensions import why_not_longer
from allocation.solver.cycle.planned_starts import planned_starts_reserve
from allocation.solver.cycle.queue_preview import QueuePreview
from allocation.solver.model.inputs import Ask, Policy, Request, Snapshot
from allocation.solver.model.ordering import has_planned_start, in_order, planned_start_order
from allocation.solver.placement.gang import Demand, demand_of
from allocation.solver.preemption.search import Preemption
from allocation.solver.reasons.alternatives import Kind, compute_of, in_fleet, next_free, variants
from allocation.solver.reasons.blockers import why_not_at, why_not_free
from allocation.solver.reasons.explain import QueueAhead, freed_by, possible_demands
from allocation.solver.reasons.in_service import out_of_service
from allocation.solver.reasons.resume import last_start
from allocation.solver.rebinding.rebinding import Rebinding
from allocation.solver.state.working import Fit, Working

QUARTER = 21_600
"""Risks are told apart by the quarter of the day (UTC) in which a booking starts."""

_DAY = 86_400
_MOST_OPTIONS = 6
_LAST = "~"
"""Of those who ask for the same at the same time, who comes last."""


@dataclass(frozen=True, slots=True)
class QuoteRequest:
    """What somebody would like to know. `earliest` is the start of a fixed window.

    `latest` is the last second at which a flexible booking may end. `rates` are money per
    GPU-hour by class in any integer unit; classes without one count as free of charge.

    Work has `lengths`: seconds on each class, of which `duration` is the shortest that was asked
    for; speeds are told beside the class `reference`. `cheapest` as in `Request`. `risks` are the
    chances of a pause in thousandths, by class, whether it borrows, and the quarter of the day
    (UTC) in which it starts; what is not there is never paused. `priority` is that of its tier.
    """

    ask: Ask
    duration: int
    earliest: int
    latest: int | None
    fixed: bool
    tenant: str
    project: str
    rates: Mapping[str, int] = field(default_factory=dict)
    tier: str = ""
    owner: str = ""
    lengths: Mapping[str, int] = field(default_factory=dict)
    reference: str = ""
    cheapest: bool = False
    risks: Mapping[tuple[str, bool, int], int] = field(default_factory=dict)
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Option:
    """One way to get it. `weight` is rate × units × seconds: for comparing, not for paying.

    `places_hint` are node names; the place itself is found again when it is booked. `borrowed` is
    how much of `units` lies above the guarantees.
    `risk` is the chance of a pause and `speed` how fast it is beside the ask, in thousandths;
    None where nobody has compared the classes. `pauses` are how many running bookings would be
    asked to leave for it, by the rule of each.
    """

    gpu_class: str
    profile: str | None
    count: int
    share: int | None
    starts: int
    ends: int
    places_hint: tuple[str, ...]
    kind: Kind
    units: int
    weight: int
    borrowed: int = 0
    risk: int = 0
    speed: int | None = None
    tier: str = ""
    pauses: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Quote:
    """The options, best first. `blocked` says what is in the way when it can't be had as asked."""

    options: tuple[Option, ...]
    blocked: Reason | None


class Availability:
    """A site as it will be if nobody books anything more; asked as often as one likes.

    What others have asked for and is not decided yet is decided first where it stands before.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Lay what is live and what is promised. ValueError: contradicting snapshot."""
        self._snapshot, self._policy = in_order(snapshot), policy
        self._build()

    def _build(self) -> None:
        snapshot = self._snapshot
        self._working = Working(snapshot, self._policy)
        promised = sorted(filter(has_planned_start, snapshot.requests), key=planned_start_order)
        self._preemption = Preemption(self._working, snapshot)
        kept, broken = planned_starts_reserve(self._working, self._preemption, promised)
        self._promised = Rebinding(self._working, snapshot)
        self._promised.keep(
            {r.booking: kept[r.booking] for r in promised if r.booking in kept and not r.home}
        )
        self._promised.open_to_newcomers()
        self._ahead = QueuePreview(
            snapshot, self._working, self._preemption, self._promised, kept, broken
        )

    def free(self, since: int, until: int) -> dict[str, tuple[tuple[int, int], ...]]:
        """Stretches of [since, until) in which nothing is placed or promised on a GPU, by GPU that
        may be booked as a whole."""
        if self._ahead.is_stale:
            self._build()
        found: dict[str, tuple[tuple[int, int], ...]] = {}
        for name, pool in self._working.pools.items():
            begins, ends, busy = self._working.stretches(name, since, until)
            columns = np.flatnonzero(pool.eligible(None))
            # A row of zeros before and after: what is free begins and ends where a column changes.
            free = np.zeros((len(ends) + 2, len(columns)), dtype=np.int8)
            free[1:-1] = busy[:, columns] == 0
            changes = np.diff(free, axis=0).T != 0
            for column, changed in zip(columns.tolist(), changes, strict=True):
                edges = np.flatnonzero(changed)
                first, last = begins[edges[::2]], ends[edges[1::2] - 1]
                found[pool.gpus[column].id] = tuple(zip(first.tolist(), last.tolist(), strict=True))
        return found

    def why_not_longer(self, booking: str, until: int) -> Reason | None:
        """What forbids a later end of a booking that has its place; None when nothing does."""
        if self._ahead.is_stale:
            self._build()
        rows = tuple(row for row in self._snapshot.held if row.booking == booking)
        return why_not_longer(self._working, rows, until)

    def quote(self, question: QuoteRequest, *, only_as_asked: bool = False) -> Quote:
        """Options and, when it can't be had as asked, the one thing that blocks it most."""
        if self._ahead.is_stale:
            self._build()
        asked = self._asked(question)
        able = tuple(demand for demand in asked if demand.gpu_class in self._working.pools)
        with self._ahead.with_queue_ahead(_request(question, able or asked, self._working.now)):
            return self._answer(question, asked, only_as_asked=only_as_asked)

    def _answer(
        self, question: QuoteRequest, asked: tuple[Demand, ...], *, only_as_asked: bool
    ) -> Quote:
        working = self._working
        demands, never = possible_demands(working, asked)
        found, blocked = self._as_asked(question, demands, never)
        others = (
            () if only_as_asked else variants(working, in_fleet(working, asked), question.lengths)
        )
        for variant in others:
            able, _ = possible_demands(working, (variant.demand,))
            other = self._find(question, able, with_moves=False)
            found += [(other, variant.kind)] if other else []
        options = [self._option(question, asked[0], *each) for each in found]
        return Quote(best_options(options), blocked)

    def _asked(self, question: QuoteRequest) -> tuple[Demand, ...]:
        owners = (question.tenant, question.project)
        return tuple(
            demand_of(
                question.ask,
                name,
                question.lengths.get(name, question.duration),
                owners,
                question.tier,
                question.owner,
            )
            for name in dict.fromkeys(question.ask.classes)
        )

    def _as_asked(
        self, question: QuoteRequest, demands: tuple[Demand, ...], never: tuple[Reason, ...]
    ) -> tuple[list[tuple[Fit, Kind]], Reason | None]:
        """The ask itself, else what blocks it and the next window that would do."""
        exact = self._find(question, demands)
        if exact is not None:
            return [(exact, "as_asked")], None
        # Without a deadline that search was this one.
        is_all = not question.fixed and question.latest is None
        later = None if is_all else next_free(self._working, demands, self._first(question))
        (blocked,) = freed_by((self._why(question, demands, never),), later)
        return [(later, "later")] if later else [], blocked

    def _find(
        self, question: QuoteRequest, demands: tuple[Demand, ...], *, with_moves: bool = True
    ) -> Fit | None:
        """What the next cycle would give: see `cycle`. Nothing is reserved, and nobody is told.

        Without moves, which cost most, it may be earlier still.
        """
        working, first = self._working, self._first(question)
        if not demands or first > self._horizon():
            return None
        if question.fixed and question.earliest < working.now:
            return None
        request = _request(question, demands, working.now)
        last = last_start(working, request)
        if question.fixed:
            free = working.first_at(demands, first)
            free = free or (self._beside(demands, first) if with_moves else None)
            return free or self._preemption.earliest(request, demands, first, last)
        found = self._preemption.earliest(request, demands, first, last)
        is_late = found is None or found.starts > first or bool(found.over)
        is_chosen = found is not None and (request.cheapest or bool(request.durations))
        if with_moves and is_late and first <= last and not is_chosen:
            return self._beside(demands, first) or found
        return found

    def _beside(self, demands: tuple[Demand, ...], starts: int) -> Fit | None:
        """Exactly then, if promises can lie elsewhere; all of them are where they were after it."""
        with self._promised.kept():
            return self._promised.place_with_moves(demands, starts)

    def _why(
        self, question: QuoteRequest, demands: tuple[Demand, ...], never: tuple[Reason, ...]
    ) -> Reason:
        working, first = self._working, self._first(question)
        if not demands:
            return never[0] if never else reason("unknown_class")
        if question.fixed and question.earliest < working.now:
            return reason("window_past", begun=1)
        if first > self._horizon():
            return reason("advance_window", horizon_seconds=working.policy.horizon)
        out = None if question.fixed else out_of_service(working, demands, first)
        if out is not None:
            return out
        if not question.fixed and question.latest is not None:
            return reason("deadline_unreachable", busy=1)
        return self._blocker(question, demands[0])

    def _blocker(self, question: QuoteRequest, demand: Demand) -> Reason:
        """What is in the way at the start asked for; what is promised is as busy as what runs."""
        starts = self._first(question)
        blockers = why_not_at(self._working, demand, starts, QueueAhead())
        if blockers and blockers[0].code not in ("line", "gpus_busy"):
            return blockers[0]
        return why_not_free(self._working, demand, starts)

    def _option(self, question: QuoteRequest, asked: Demand, found: Fit, kind: Kind) -> Option:
        demand = found.demand
        pool = self._working.pools[demand.gpu_class]
        nodes = sorted({pool.gpus[pool.column[place.gpu]].node for place in found.places})
        use = self._working.use(demand)
        units, window = use.units, found.window
        borrowed = self._working.quota.borrowed(use, window)
        weight = question.rates.get(demand.gpu_class, 0) * units * demand.duration
        quarter = found.starts % _DAY // QUARTER
        return Option(
            gpu_class=demand.gpu_class,
            profile=demand.profile,
            count=demand.count,
            share=demand.share,
            starts=found.starts,
            ends=found.ends,
            places_hint=tuple(nodes),
            kind=kind,
            units=units,
            weight=weight,
            borrowed=borrowed,
            risk=question.risks.get((demand.gpu_class, borrowed > 0, quarter), 0),
            speed=self._speed(question, asked, demand),
            tier=question.tier,
            pauses=self._preemption.rules(found),
        )

    def _speed(self, question: QuoteRequest, asked: Demand, demand: Demand) -> int | None:
        """Thousandths of the ask's on its first class."""
        if question.lengths:
            lengths = question.lengths
            reference = question.reference or asked.gpu_class
            return 1000 * lengths.get(reference, question.duration) // demand.duration
        if demand.gpu_class != asked.gpu_class:
            return None
        try:
            one, other = (compute_of(self._working, each) for each in (demand, asked))
        except KeyError:
            return None
        return 1000 * demand.count * one // (asked.count * other)

    def _first(self, question: QuoteRequest) -> int:
        if question.fixed:
            return max(question.earliest, self._working.now)
        return self._working.first_start(question.earliest)

    def _horizon(self) -> int:
        return self._working.now + self._working.policy.horizon


def quote(snapshot: Snapshot, policy: Policy, question: QuoteRequest) -> Quote:
    """One question on a snapshot; keep an `Availability` to ask many."""
    return Availability(snapshot, policy).quote(question)


def _request(question: QuoteRequest, demands: tuple[Demand, ...], now: int) -> Request:
    """The booking that it would be."""
    lengths = tuple((demand.gpu_class, demand.duration) for demand in demands)
    return Request(
        booking=_LAST,
        tenant=question.tenant,
        project=question.project,
        tier=question.tier,
        priority=question.priority,
        submitted=now,
        ask=question.ask,
        duration=min(seconds for _, seconds in lengths),
        earliest=question.earliest,
        latest=question.latest,
        fixed=question.fixed,
        promise=None,
        owner=question.owner,
        durations=lengths if question.lengths and len(lengths) > 1 else (),
        cheapest=question.cheapest,
    )


def best_options(options: Iterable[Option], most: int = _MOST_OPTIONS) -> tuple[Option, ...]:
    """What was asked for first, then the earliest and cheapest, without what is no better than
    another in anything: start, price, risk and speed."""
    options = list(options)
    kept = [
        option
        for place, option in enumerate(options)
        if place == 0
        or not any(
            _dominates(options, other, place) for other in range(len(options)) if other != place
        )
    ]
    first, others = kept[:1], kept[1:]
    others.sort(key=lambda o: (o.starts, o.weight, o.kind, o.gpu_class, o.profile or "", o.tier))
    return tuple((first + others)[:most])


def _dominates(options: list[Option], one: int, other: int) -> bool:
    """Whether `one` makes `other` pointless. Of equals the one listed first does.

    Speeds that nobody has compared may hide a difference: then only what starts later and has
    nothing else to offer is pointless.
    """
    better, worse = options[one], options[other]
    if better.risk > worse.risk or better.weight > worse.weight or better.starts > worse.starts:
        return False
    if better.speed is None or worse.speed is None:
        return better.starts < worse.starts
    if better.speed < worse.speed:
        return False
    return _rank(better) != _rank(worse) or one < other


def _rank(option: Option) -> tuple[int, int, int, int | None]:
    return option.starts, option.weight, option.risk, option.speed
