"""Quotes: ways to serve a request before anybody books, with start, price and risk."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from solver.cycle.claims import among_planned
from solver.cycle.extending.extensions import why_not_longer
from solver.cycle.order.guaranteed_use import GuaranteedUse
from solver.cycle.order.preview import QueuePreview
from solver.cycle.order.queue import Turn
from solver.cycle.order.strengths import Strengths, strength_of
from solver.cycle.outcome import Outcome
from solver.cycle.planned_places import starts_without_freeing
from solver.cycle.planned_starts import planned_starts_reserve
from solver.cycle.walk import Walk
from solver.explanation.alternatives import (
    compute_of,
    in_fleet,
    next_free,
    one_class,
    variants,
)
from solver.explanation.blockers import out_of_service, why_limited, why_not_at, why_not_free
from solver.explanation.explain import QueueAhead, freed_by, possible_demands
from solver.model.demand import Demand, Fit, demand_of, demands_of
from solver.model.inner_limits import FOREVER
from solver.model.inputs import Request, Snapshot, Strength
from solver.model.ordering import in_order
from solver.model.policy import Policy
from solver.model.quote import QUARTER, Kind, Option, Quote, QuoteRequest
from solver.preemption.search import Preemption
from solver.reasons.reason import Reason, reason
from solver.rebinding.rebinding import Rebinding
from solver.state.array_runs import LastRun, Runs, last_run
from solver.state.cycle_state import CycleState
from solver.state.energy_starts import energy_start, waits_for_energy
from solver.state.start_times import last_start

_DAY = 86_400
_MOST_OPTIONS = 6
_MOST_AHEAD = 50
"""Longest part of the queue that a quote places first, to stay fast."""
_LAST = "~"
"""Sorts after all other bookings of the same submission time."""


class QuoteWalk(Walk):
    """A walk as far as one more request, which is undone after its quote.

    All planned starts are reserved before it begins. Of those, expected ones are freed behind the
    first booking without a start, and reserved again in their turn.
    """

    def run_until(self, mine: Request, most: int) -> None:
        """Give those ahead of `mine` their starts, at most so many new ones, and free what it may
        take of those behind it."""
        for at, turn in enumerate(self._turns):
            self._at = at
            booking = turn.request.booking
            if booking == _LAST:
                self._give_freed_turns(len(self._turns))
                if not starts_without_freeing(self._outcome.state, mine):
                    self._free_expected(turn)
                    self._free_own_guaranteed(mine)
                return
            is_given_up = booking in self._given_up
            if booking not in self._kept and (is_given_up or self._newcomers < most):
                self._free_expected(turn)
                self._give_turn(turn)

    def _free_expected(self, turn: Turn) -> None:
        """Free the expected starts behind a turn, in all classes that are connected with its."""
        for at in self._places.expected_behind(turn.request, self._at):
            if self._turns[at].request.booking in self._kept:
                self._free(self._turns[at])
                del self._freed[self._turns[at].request.booking]

    def freed_for(self, request: Request, at: int, until: int) -> list[str]:
        """Bookings with starts before `until` that one more request at this index would free."""
        if not request.ask.classes or starts_without_freeing(self._outcome.state, request):
            return []
        rows = (n for each in self._places.of(request) for n in each[bisect_left(each, at) :])
        behind = (self._turns[n].request.booking for n in rows)
        return [booking for booking in behind if self._kept[booking].starts < until]

    def undo(self) -> None:
        """Free what was reserved."""
        movable, state = self._outcome.rebinding.movable, self._outcome.state
        for booking, found in reversed(self._reserved.items()):
            state.free(movable.take(booking, found.demand.gpu_class) or found)
            self._outcome.strengths.lift(booking)

    def redo(self) -> None:
        """Reserve again what was freed, once all moves are undone."""
        for turn, found in self._given_up.values():
            self._outcome.state.reserve(found)
            self._keep(turn.request, found)


class Availability:
    """The site as the next cycle would see it; answers any number of quote requests.

    Requests that are still undecided are placed first where they precede in the queue.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Load held and planned work. ValueError: the snapshot contradicts itself."""
        self._snapshot, self._policy = in_order(snapshot), policy
        self._build()

    def _build(self) -> None:
        snapshot = self._snapshot
        self._state = CycleState(snapshot, self._policy)
        self._preemption = Preemption(self._state, snapshot)
        use = GuaranteedUse(self._state, snapshot)
        self._strengths = strengths = Strengths(self._state, snapshot, use)
        self._queue = queue = QueuePreview(self._state, snapshot, use.for_queue())
        self._turns = turns = queue.turns(snapshot.requests, strengths.firm(snapshot.requests))
        waiting = (turn.request for turn in turns)
        planned, kept, self._broken = planned_starts_reserve(
            self._state, self._preemption, strengths, waiting
        )
        self._rebinding = Rebinding(self._state, snapshot)
        self._rebinding.keep(planned, kept)
        self._rebinding.open_to_newcomers()
        self._kept = kept
        self._walk = self._walk_of(turns)

    def _rebuild_if_stale(self) -> None:
        """Build the site again after placing the queue gave notice, which can't be undone."""
        if self._preemption.notices.pauses:
            self._build()

    def free(self, since: int, until: int) -> dict[str, tuple[tuple[int, int], ...]]:
        """Stretches of [since, until) without held or planned work, for each GPU that can be booked
        whole."""
        self._rebuild_if_stale()
        found: dict[str, tuple[tuple[int, int], ...]] = {}
        for name, pool in self._state.pools.items():
            begins, ends, busy = self._state.all.stretches(name, since, until)
            columns = np.flatnonzero(pool.eligible(None))
            # Rows of zeros before and after, so that every free stretch has two edges.
            free = np.zeros((len(ends) + 2, len(columns)), dtype=np.int8)
            free[1:-1] = busy[:, columns] == 0
            changes = np.diff(free, axis=0).T != 0
            for column, changed in zip(columns.tolist(), changes, strict=True):
                edges = np.flatnonzero(changed)
                first, last = begins[edges[::2]], ends[edges[1::2] - 1]
                found[pool.gpus[column].id] = tuple(zip(first.tolist(), last.tolist(), strict=True))
        return found

    def why_not_longer(self, booking: str, until: int) -> Reason | None:
        """The reason that forbids a later end of a live booking; None when nothing does."""
        self._rebuild_if_stale()
        rows = tuple(row for row in self._snapshot.held if row.booking == booking)
        return why_not_longer(self._state, rows, until)

    def quote(self, question: QuoteRequest, *, only_as_asked: bool = False) -> Quote:
        """The options and, when the request can't be met as asked, the one main reason."""
        self._rebuild_if_stale()
        question = self._behind(question)
        asked = self._demands_of(question)
        able = in_fleet(self._state, asked)
        with self._queue_ahead(_request(question, able or asked, self._state.now)):
            return self._answer(question, asked, only_as_asked=only_as_asked)

    def last_run(self, question: QuoteRequest, runs: Runs) -> LastRun:
        """The end of the last of many runs of a request, if nobody else books."""
        self._rebuild_if_stale()
        question = self._behind(question)
        asked, first = self._demands_of(question), _first_start(self._state, question)
        able, _ = possible_demands(self._state, asked)
        with self._queue_ahead(_request(question, able or asked, self._state.now)):
            return last_run(self._state, able, first, question.duration, runs)

    def _behind(self, question: QuoteRequest) -> QuoteRequest:
        """The question of work that leaves headroom free, if its place in the queue says so."""
        if not (self._snapshot.peaks and self._policy.headroom):
            return question
        asked = self._demands_of(question)
        mine = _request(question, in_fleet(self._state, asked) or asked, self._state.now)
        return replace(question, behind=self._queue.turn(mine).request.behind)

    @contextmanager
    def _queue_ahead(self, mine: Request) -> Iterator[None]:
        """Give all requests that precede `mine` their starts, and free what it may take, for as
        long as the context lasts."""
        turns, walk, at = self._turns_beside(mine)
        # Ahead of the first without a start everybody keeps what is reserved.
        if all(turn.request.booking in self._kept for turn in turns[:at]):
            with self._room_behind(mine, at, walk):
                yield
            return
        turns = [*turns[:at], self._queue.turn(mine), *turns[at:]]
        walk = self._walk_of(turns)
        with self._rebinding.rehearsed():
            walk.run_until(mine, _MOST_AHEAD)
            yield
            walk.undo()
            self._preemption.victim_rules.in_place.forget_grants()
        walk.redo()

    def _turns_beside(self, mine: Request) -> tuple[list[Turn], QuoteWalk, int]:
        """The others in their order next to `mine`, a walk along them, and its index in it."""
        changed = self._queue.turns_with(mine)
        if changed is None:
            return self._turns, self._walk, self._queue.place_of(mine, self._turns)
        at = next(at for at, turn in enumerate(changed) if turn.request.booking == _LAST)
        others = [turn for turn in changed if turn.request.booking != _LAST]
        return others, self._walk_of(others), at

    @contextmanager
    def _room_behind(self, mine: Request, at: int, walk: QuoteWalk) -> Iterator[None]:
        """Free what `mine` may take of the planned starts behind it."""
        state, movable = self._state, self._rebinding.movable
        freed = []
        with ExitStack() as lifted:
            for booking in walk.freed_for(mine, at, self._last_end(mine)):
                kept = self._kept[booking]
                freed.append((booking, kept, movable.take(booking, kept.demand.gpu_class)))
                state.free(kept)
                lifted.enter_context(self._strengths.use.lifted(booking))
            yield
        for booking, kept, was_movable in reversed(freed):
            state.reserve(kept)
            if was_movable is not None:
                movable.add(booking, kept)

    def _last_end(self, mine: Request) -> int:
        """The end of `mine` with all planned starts where they are, or of what may move for it:
        what begins later is in nobody's way, unless a cap counts its GPU-hours."""
        if self._state.quota.has_hours:
            return FOREVER
        demands, _ = possible_demands(self._state, demands_of(mine))
        first = max(mine.earliest, self._state.now)
        if mine.fixed or not demands:
            return first + mine.duration
        last = last_start(self._state, mine)
        first = self._state.first_start(mine.earliest)
        found = self._preemption.earliest(mine, demands, first, last) if first <= last else None
        if found is None:
            return _horizon(self._state) + mine.duration
        if found.starts <= first:
            return found.ends
        window, names = (first, found.ends), [each.gpu_class for each in demands]
        return max(found.ends, *(self._rebinding.last_end(name, window) for name in names))

    def _walk_of(self, turns: list[Turn]) -> QuoteWalk:
        outcome = self._outcome()
        return QuoteWalk(outcome, self._queue, turns, self._kept, self._broken)

    def _answer(self, question: QuoteRequest, asked: tuple[Demand, ...], *, only_as_asked: bool) -> Quote:
        state = self._state
        demands, never = possible_demands(state, asked)
        found, blocked = self._as_asked(question, demands, never)
        others = () if only_as_asked else variants(state, one_class(state, asked), question.lengths)
        for variant in others:
            able, _ = possible_demands(state, (variant.demand,))
            other = self._find(question, able, with_moves=False)
            found += [(other, variant.kind)] if other else []
        site = self._outcome()
        options = [_option(site, question, asked[0], *each) for each in found]
        return Quote(best_options(options), blocked)

    def _demands_of(self, question: QuoteRequest) -> tuple[Demand, ...]:
        owners = (question.tenant, question.project)
        return tuple(
            demand_of(
                question.ask,
                name,
                question.lengths.get(name, question.duration),
                owners,
                question.quota_tier,
                question.owner,
            )
            for name in dict.fromkeys(question.ask.classes)
        )

    def _as_asked(
        self, question: QuoteRequest, demands: tuple[Demand, ...], never: tuple[Reason, ...]
    ) -> tuple[list[tuple[Fit, Kind]], Reason | None]:
        """The request as asked; else the reason against it and the next window that serves it."""
        exact = self._find(question, demands)
        if exact is not None:
            return [(exact, "as_asked")], None
        # Without a deadline, that search was this one.
        is_all = not question.fixed and question.latest is None
        later = None if is_all else next_free(self._state, demands, _first_start(self._state, question))
        (blocked,) = freed_by((_why(self._state, question, demands, never),), later)
        return [(later, "later")] if later else [], blocked

    def _find(
        self, question: QuoteRequest, demands: tuple[Demand, ...], *, with_moves: bool = True
    ) -> Fit | None:
        """The fit that the next cycle would give. Nothing is reserved, and nobody gets notice.

        Without moves, which cost most time, the start may be later than the cycle's.
        """
        state, first = self._state, _first_start(self._state, question)
        if not demands or first > _horizon(state):
            return None
        if question.fixed and question.earliest < state.now:
            return None
        request = _request(question, demands, state.now)
        last = last_start(state, request)
        if question.fixed:
            free = state.first_at(demands, first)
            free = free or (self._beside(demands, first) if with_moves else None)
            return free or self._preemption.earliest(request, demands, first, last)
        found = self._preemption.earliest(request, demands, first, last)
        if found is not None and waits_for_energy(state, request):
            chosen = energy_start(state, request, demands, found, last)
            if chosen is not None:
                return chosen.fit
        is_late = found is None or found.starts > first or bool(found.victims)
        is_chosen = found is not None and (request.cheapest or bool(request.durations))
        if with_moves and is_late and first <= last and not is_chosen:
            found = self._beside(demands, first) or found
        if with_moves and first <= last:
            with self._rebinding.kept():
                found = among_planned(self._outcome(), request, demands, first, found)
        return found

    def _outcome(self) -> Outcome:
        return Outcome(self._state, self._preemption, self._rebinding, self._strengths)

    def _beside(self, demands: tuple[Demand, ...], starts: int) -> Fit | None:
        """A fit at exactly this start after moves, which are undone."""
        with self._rebinding.kept():
            return self._rebinding.place_with_moves(demands, starts)


