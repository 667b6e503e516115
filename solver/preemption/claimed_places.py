"""Places for a claim at a given second, and the victims that leave them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from solver.fleet.pool import Bools
from solver.model.demand import Demand, Fit
from solver.model.inputs import Place, Request
from solver.model.ordering import place_order
from solver.model.plan import DroppedPause
from solver.placement.gang import place
from solver.preemption.after_pauses import is_allowed_without, may_lift
from solver.preemption.victim_rules import Candidate, Claim, VictimRules
from solver.preemption.victims import (
    VictimSearch,
    freed_host_resources,
    has_host_resources,
    occupants_of,
    taken_after_leaving,
    victims,
)
from solver.state.cycle_state import CycleState
from solver.state.room_search import parts_by_zone
from solver.state.start_times import length_from


class ClaimedPlaces:
    """Fits with victims, as the rules for victims allow them. Nothing is reserved."""

    def __init__(self, state: CycleState, rules: VictimRules) -> None:
        self._state, self._rules = state, rules
        self._dropped: set[DroppedPause] = set()

    def at(self, request: Request, demand: Demand, starts: int, class_rank: int) -> Fit | None:
        """A fit at exactly this start, with victims."""
        length = length_from(request, demand.gpu_class, starts)
        if length != demand.duration:
            demand = replace(demand, duration=length)
        if demand.groups:
            return self._at_together(request, demand, starts)
        return self.at_with_victims(request.booking, demand, starts, class_rank)

    def at_with_victims(self, booking: str, demand: Demand, starts: int, class_rank: int) -> Fit | None:
        if demand.share is not None or self.fits_elsewhere(demand, starts):
            return None
        claim = self._rules.claim(demand, starts)
        candidates = self._rules.candidates(claim) if claim else ()
        if claim is None or not candidates:
            return None
        found = self._with_victims(demand, starts, candidates)
        if found is not None and not self._rules.allow(claim, found[1]):
            fewer = self._rules.within_shares(claim, candidates)
            found = self._with_victims(demand, starts, fewer)
        if found is None or not self.is_allowed(booking, claim, found[1]):
            return None
        over = tuple(sorted(each.runner.booking for each in found[1]))
        return Fit(demand, found[0], starts, class_rank, over)

    def _at_together(self, request: Request, demand: Demand, starts: int) -> Fit | None:
        """A fit of all groups at exactly this start, each on free room or with victims."""
        if not self.may_pause_together(demand, starts):
            return None
        for parts in parts_by_zone(self._state.pools, demand):
            fits = [self._state.at(part, starts) or self.at(request, part, starts, 0) for part in parts]
            found = [*filter(None, fits)]
            over = {booking for each in found for booking in each.victims}
            if len(found) == len(parts) and over:
                places = sorted((place for each in found for place in each.places), key=place_order)
                return Fit(demand, tuple(places), starts, 0, tuple(sorted(over)))
        return None

    def on_the_same_places(self, request: Request, found: Fit) -> Fit | None:
        """The same window with victims that may be paused for it; None: not all of them may."""
        if found.demand.groups:
            return self._all_on_the_same_places(request, found)
        state, name = self._state, found.demand.gpu_class
        if name not in state.firm.gpus or not state.firm.gpus[name].is_free(found.places, *found.window):
            return None
        has_mode = state.all.modes.is_free(state.pools[name], found.places, found.window)
        if found.demand.share is not None or not has_mode:
            return None
        if self.fits_elsewhere(found.demand, found.starts):
            return None
        chosen = self._all_on_places(request, found)
        if chosen is None:
            return None
        over = tuple(sorted(each.runner.booking for each in chosen))
        return replace(found, victims=over) if has_host_resources(state, found, over) else None

    def _all_on_the_same_places(self, request: Request, found: Fit) -> Fit | None:
        """The same for all groups of a mixed booking."""
        over: set[str] = set()
        for part in self._state.parts(found):
            is_free = self._state.is_free(part)
            if is_free and self._state.over(part.demand, part.starts) is None:
                continue
            there = self.on_the_same_places(request, part)
            if there is None:
                return None
            over.update(there.victims)
        if not over or not self.may_pause_together(found.demand, found.starts):
            return None
        return replace(found, victims=tuple(sorted(over)))

    def can_be_out(self, found: Fit) -> bool:
        """True when only work that may be paused is on its places, and all of it can be out by its
        start: then a rule forbids the pause."""
        firm = self._state.firm.gpus.get(found.demand.gpu_class)
        if found.demand.groups or firm is None or not firm.is_free(found.places, *found.window):
            return False
        running, name = self._state.running, found.demand.gpu_class
        there = (running.on_class(each, name) for each in occupants_of(self._state, found))
        return all(self._rules.departures.out(each) <= found.starts for each in there)

    def fits_elsewhere(self, demand: Demand, starts: int) -> bool:
        """True when a pinned demand would fit elsewhere: a pin must not choose the victims."""
        return bool(demand.pin) and self._state.has_room_unpinned(demand, starts)

    def is_inside(self, demand: Demand, starts: int) -> bool:
        """True when a start then would be inside the tenant's guarantee."""
        claims = [self._rules.claim(each, starts) for each in demand.parts]
        return all(claim is not None and claim.part is not None for claim in claims)

    def may_pause_together(self, demand: Demand, starts: int) -> bool:
        """True when the groups of a mixed demand may have somebody paused: inside its guarantee in
        every class, it raises the potential of each. The search for one group does not see host
        cores that another needs."""
        with_hosts = sum(any(part.host_resources) for part in demand.parts)
        return with_hosts < 2 and self.is_inside(demand, starts)

    def is_allowed(self, booking: str, claim: Claim, chosen: Sequence[Candidate]) -> bool:
        """True when the rules for the whole set of victims hold and the potential rises.

        The second follows from the first. A pause that it forbids all the same is dropped.
        """
        if not self._rules.allow(claim, chosen):
            return False
        if self._rules.raise_potential(claim, chosen):
            return True
        self._dropped |= {DroppedPause(booking, each.rule) for each in chosen}
        return False

    def dropped(self) -> tuple[DroppedPause, ...]:
        """Claims whose pauses would not have raised the potential, by rule."""
        return tuple(sorted(self._dropped, key=lambda each: (each.beneficiary, each.rule)))

    def _with_victims(
        self, demand: Demand, starts: int, candidates: Sequence[Candidate]
    ) -> tuple[tuple[Place, ...], list[Candidate]] | None:
        """Places for the demand at that second, and the candidates that must leave for it."""
        state, runners = self._state, [each.runner for each in candidates]
        block = state.over(demand, starts)
        if block is not None and not may_lift(state, block, demand, starts, runners):
            return None
        pool = state.pools[demand.gpu_class]
        hosts = freed_host_resources(state, demand, starts)
        free = None if hosts is None else hosts.without
        taken = taken_after_leaving(state, demand, starts, runners)
        rows = state.running.rows(demand.gpu_class, runners)
        search = VictimSearch(pool, demand, taken, runners, free, rows)
        if block is None and search.fits(np.zeros(len(runners), dtype=np.bool_)):
            # There is room without a pause.
            return None

        def is_allowed(gone: Bools) -> bool:
            leaving = [runners[at] for at in np.flatnonzero(gone).tolist()]
            return block is None or is_allowed_without(self._state, demand, starts, leaving)

        gone = victims(search, [each.group for each in candidates], is_allowed)
        places = None if gone is None else place(pool, demand, search.busy(gone), search.free(gone))
        if gone is None or places is None or not gone.any():
            return None
        return places, [candidates[at] for at in np.flatnonzero(gone).tolist()]

    def _all_on_places(self, request: Request, found: Fit) -> list[Candidate] | None:
        """All bookings on these places and those that its quota needs; None: some of them stay."""
        claim = self._rules.claim(found.demand, found.starts)
        candidates = self._rules.candidates(claim) if claim else ()
        there = occupants_of(self._state, found)
        must = [each for each in candidates if each.runner.booking in there]
        if claim is None or len(must) < len(there):
            return None
        others = [each for each in candidates if each.runner.booking not in there]
        more = self._for_quota(found.demand, found.starts, must, others)
        chosen = None if more is None else [*must, *more]
        return chosen if chosen and self.is_allowed(request.booking, claim, chosen) else None

    def _for_quota(
        self,
        demand: Demand,
        starts: int,
        gone: Sequence[Candidate],
        others: Sequence[Candidate],
    ) -> list[Candidate] | None:
        """The further victims that quota needs; None: even all of them are too few."""

        def is_within(more: Sequence[Candidate]) -> bool:
            return is_allowed_without(self._state, demand, starts, [each.runner for each in (*gone, *more)])

        more: list[Candidate] = []
        rest = iter(others)
        while not is_within(more):
            one = next(rest, None)
            if one is None:
                return None
            more.append(one)
        for one in tuple(reversed(more)):
            fewer = [each for each in more if each is not one]
            if is_within(fewer):
                more = fewer
        return more
