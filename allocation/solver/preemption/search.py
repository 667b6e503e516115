"""Starts for which running work is paused: which victims, where, and when they get notice.

A start with victims is planned as soon as it is requested. Notice is given only when it must be, a
grace period and a margin before the start. Until then it is an ordinary planned start, and a victim
may still end by itself.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from allocation.reasons.reason import reason
from allocation.solver.fleet.pool import Bools
from allocation.solver.model.demand import Demand, Fit
from allocation.solver.model.inputs import Request, Snapshot
from allocation.solver.model.plan import Pause
from allocation.solver.placement.gang import place
from allocation.solver.preemption.victim_rules import Candidate, Rule, VictimRules, is_even
from allocation.solver.preemption.victims import (
    VictimSearch,
    freed_host_resources,
    has_host_resources,
    occupants_of,
    taken_after_leaving,
    victims,
)
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.running import RunningBooking
from allocation.solver.state.start_times import earliest_free, last_start, length_from


class Preemption:
    """Starts with victims, during one cycle."""

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        self._state = state
        self._victim_rules = VictimRules(state, snapshot)
        self.pauses: list[Pause] = []
        self._leaving = {(row.place.gpu, row.ends) for row in snapshot.held if row.pausing}

    def earliest(
        self, request: Request, demands: tuple[Demand, ...], first: int, last: int
    ) -> Fit | None:
        """The earliest start in [first, last], not reserved.

        A pause is worth it only if the start is earlier by more than the victims' notice. For a
        fixed window only starts with victims are searched.
        """
        if request.cheapest and not request.fixed:
            # It need not start soon, so pause nobody while its deadline can be met without.
            free = earliest_free(self._state, request, demands, first, last)
            return free or self._earliest_paused(request, demands, first, last)
        if not (request.fixed or request.paused or request.durations) and first <= last:
            # No start is earlier than now, and of two equal starts the one without victims is
            # better.
            free = earliest_free(self._state, request, demands, first, first)
            if free is not None:
                return free
        paused = self._earliest_paused(request, demands, first, last)
        if paused is None:
            return (
                None if request.fixed else earliest_free(self._state, request, demands, first, last)
            )
        patience = _when(request, paused) + (0 if request.fixed else self._grace(paused))
        if request.durations and not request.fixed:
            free = earliest_free(self._state, request, demands, first, last)
            return free if free and free.ends <= patience else paused
        free = earliest_free(self._state, request, demands, first, min(last, patience))
        return free or paused

    def earlier(
        self, request: Request, demands: tuple[Demand, ...], first: int, kept: Fit
    ) -> Fit | None:
        """A better start than the kept one, which is not reserved now; None: there is none.

        The same start without victims is better. When notice is due, so is one with a lower cost.
        """
        last = min(kept.starts - (not kept.victims), last_start(self._state, request))
        free = earliest_free(self._state, request, demands, first, last)
        before = (kept if free is None else free).starts
        if any((place.gpu, kept.starts) in self._leaving for place in kept.places):
            # Others leave for it already, so nobody else has to.
            return free
        paused = None
        if not request.cheapest:
            paused = self._earliest_paused(request, demands, first, before - 1)
        if paused is not None and paused.starts + self._grace(paused) < before:
            return paused
        if free is None and kept.victims and self.is_due(kept):
            same = (
                self._at(request, demand, kept.starts, n)
                for n, demand in enumerate(demands)
                if length_from(request, demand.gpu_class, kept.starts) <= kept.demand.duration
            )
            return min((kept, *filter(None, same)), key=self._lost)
        return free

    def on_the_same_places(self, request: Request, found: Fit) -> Fit | None:
        """The same window with victims that may be paused for it; None: not all of them may."""
        state, name = self._state, found.demand.gpu_class
        if name not in state.firm.gpus or not state.firm.gpus[name].is_free(
            found.places, *found.window
        ):
            return None
        has_mode = state.all.modes.is_free(state.pools[name], found.places, found.window)
        if found.demand.share is not None or not has_mode:
            return None
        if self._may_lie_elsewhere(found.demand, found.starts):
            return None
        candidates = self._victim_rules.candidates(found.demand, found.starts)
        there = occupants_of(state, found)
        must = [each for each in candidates if each.runner.booking in there]
        if len(must) < len(there) or not self._is_fair(must, found.demand, found.starts):
            return None
        gone = [each.runner for each in must]
        others = [each.runner for each in candidates if each.runner.booking not in there]
        more = self._for_quota(found.demand, found.starts, gone, others)
        over = () if more is None else tuple(sorted(each.booking for each in (*gone, *more)))
        if more is None or not has_host_resources(state, found, over):
            return None
        return replace(found, victims=over)

    def _may_lie_elsewhere(self, demand: Demand, starts: int) -> bool:
        """True when a pinned demand would fit elsewhere: a pin must not choose the victims."""
        return bool(demand.pin) and self._state.has_room_unpinned(demand, starts)

    def _is_fair(self, chosen: Sequence[Candidate], demand: Demand, starts: int) -> bool:
        """True when the rules for the whole set of victims hold."""
        even = is_even(chosen, self._state.use(demand))
        return even and self._victim_rules.all_above_guarantee(chosen, starts)

    def is_due(self, found: Fit) -> bool:
        """True when its victims, if any, must get notice now."""
        notice = self._grace(found) + self._state.policy.notice_margin
        return found.starts - notice <= self._state.now or not self._to_notify(found)

    def notify(self, request: Request, found: Fit) -> None:
        """Pause the victims of the fit; call before it is reserved."""
        rules = self._rules(found)
        for booking in self._to_notify(found):
            lost = self._state.running[booking].lost
            why = reason(rules[booking], tier=request.tier, lost=lost)
            self.pauses.append(Pause(booking, request.booking, found.starts, lost, (why,)))
            self._state.notify(booking, found.starts)

    def rules(self, found: Fit) -> tuple[tuple[str, int], ...]:
        """How many victims it has by each rule; call before it is reserved."""
        rules = self._rules(found)
        return tuple(sorted(Counter(str(rules[each]) for each in found.victims).items()))

    def _rules(self, found: Fit) -> dict[str, Rule]:
        candidates = (
            self._victim_rules.candidates(found.demand, found.starts) if found.victims else ()
        )
        known: dict[str, Rule] = dict.fromkeys(found.victims, "taken_back")
        return known | {each.runner.booking: each.rule for each in candidates}

    def _to_notify(self, found: Fit) -> list[str]:
        return [each for each in found.victims if each not in self._state.running.notified]

    def _grace(self, found: Fit) -> int:
        running = self._state.running
        return max((running[booking].tier.grace for booking in found.victims), default=0)

    def _lost(self, found: Fit) -> int:
        return sum(self._state.running[booking].lost for booking in found.victims)

    def _earliest_paused(
        self, request: Request, demands: Sequence[Demand], first: int, last: int
    ) -> Fit | None:
        best: Fit | None = None
        for class_rank, demand in enumerate(demands):
            graces = self._state.running.graces(demand.gpu_class)
            for starts in sorted({max(first, self._state.now + grace) for grace in graces}):
                if starts > last or not _is_better(request, demand, starts, best):
                    break
                best = self._at(request, demand, starts, class_rank) or best
        return best

    def _at(self, request: Request, demand: Demand, starts: int, class_rank: int) -> Fit | None:
        """A fit at exactly this start, with victims."""
        state = self._state
        demand = replace(demand, duration=length_from(request, demand.gpu_class, starts))
        if demand.share is not None or self._may_lie_elsewhere(demand, starts):
            return None
        candidates = self._victim_rules.candidates(demand, starts)
        if not candidates:
            return None
        runners = [each.runner for each in candidates]
        pool = state.pools[demand.gpu_class]
        hosts = freed_host_resources(state, demand, starts)
        free = None if hosts is None else hosts.without
        search = VictimSearch(
            pool, demand, taken_after_leaving(state, demand, starts, runners), runners, free
        )
        over_quota = state.over(demand, starts) is not None

        def is_allowed(gone: Bools) -> bool:
            return not over_quota or self._is_within(demand, starts, _picked(runners, gone))

        gone = victims(search, [each.group for each in candidates], is_allowed)
        places = None if gone is None else place(pool, demand, search.busy(gone), search.free(gone))
        if gone is None or places is None or not gone.any():
            return None
        chosen = [candidates[at] for at in np.flatnonzero(gone).tolist()]
        if not self._is_fair(chosen, demand, starts):
            return None
        over = tuple(sorted(each.runner.booking for each in chosen))
        return Fit(demand, places, starts, class_rank, over)

    def _for_quota(
        self,
        demand: Demand,
        starts: int,
        gone: list[RunningBooking],
        others: Sequence[RunningBooking],
    ) -> list[RunningBooking] | None:
        """The further victims that quota needs; None: even all of them are too few."""
        more: list[RunningBooking] = []
        rest = iter(others)
        while not self._is_within(demand, starts, [*gone, *more]):
            one = next(rest, None)
            if one is None:
                return None
            more.append(one)
        for one in tuple(reversed(more)):
            fewer = [each for each in more if each is not one]
            if self._is_within(demand, starts, [*gone, *fewer]):
                more = fewer
        return more

    def _is_within(self, demand: Demand, starts: int, gone: Sequence[RunningBooking]) -> bool:
        with self._without(gone, starts):
            return self._state.over(demand, starts) is None

    @contextmanager
    def _without(self, gone: Sequence[RunningBooking], starts: int) -> Iterator[None]:
        """Quota without these bookings from `starts` on."""
        running, quota = self._state.running, self._state.quota
        windows = [(each.use, (starts, running.leaves(each))) for each in gone]
        windows = [each for each in windows if each[1][0] < each[1][1]]
        for use, window in windows:
            quota.add(use, window, -1)
        yield
        for use, window in windows:
            quota.add(use, window)


def _when(request: Request, found: Fit) -> int:
    """The time to minimise: the end of work, else the start."""
    return found.ends if request.durations and not request.fixed else found.starts


def _is_better(request: Request, demand: Demand, starts: int, best: Fit | None) -> bool:
    """True when a start on a class is in time and better than the best so far."""
    if request.fixed or not request.durations:
        return best is None or starts < best.starts
    ends = starts + demand.duration
    in_time = request.latest is None or ends <= request.latest
    return in_time and (best is None or (not request.cheapest and ends < best.ends))


def _picked(runners: Sequence[RunningBooking], flags: Bools) -> list[RunningBooking]:
    return [runners[at] for at in np.flatnonzero(flags).tolist()]