def _first_start(state: CycleState, question: QuoteRequest) -> int:
    if question.fixed:
        return max(question.earliest, state.now)
    return state.first_start(question.earliest)


def _horizon(state: CycleState) -> int:
    return state.now + state.policy.horizon


def _why(
    state: CycleState, question: QuoteRequest, demands: tuple[Demand, ...], never: tuple[Reason, ...]
) -> Reason:
    first = _first_start(state, question)
    if not demands:
        return never[0] if never else reason("unknown_class")
    if question.fixed and question.earliest < state.now:
        return reason("window_past", begun=1)
    if first > _horizon(state):
        return reason("advance_window", horizon_seconds=state.policy.horizon)
    out = None if question.fixed else out_of_service(state, demands, first)
    if out is not None:
        return out
    if not question.fixed and question.latest is not None:
        return reason("deadline_unreachable", busy=1)
    limit = None if question.fixed else why_limited(state, demands[0], first, _horizon(state))
    return limit or _blocker(state, question, demands[0])


def _blocker(state: CycleState, question: QuoteRequest, demand: Demand) -> Reason:
    """The reason against the requested start; planned work is as busy as running work."""
    starts = _first_start(state, question)
    blockers = why_not_at(state, demand, starts, QueueAhead())
    if blockers and blockers[0].code not in ("line", "gpus_busy"):
        return blockers[0]
    return why_not_free(state, demand, starts)


