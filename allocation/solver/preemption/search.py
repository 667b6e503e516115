"""Pausing running work for a stronger claim: where room is made, and when whom is told.

A start on the room of others is planned as soon as it is asked for. The notice goes out only when
it must, grace and a margin before; until then the start is a promise like any other, and whoever
has to leave may still end by itself.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from allocation.solver.fleet.columns import Bools
from allocation.solver.model.inputs import Request, Snapshot
from allocation.solver.model.plan import Pause
from allocation.solver.placement.gang import Demand, place
from allocation.solver.preemption.candidates import Candidate, Rule, VictimRules, is_even
from allocation.solver.preemption.freed_capacity import (
    freed_host_resources,
    has_host_resources,
    occupants_of,
    taken_after_leaving,
)
from allocation.solver.preemption.victims import Room, victims
from allocation.solver.reasons.preemption import pause_reason
from allocation.solver.reasons.resume import earliest_free, last_start, length_from
from allocation.solver.state.running import RunningBooking
from allocation.solver.state.working import Fit, Working


class Preemption:
    """Starts on the room of running work, during one cycle."""

    def __init__(self, working: Working, snapshot: Snapshot) -> None:
        """Nobody is told yet."""
        self._working = working
        self._victim_rules = VictimRules(working, snapshot)
        self.pauses: list[Pause] = []
        self._leaving = {(row.place.gpu, row.ends) for row in snapshot.held if row.pausing}

    def earliest(
        self, request: Request, demands: tuple[Demand, ...], first: int, last: int
    ) -> Fit | None:
        """The earliest start in [first, last], not reserved.

        Somebody is paused only for a start that is earlier by more than their notice. A fixed
        window that nobody need leave for is not looked for here.
        """
        if request.cheapest and not request.fixed:
            # It need not be soon, so nobody is paused while its deadline can be met without.
            free = earliest_free(self._working, request, demands, first, last)
            return free or self._earliest_paused(request, demands, first, last)
        if not (request.fixed or request.paused or request.durations) and first <= last:
            # Nobody starts sooner than at once, and of two starts the one without a pause is given.
            free = earliest_free(self._working, request, demands, first, first)
            if free is not None:
                return free
        paused = self._earliest_paused(request, demands, first, last)
        if paused is None:
            return (
                None
                if request.fixed
                else earliest_free(self._working, request, demands, first, last)
            )
        patience = _when(request, paused) + (0 if request.fixed else self._grace(paused))
        if request.durations and not request.fixed:
            free = earliest_free(self._working, request, demands, first, last)
            return free if free and free.ends <= patience else paused
        free = earliest_free(self._working, request, demands, first, min(last, patience))
        return free or paused

    def earlier(
        self, request: Request, demands: tuple[Demand, ...], first: int, kept: Fit
    ) -> Fit | None:
        """A start better than the one that is kept, which is not reserved now; None: there is none.

        The same start without a pause is better. When notice is due, so is one that costs less.
        """
        last = min(kept.starts - (not kept.over), last_start(self._working, request))
        free = earliest_free(self._working, request, demands, first, last)
        before = (kept if free is None else free).starts
        if any((place.gpu, kept.starts) in self._leaving for place in kept.places):
            # Others are leaving for it already: nobody else has to.
            return free
        paused = None
        if not request.cheapest:
            paused = self._earliest_paused(request, demands, first, before - 1)
        if paused is not None and paused.starts + self._grace(paused) < before:
            return paused
        if free is None and kept.over and self.is_due(kept):
            same = (
                self._at(request, demand, kept.starts, n)
                for n, demand in enumerate(demands)
                if length_from(request, demand.gpu_class, kept.starts) <= kept.demand.duration
            )
            return min((kept, *filter(None, same)), key=self._lost)
        return free

    def on_the_same_places(self, request: Request, found: Fit) -> Fit | None:
        """The same window over running work that may be paused for it; None: it may not be."""
        working, name = self._working, found.demand.gpu_class
        if name not in working.firm or not working.firm[name].is_free(found.places, *found.window):
            return None
        is_cut_so = working.modes.is_free(working.pools[name], found.places, found.window)
        if found.demand.share is not None or not is_cut_so:
            return None
        if self._may_lie_elsewhere(found.demand, found.starts):
            return None
        candidates = self._victim_rules.candidates(found.demand, found.starts)
        there = occupants_of(working, found)
        must = [each for each in candidates if each.runner.booking in there]
        if len(must) < len(there) or not self._is_fair(must, found.demand, found.starts):
            return None
        gone = [each.runner for each in must]
        others = [each.runner for each in candidates if each.runner.booking not in there]
        more = self._for_quota(found.demand, found.starts, gone, others)
        over = () if more is None else tuple(sorted(each.booking for each in (*gone, *more)))
        if more is None or not has_host_resources(working, found, over):
            return None
        return replace(found, over=over)

    def _may_lie_elsewhere(self, demand: Demand, starts: int) -> bool:
        """A pin is a wish for a place and no reason to take it from somebody while others are
        free: else anybody could choose who is paused."""
        return bool(demand.pin) and self._working.has_room_unpinned(demand, starts)

    def _is_fair(self, chosen: Sequence[Candidate], demand: Demand, starts: int) -> bool:
        """What holds of all who leave together, beside what holds of each."""
        even = is_even(chosen, self._working.use(demand))
        return even and self._victim_rules.all_above_guarantee(chosen, starts)

    def is_due(self, found: Fit) -> bool:
        """True when those on whose room it stands, if any, must be told now."""
        notice = self._grace(found) + self._working.policy.notice_margin
        return found.starts - notice <= self._working.now or not self._to_notify(found)

    def notify(self, request: Request, found: Fit) -> None:
        """Pause those on whose room the start stands; before it is reserved."""
        rules = self._rules(found)
        for booking in self._to_notify(found):
            lost = self._working.running[booking].lost
            why = pause_reason(rules[booking], request.tier, lost)
            self.pauses.append(Pause(booking, request.booking, found.starts, lost, (why,)))
            self._working.notify(booking, found.starts)

    def rules(self, found: Fit) -> tuple[tuple[str, int], ...]:
        """How many have to leave for it by each rule; before it is reserved."""
        rules = self._rules(found)
        return tuple(sorted(Counter(str(rules[each]) for each in found.over).items()))

    def _rules(self, found: Fit) -> dict[str, Rule]:
        candidates = self._victim_rules.candidates(found.demand, found.starts) if found.over else ()
        known: dict[str, Rule] = dict.fromkeys(found.over, "taken_back")
        return known | {each.runner.booking: each.rule for each in candidates}

    def _to_notify(self, found: Fit) -> list[str]:
        return [each for each in found.over if each not in self._working.running.notified]

    def _grace(self, found: Fit) -> int:
        running = self._working.running
        return max((running[booking].tier.grace for booking in found.over), default=0)

    def _lost(self, found: Fit) -> int:
        return sum(self._working.running[booking].lost for booking in found.over)

    def _earliest_paused(
        self, request: Request, demands: Sequence[Demand], first: int, last: int
    ) -> Fit | None:
        best: Fit | None = None
        for class_rank, demand in enumerate(demands):
            graces = self._working.running.graces(demand.gpu_class)
            for starts in sorted({max(first, self._working.now + grace) for grace in graces}):
                if starts > last or not _is_better(request, demand, starts, best):
                    break
                best = self._at(request, demand, starts, class_rank) or best
        return best

    def _at(self, request: Request, demand: Demand, starts: int, class_rank: int) -> Fit | None:
        """Places for exactly this start, with somebody paused."""
        working = self._working
        demand = replace(demand, duration=length_from(request, demand.gpu_class, starts))
        if demand.share is not None or self._may_lie_elsewhere(demand, starts):
            return None
        candidates = self._victim_rules.candidates(demand, starts)
        if not candidates:
            return None
        runners = [each.runner for each in candidates]
        pool = working.pools[demand.gpu_class]
        beside = freed_host_resources(working, demand, starts)
        free = None if beside is None else beside.without
        room = Room(
            pool, demand, taken_after_leaving(working, demand, starts, runners), runners, free
        )
        over_quota = working.over(demand, starts) is not None

        def is_allowed(gone: Bools) -> bool:
            return not over_quota or self._is_within(demand, starts, _picked(runners, gone))

        gone = victims(room, [each.group for each in candidates], is_allowed)
        places = None if gone is None else place(pool, demand, room.busy(gone), room.free(gone))
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
        """Who must leave besides so that quota allows the start; None: that is never enough."""
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
            return self._working.over(demand, starts) is None

    @contextmanager
    def _without(self, gone: Sequence[RunningBooking], starts: int) -> Iterator[None]:
        """Quota as it is when these leave then."""
        running, quota = self._working.running, self._working.quota
        windows = [(each.use, (starts, running.leaves(each))) for each in gone]
        windows = [each for each in windows if each[1][0] < each[1][1]]
        for use, window in windows:
            quota.add(use, window, -1)
        yield
        for use, window in windows:
            quota.add(use, window)


def _when(request: Request, found: Fit) -> int:
    """What is to be early: the end of work, else the start."""
    return found.ends if request.durations and not request.fixed else found.starts


def _is_better(request: Request, demand: Demand, starts: int, best: Fit | None) -> bool:
    """Whether a start on a class would be in time, and better than the best so far."""
    if request.fixed or not request.durations:
        return best is None or starts < best.starts
    ends = starts + demand.duration
    in_time = request.latest is None or ends <= request.latest
    return in_time and (best is None or (not request.cheapest and ends < best.ends))


def _picked(runners: Sequence[RunningBooking], flags: Bools) -> list[RunningBooking]:
    return [runners[at] for at in np.flatnonzero(flags).tolist()]
