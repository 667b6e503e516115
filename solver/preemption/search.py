"""Starts for which running work is paused: which victims, where, and when they get notice.

A start with victims is planned as soon as it is requested. Notice is given only when it must be, a
grace period and a margin before the start. Until then it is an ordinary planned start, and a victim
may still end by itself.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from solver.model.demand import Demand, Fit
from solver.model.inputs import Request, Snapshot
from solver.model.plan import Pause
from solver.preemption.after_pauses import RoomAfterPauses
from solver.preemption.claimed_places import ClaimedPlaces
from solver.preemption.victim_rules import Rule, VictimRules
from solver.reasons.reason import Reason, reason
from solver.state.cycle_state import CycleState
from solver.state.running import RunningBooking
from solver.state.start_times import earliest_free, last_start, length_from

_INSTANTS_TRIED = 12
Instants = dict[str, list[int]]
"""Starts to try, rising, by class."""


@dataclass(slots=True)
class Notices:
    """Notice for the victims of starts: when they must get it, and the pauses of those that have it."""

    state: CycleState
    victim_rules: VictimRules
    places: ClaimedPlaces
    pauses: list[Pause] = field(default_factory=list)

    def is_due(self, found: Fit) -> bool:
        """True when its victims, if any, must get notice now."""
        notice = self.grace(found) + self.state.policy.notice_margin
        return found.starts - notice <= self.state.now or not self.to_notify(found)

    def to_notify(self, found: Fit) -> list[str]:
        """Its victims without notice."""
        return [each for each in found.victims if each not in self.state.running.notified]

    def notify(self, request: Request, found: Fit) -> None:
        """Pause the victims of the fit; call before it is reserved."""
        rules = self._rule_of(found)
        for booking in self.to_notify(found):
            runner = self.state.running[booking]
            why = _why(rules[booking], request.tier, runner)
            self.pauses.append(Pause(booking, request.booking, found.starts, runner.lost, (why,)))
            self.state.notify(booking, found.starts)

    def may_notify(self, request: Request, found: Fit) -> bool:
        """True when its victims may have notice now, after all that was written in this cycle; call
        before the fit is reserved."""
        left, demand = self.to_notify(found), found.demand
        if left and demand.groups and not self.places.may_pause_together(demand, found.starts):
            return False
        counted = set[str]()
        for part in demand.parts if left else ():
            claim = self.victim_rules.claim(part, found.starts)
            candidates = self.victim_rules.candidates(claim) if claim else ()
            chosen = [each for each in candidates if each.runner.booking in left]
            name = request.booking
            if claim is not None and chosen and not self.places.is_allowed(name, claim, chosen):
                return False
            counted.update(each.runner.booking for each in chosen)
        return len(counted) == len(left)

    def depends_on_others(self, found: Fit) -> bool:
        """True for a start for which bookings of other tenants have no notice yet: what these get
        or lose until then decides whether they may be paused."""
        running, tenant = self.state.running, found.demand.owners[0]
        return any(running[each].tenant != tenant for each in self.to_notify(found))

    def is_older_than_grants(self, found: Fit) -> bool:
        """True for a start whose victims have no notice yet, if this cycle has written something
        for its tenant on one of its classes."""
        in_place, demand = self.victim_rules.in_place, found.demand
        rows = (in_place.has_grants(demand.owners[0], each.gpu_class) for each in demand.parts)
        return bool(self.to_notify(found)) and any(rows)

    def rules(self, found: Fit) -> tuple[tuple[str, int], ...]:
        """How many victims it has by each rule; call before it is reserved."""
        rules, running = self._rule_of(found), self.state.running
        counts = Counter(_why(rules[each], "", running[each]).code for each in found.victims)
        return tuple(sorted(counts.items()))

    def _rule_of(self, found: Fit) -> dict[str, Rule]:
        known: dict[str, Rule] = dict.fromkeys(found.victims, "taken_back")
        for part in found.demand.parts if found.victims else ():
            claim = self.victim_rules.claim(part, found.starts)
            candidates = self.victim_rules.candidates(claim) if claim else ()
            known |= {each.runner.booking: each.rule for each in candidates}
        return known

    def grace(self, found: Fit) -> int:
        """The longest grace period of its victims, in seconds."""
        running = self.state.running
        return max((running[booking].tier.grace for booking in found.victims), default=0)

    def lost(self, found: Fit) -> int:
        """What its victims lose."""
        return sum(self.state.running[booking].lost for booking in found.victims)


class Preemption:
    """Starts with victims, during one cycle."""

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        self._state = state
        self.victim_rules = VictimRules(state, snapshot)
        self._room = RoomAfterPauses(state, self.victim_rules)
        self.places = ClaimedPlaces(state, self.victim_rules)
        self.notices = Notices(state, self.victim_rules, self.places)
        # By classes and first start, the starts to try.
        self._tried: dict[tuple[tuple[str, ...], int], list[int]] = {}
        self._leaving = {(row.place.gpu, row.ends) for row in snapshot.held if row.pausing}

    def earliest(self, request: Request, demands: tuple[Demand, ...], first: int, last: int) -> Fit | None:
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
            return None if request.fixed else earliest_free(self._state, request, demands, first, last)
        patience = _when(request, paused) + (0 if request.fixed else self.notices.grace(paused))
        if request.durations and not request.fixed:
            free = earliest_free(self._state, request, demands, first, last)
            return free if free and free.ends <= patience else paused
        free = earliest_free(self._state, request, demands, first, min(last, patience))
        return free or paused

    def instants_before(
        self, request: Request, demands: Iterable[Demand], first: int, kept: Fit, *, is_reserved: bool
    ) -> Instants:
        """The starts before the kept one for which pauses may make room.

        Up to its own start a reservation takes nothing from itself, so where it is reserved windows
        are examined until then.
        """
        found: Instants = {}
        for demand in demands:
            name = demand.gpu_class
            tried = self._instants(demand, first, kept.starts - (not kept.victims))
            if not kept.victims:
                own = kept if is_reserved and name == kept.demand.gpu_class else None
                tried = self._hopeful(request, demand, tried, own)
            if tried:
                found[name] = tried
        return found

    def earlier(
        self,
        request: Request,
        demands: tuple[Demand, ...],
        first: int,
        kept: Fit,
        instants: Instants,
        *,
        is_full: bool,
    ) -> Fit | None:
        """A better start than the kept one, which is not reserved now; None: there is none.

        Pauses are tried at these `instants`; if it `is_full`, there is no room before without. The same
        start without victims is better. When notice is due, so is one with a lower cost.
        """
        last = min(kept.starts - (not kept.victims), last_start(self._state, request))
        free = None if is_full else earliest_free(self._state, request, demands, first, last)
        before = (kept if free is None else free).starts
        if any((place.gpu, kept.starts) in self._leaving for place in kept.places):
            # Others leave for it already, so nobody else has to.
            return free
        paused = None
        if instants and not request.cheapest:
            paused = self._earliest_paused_at(request, demands, instants, before - 1)
        if paused is not None and paused.starts + self.notices.grace(paused) < before:
            return paused
        if free is None and kept.victims and self.notices.is_due(kept):
            same = (
                self.places.at(request, demand, kept.starts, n)
                for n, demand in enumerate(demands)
                if length_from(request, demand.gpu_class, kept.starts) <= kept.demand.duration
            )
            found = [*filter(None, same)]
            if self.notices.may_notify(request, kept) or not found:
                found.insert(0, kept)
            return min(found, key=self.notices.lost)
        return free

    def why_no_claim(self, found: Fit, *, planned: bool = False) -> Reason | None:
        """The reason of a start that nobody is paused for, because its person has cancelled a claim
        on the class; None: another one, or with `planned`, for which somebody was to be paused."""
        for part in found.demand.parts:
            until = self.victim_rules.claims_from(part)
            if until <= self._state.now:
                continue
            starts = min(found.starts, until) - 1
            if until > found.starts if planned else self.victim_rules.would_claim(part, starts):
                return reason("claims_rest", until, gpu_class=part.gpu_class)
        return None

    def _earliest_paused(
        self, request: Request, demands: Sequence[Demand], first: int, last: int
    ) -> Fit | None:
        instants: Instants = {}
        for demand in demands:
            tried = self._instants(demand, first, last)
            instants[demand.gpu_class] = self._hopeful(request, demand, tried, None)
        return self._earliest_paused_at(request, demands, instants, last)

    def _earliest_paused_at(
        self, request: Request, demands: Sequence[Demand], instants: Instants, last: int
    ) -> Fit | None:
        best: Fit | None = None
        for class_rank, demand in enumerate(demands):
            for starts in instants.get(demand.gpu_class, ()):
                if starts > last or not _is_better(request, demand, starts, best):
                    break
                best = self.places.at(request, demand, starts, class_rank) or best
        return best

    def _hopeful(self, request: Request, demand: Demand, tried: list[int], kept: Fit | None) -> list[int]:
        """Those starts at which victims may make room for the demand; with a `kept` start of its
        own, which is reserved, the part of each window before that is examined first."""
        if not tried or not all(map(self.victim_rules.may_claim, demand.parts)):
            return []
        if demand.groups:
            return tried
        until = None if kept is None else kept.starts
        windows = []
        for starts in self._within_guarantees(request, demand, tried, kept):
            ends = starts + length_from(request, demand.gpu_class, starts)
            windows.append((starts, self._state.grid.end(ends if until is None else min(ends, until))))
        found = self._room.may_be_enough(demand, windows)
        return found if kept is None else self._room.without(demand, found, kept)

    def _within_guarantees(
        self, request: Request, demand: Demand, tried: list[int], kept: Fit | None
    ) -> list[int]:
        """Those starts at which the guarantees leave room that no pause can make: work that can be
        paused takes nothing from those for other work."""
        use, quota = self._state.use(demand), self._state.quota
        if request.fixed or request.paused or quota.tier(use.tier).pausable:
            return tried
        if kept is not None:
            quota.add(self._state.use(kept.demand), kept.window, -1)
        within = quota.lasting_allows(use, np.array(tried, dtype=np.int64), demand.duration)
        if kept is not None:
            quota.add(self._state.use(kept.demand), kept.window)
        if within is None:
            return tried
        return [at for at, is_within in zip(tried, within.tolist(), strict=True) if is_within]

    def _instants(self, demand: Demand, first: int, last: int) -> list[int]:
        """Starts to try: the first possible after a notice and, while victims are protected, the
        nearest at which one of them may leave."""
        names = tuple(each.gpu_class for each in demand.parts)
        first = max(first, *map(self.victim_rules.claims_from, demand.parts))
        key = (names, first)
        if key not in self._tried:
            graces = {grace for name in names for grace in self._state.running.graces(name)}
            soon = {max(first, self._state.now + grace) for grace in graces}
            outs = sorted({out for name in names for out in self.victim_rules.departures.first_outs(name)})
            rested = [starts for starts in outs if starts > min(soon)][:_INSTANTS_TRIED] if soon else []
            self._tried[key] = sorted({*soon, *rested})
        tried = self._tried[key]
        if tried:
            # From there on more may be inside the guarantee.
            rises = [at for each in demand.parts for at in self._guarantee_changes(each) if at > tried[0]]
            tried = sorted({*tried, *rises}) if rises else tried
        return tried[: bisect_right(tried, last)]

    def _guarantee_changes(self, demand: Demand) -> list[int]:
        return self._state.quota.guarantee_changes(self._state.use(demand))

    def at_its_second(self, booking: str, kept: Fit) -> Fit | None:
        """A start that is not reserved, with victims that need no notice yet, on any places."""
        if kept.demand.groups or kept.demand.pin:
            return None
        found = self.places.at_with_victims(booking, kept.demand, kept.starts, kept.class_rank)
        return None if found is None or self.notices.is_due(found) else found


def _why(rule: Rule, tier: str, runner: RunningBooking) -> Reason:
    """The reason of the pause of a booking by that rule, for a claim of that tier."""
    lost = runner.lost
    if runner.is_mixed:
        return reason("one_class", tier=tier, lost=lost)
    if rule == "own_part":
        return reason("taken_back", tier=tier, lost=lost, whose="project")
    return reason(rule, tier=tier, lost=lost)


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