def _option(site: Outcome, question: QuoteRequest, asked: Demand, found: Fit, kind: Kind) -> Option:
    demand = found.demand
    nodes = {each for part in site.state.parts(found) for each in _nodes(site, part)}
    uses, window = site.state.uses(demand), found.window
    borrowed = sum(site.state.quota.borrowed(use, window) for use in uses)
    weight = sum(question.rates.get(use.gpu_class, 0) * use.units for use in uses)
    quarter = found.starts % _DAY // QUARTER
    return Option(
        gpu_class=demand.gpu_class,
        profile=demand.profile,
        count=demand.count,
        share=demand.share,
        starts=found.starts,
        ends=found.ends,
        places_hint=tuple(sorted(nodes)),
        kind=kind,
        units=sum(use.units for use in uses),
        weight=weight * demand.duration,
        borrowed=borrowed,
        risk=_risk(question, demand, (borrowed > 0, quarter)),
        speed=_speed(site, question, asked, demand),
        tier=question.tier,
        pauses=site.preemption.notices.rules(found),
        strength=_strength(site, question, found),
        groups=demand.groups,
    )


def _nodes(site: Outcome, part: Fit) -> set[str]:
    pool = site.state.pools[part.demand.gpu_class]
    return {pool.gpus[pool.column[place.gpu]].node for place in part.places}


