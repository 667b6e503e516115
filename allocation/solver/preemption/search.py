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
from allocation.solver.placement.gang import Want, place
from allocation.solver.preemption.candidates import Candidate, Reclaim, Rule, is_even
from allocation.solver.preemption.freed_capacity import (
    beside_of,
    has_beside,
    in_the_way,
    taken_without,
)
from allocation.solver.preemption.victims import Room, victims
from allocation.solver.reasons.preemption import pause_reason
from allocation.solver.reasons.resume import earliest_free, last_start, length_from
from allocation.solver.state.running import Runner
from allocation.solver.state.working import Found, Working


class Preemption:
    """Starts on the room of running work, during one cycle."""

    def __init__(self, working: Working, snapshot: Snapshot) -> None:
        """Nobody is told yet."""
        self._working = working
        self._reclaim = Reclaim(working, snapshot)
        self.pauses: list[Pause] = []
        self._leaving = {(row.place.gpu, row.ends) for row in snapshot.held if row.pausing}

    def earliest(
        self, request: Request, wants: tuple[Want, ...], first: int, last: int
    ) -> Found | None:
        """The earliest start in [first, last], not reserved.

        Somebody is paused only for a start that is earlier by more than their notice. A fixed
        window that nobody need leave for is not looked for here.
        """
        if request.cheapest and not request.fixed:
            # It need not be soon, so nobody is paused while its deadline can be met without.
            free = earliest_free(self._working, request, wants, first, last)
            return free or self._earliest_paused(request, wants, first, last)
        if not (request.fixed or request.paused or request.durations) and first <= last:
            # Nobody starts sooner than at once, and of two starts the one without a pause is given.
            free = earliest_free(self._working, request, wants, first, first)
            if free is not None:
                return free
        paused = self._earliest_paused(request, wants, first, last)
        if paused is None:
            return (
                None if request.fixed else earliest_free(self._working, request, wants, first, last)
            )
        patience = _when(request, paused) + (0 if request.fixed else self._grace(paused))
        if request.durations and not request.fixed:
            free = earliest_free(self._working, request, wants, first, last)
            return free if free and free.ends <= patience else paused
        free = earliest_free(self._working, request, wants, first, min(last, patience))
        return free or paused

    def earlier(
        self, request: Request, wants: tuple[Want, ...], first: int, kept: Found
    ) -> Found | None:
        """A start better than the one that is kept, which is not reserved now; None: there is none.

        The same start without a pause is better. When notice is due, so is one that costs less.
        """
        last = min(kept.starts - (not kept.over), last_start(self._working, request))
        free = earliest_free(self._working, request, wants, first, last)
        before = (kept if free is None else free).starts
        if any((place.gpu, kept.starts) in self._leaving for place in kept.places):
            # Others are leaving for it already: nobody else has to.
            return free
        paused = None
        if not request.cheapest:
            paused = self._earliest_paused(request, wants, first, before - 1)
        if paused is not None and paused.starts + self._grace(paused) < before:
            return paused
        if free is None and kept.over and self.is_due(kept):
            same = (
                self._at(request, want, kept.starts, n)
                for n, want in enumerate(wants)
                if length_from(request, want.gpu_class, kept.starts) <= kept.want.duration
            )
            return min((kept, *filter(None, same)), key=self._lost)
        return free

    def on_the_same_places(self, request: Request, found: Found) -> Found | None:
        """The same window over running work that may be paused for it; None: it may not be."""
        working, name = self._working, found.want.gpu_class
        if name not in working.firm or not working.firm[name].is_free(found.places, *found.window):
            return None
        is_cut_so = working.modes.is_free(working.pools[name], found.places, found.window)
        if found.want.share is not None or not is_cut_so:
            return None
        if self._may_lie_elsewhere(found.want, found.starts):
            return None
        candidates = self._reclaim.candidates(found.want, found.starts)
        there = in_the_way(working, found)
        must = [each for each in candidates if each.runner.booking in there]
        if len(must) < len(there) or not self._is_fair(must, found.want, found.starts):
            return None
        gone = [each.runner for each in must]
        others = [each.runner for each in candidates if each.runner.booking not in there]
        more = self._for_quota(found.want, found.starts, gone, others)
        over = () if more is None else tuple(sorted(each.booking for each in (*gone, *more)))
        if more is None or not has_beside(working, found, over):
            return None
        return replace(found, over=over)

    def _may_lie_elsewhere(self, want: Want, starts: int) -> bool:
        """A pin is a wish for a place and no reason to take it from somebody while others are
        free: else anybody could choose who is paused."""
        return bool(want.pin) and self._working.has_room_unpinned(want, starts)

    def _is_fair(self, chosen: Sequence[Candidate], want: Want, starts: int) -> bool:
        """What holds of all who leave together, beside what holds of each."""
        even = is_even(chosen, self._working.use(want))
        return even and self._reclaim.all_borrow(chosen, starts)

    def is_due(self, found: Found) -> bool:
        """True when those on whose room it stands, if any, must be told now."""
        notice = self._grace(found) + self._working.policy.notice_margin
        return found.starts - notice <= self._working.now or not self._to_tell(found)

    def tell(self, request: Request, found: Found) -> None:
        """Pause those on whose room the start stands; before it is reserved."""
        rules = self._rules(found)
        for booking in self._to_tell(found):
            lost = self._working.running[booking].lost
            why = pause_reason(rules[booking], request.tier, lost)
            self.pauses.append(Pause(booking, request.booking, found.starts, lost, (why,)))
            self._working.tell(booking, found.starts)

    def rules(self, found: Found) -> tuple[tuple[str, int], ...]:
        """How many have to leave for it by each rule; before it is reserved."""
        rules = self._rules(found)
        return tuple(sorted(Counter(str(rules[each]) for each in found.over).items()))

    def _rules(self, found: Found) -> dict[str, Rule]:
        candidates = self._reclaim.candidates(found.want, found.starts) if found.over else ()
        known: dict[str, Rule] = dict.fromkeys(found.over, "taken_back")
        return known | {each.runner.booking: each.rule for each in candidates}

    def _to_tell(self, found: Found) -> list[str]:
        return [each for each in found.over if each not in self._working.running.told]

    def _grace(self, found: Found) -> int:
        running = self._working.running
        return max((running[booking].tier.grace for booking in found.over), default=0)

    def _lost(self, found: Found) -> int:
        return sum(self._working.running[booking].lost for booking in found.over)

    def _earliest_paused(
        self, request: Request, wants: Sequence[Want], first: int, last: int
    ) -> Found | None:
        best: Found | None = None
        for taste, want in enumerate(wants):
            graces = self._working.running.graces(want.gpu_class)
            for starts in sorted({max(first, self._working.now + grace) for grace in graces}):
                if starts > last or not _is_better(request, want, starts, best):
                    break
                best = self._at(request, want, starts, taste) or best
        return best

    def _at(self, request: Request, want: Want, starts: int, taste: int) -> Found | None:
        """Places for exactly this start, with somebody paused."""
        working = self._working
        want = replace(want, duration=length_from(request, want.gpu_class, starts))
        if want.share is not None or self._may_lie_elsewhere(want, starts):
            return None
        candidates = self._reclaim.candidates(want, starts)
        if not candidates:
            return None
        runners = [each.runner for each in candidates]
        pool = working.pools[want.gpu_class]
        beside = beside_of(working, want, starts)
        free = None if beside is None else beside.without
        room = Room(pool, want, taken_without(working, want, starts, runners), runners, free)
        over_quota = working.over(want, starts) is not None

        def is_allowed(gone: Bools) -> bool:
            return not over_quota or self._is_within(want, starts, _picked(runners, gone))

        gone = victims(room, [each.group for each in candidates], is_allowed)
        places = None if gone is None else place(pool, want, room.busy(gone), room.free(gone))
        if gone is None or places is None or not gone.any():
            return None
        chosen = [candidates[at] for at in np.flatnonzero(gone).tolist()]
        if not self._is_fair(chosen, want, starts):
            return None
        over = tuple(sorted(each.runner.booking for each in chosen))
        return Found(want, places, starts, taste, over)

    def _for_quota(
        self, want: Want, starts: int, gone: list[Runner], others: Sequence[Runner]
    ) -> list[Runner] | None:
        """Who must leave besides so that quota allows the start; None: that is never enough."""
        more: list[Runner] = []
        rest = iter(others)
        while not self._is_within(want, starts, [*gone, *more]):
            one = next(rest, None)
            if one is None:
                return None
            more.append(one)
        for one in tuple(reversed(more)):
            fewer = [each for each in more if each is not one]
            if self._is_within(want, starts, [*gone, *fewer]):
                more = fewer
        return more

    def _is_within(self, want: Want, starts: int, gone: Sequence[Runner]) -> bool:
        with self._without(gone, starts):
            return self._working.over(want, starts) is None

    @contextmanager
    def _without(self, gone: Sequence[Runner], starts: int) -> Iterator[None]:
        """Quota as it is when these leave then."""
        running, quota = self._working.running, self._working.quota
        windows = [(each.use, (starts, running.leaves(each))) for each in gone]
        windows = [each for each in windows if each[1][0] < each[1][1]]
        for use, window in windows:
            quota.add(use, window, -1)
        yield
        for use, window in windows:
            quota.add(use, window)


def _when(request: Request, found: Found) -> int:
    """What is to be early: the end of work, else the start."""
    return found.ends if request.durations and not request.fixed else found.starts


def _is_better(request: Request, want: Want, starts: int, best: Found | None) -> bool:
    """Whether a start on a class would be in time, and better than the best so far."""
    if request.fixed or not request.durations:
        return best is None or starts < best.starts
    ends = starts + want.duration
    in_time = request.latest is None or ends <= request.latest
    return in_time and (best is None or (not request.cheapest and ends < best.ends))


def _picked(runners: Sequence[Runner], flags: Bools) -> list[Runner]:
    return [runners[at] for at in np.flatnonzero(flags).tolist()]