def _strength(site: Outcome, question: QuoteRequest, found: Fit) -> Strength:
    """What the next cycle says of the start: it gives notice, or assigns it, where it may."""
    request = _request(question, (found.demand,), site.state.now)
    is_due = site.preemption.notices.is_due(found) and site.preemption.notices.may_notify(request, found)
    is_soon = found.starts <= site.state.frozen_for(found.demand)
    is_inside = site.strengths.use.is_inside(found.demand, found.window)
    is_firm = question.fixed or (is_due and (is_soon or bool(found.victims)))
    return strength_of(is_firm=is_firm, is_inside=is_inside)


def _speed(site: Outcome, question: QuoteRequest, asked: Demand, demand: Demand) -> int | None:
    """Speed in thousandths of the request's on its first class; None: not comparable."""
    if question.lengths:
        lengths = question.lengths
        reference = question.reference or asked.gpu_class
        return 1000 * lengths.get(reference, question.duration) // demand.duration
    if demand.gpu_class != asked.gpu_class:
        return None
    try:
        one, other = (compute_of(site.state, each) for each in (demand, asked))
    except KeyError:
        return None
    return 1000 * demand.count * one // (asked.count * other)


def _risk(question: QuoteRequest, demand: Demand, when: tuple[bool, int]) -> int:
    """The chance of a pause in thousandths: of a mixed option, on the class where it is highest."""
    return max(question.risks.get((part.gpu_class, *when), 0) for part in demand.parts)


def quote(snapshot: Snapshot, policy: Policy, question: QuoteRequest) -> Quote:
    """Answer one quote request; keep an `Availability` to answer many."""
    return Availability(snapshot, policy).quote(question)


def _request(question: QuoteRequest, demands: tuple[Demand, ...], now: int) -> Request:
    """The request that a booking of the quote would be."""
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
        planned=None,
        owner=question.owner,
        durations=lengths if question.lengths and len(lengths) > 1 else (),
        cheapest=question.cheapest,
        within=question.within,
        behind=question.behind,
    )


def best_options(options: Iterable[Option], most: int = _MOST_OPTIONS) -> tuple[Option, ...]:
    """The option as asked first, then the others by start and price, without dominated ones: those
    no better than another in start, price, risk or speed."""
    options = list(options)
    kept = [
        option
        for place, option in enumerate(options)
        if place == 0
        or not any(_dominates(options, other, place) for other in range(len(options)) if other != place)
    ]
    first, others = kept[:1], kept[1:]
    others.sort(key=lambda o: (o.starts, o.weight, o.kind, o.gpu_class, o.profile or "", o.tier))
    return tuple((first + others)[:most])


def _dominates(options: list[Option], one: int, other: int) -> bool:
    """True when `one` makes `other` pointless; of equal options the first wins.

    Where speeds can't be compared, only a later start that is better in nothing is pointless.
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
