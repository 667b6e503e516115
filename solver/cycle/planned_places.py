"""Planned starts in the queue: how many get one, which may be freed, and who took which place.

Behind the depth of planning a booking that borrows starts at once where there is room, else it
waits without a planned start until it is among them. So a cycle costs as much as its depth and its
fleet, however long the queue is. A planned start may be freed for bookings ahead of it.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from solver.cycle.order.guaranteed_use import Whose
from solver.cycle.order.queue import Turn
from solver.cycle.outcome import Outcome
from solver.cycle.placing import feasible
from solver.cycle.planned_starts import unproven_start
from solver.explanation.blockers import out_of_service
from solver.explanation.explain import possible_demands
from solver.model.demand import Demand, Fit, demands_of
from solver.model.inputs import Place, Request
from solver.preemption.search import Preemption
from solver.reasons.reason import Reason, reason
from solver.state.cycle_state import CycleState
from solver.state.start_times import last_start


def start_or_wait(outcome: Outcome, request: Request, broken: Reason | None) -> Fit | None:
    """Start a booking behind the depth if it has room now; `broken` is the reason why it lost its
    start. Returns what is reserved; None: it waits without a planned start, or is refused."""
    state, able = outcome.state, feasible(outcome, request)
    if able is None:
        return None
    demands, slow = able.demands, able.slow
    found = _free_now(outcome, demands) if request.earliest <= state.now else None
    if found is not None:
        outcome.place(request, found, None, slow)
        return found
    why = reason("behind_the_plan", depth=state.policy.plan_depth)
    late = broken if request.planned is not None and request.planned.places else None
    outcome.wait(request, unproven_start(state, request, demands[0]), (why, *slow), late)
    return None


def _free_now(outcome: Outcome, demands: Iterable[Demand]) -> Fit | None:
    """Free room at this second. What one kind of demand did not find, longer ones do not either."""
    state, no_room = outcome.state, outcome.state.no_room
    hopeful = [each for each in demands if no_room.first_possible(each) <= state.now]
    for each in hopeful:
        if not state.has_room(each, state.now):
            no_room.record_search(each, state.now + 1)
    return state.first_at(hopeful, state.now) if hopeful else None


class PlannedPlaces:
    """The places in the queue of planned starts that may be freed, by connected classes."""

    def __init__(self, turns: Sequence[Turn], kept: Mapping[str, Fit], outcome: Outcome) -> None:
        strengths = outcome.strengths
        self._parts = connected_classes(turns)
        self.behind_depth = self._behind_depth(turns, outcome.state.policy.plan_depth)
        self._expected: dict[str, list[int]] = {}
        self._guaranteed: dict[Whose, list[int]] = {}
        self._starts: dict[str, list[int]] = {}
        self._earliest: dict[str, list[int]] = {}
        self._opened: dict[str, Turn] = {}
        for at, turn in enumerate(turns):
            request = turn.request
            if request.booking not in kept:
                continue
            strength, part = strengths.of_before(request), self.part_of(request)
            if strength == "guaranteed":
                # Also if own work has taken the guarantee since: the plan that says so comes first.
                self._guaranteed.setdefault((request.tenant, part), []).append(at)
            elif strength != "firm":
                self._expected.setdefault(part, []).append(at)
                self._starts.setdefault(part, []).append(kept[request.booking].starts)

    def _behind_depth(self, turns: Iterable[Turn], depth: int) -> set[str]:
        """The bookings behind the first `depth` of their connected classes that may wait unplanned.

        A booking inside its guarantee, a fixed window, one with a deadline and a paused one are
        planned wherever they stand. With depth 0 all are planned.
        """
        found, passed = set[str](), dict[str, int]()
        for turn in turns if depth else ():
            request, part = turn.request, self.part_of(turn.request)
            passed[part] = passed.get(part, 0) + 1
            has_claim = turn.inside or request.fixed or request.paused or bool(request.home)
            if passed[part] > depth and not has_claim and request.latest is None:
                found.add(request.booking)
        return found

    def part_of(self, request: Request) -> str:
        """Return the name of the connected classes of a request."""
        return self._parts.get(request.ask.classes[0], "") if request.ask.classes else ""

    def is_open(self, request: Request) -> bool:
        """True once the expected starts of its connected classes were freed, behind some turn."""
        return self.part_of(request) in self._opened

    def opened_by(self, request: Request) -> Turn | None:
        """The turn behind which they were freed."""
        return self._opened.get(self.part_of(request))

    def open(self, turn: Turn) -> None:
        """Note that the expected starts behind a turn are free."""
        self._opened[self.part_of(turn.request)] = turn

    def close(self, request: Request) -> None:
        """Undo `open`."""
        self._opened.pop(self.part_of(request), None)

    def expected_behind(self, request: Request, at: int) -> Sequence[int]:
        """The places in the queue of expected starts behind place `at`, in order."""
        return _behind(self._expected.get(self.part_of(request), ()), at)

    def guaranteed_behind(self, request: Request, at: int) -> Sequence[int]:
        """Like `expected_behind`, for guaranteed starts of the request's tenant."""
        return _behind(self._guaranteed.get((request.tenant, self.part_of(request)), ()), at)

    def are_any_behind(self, request: Request, at: int) -> bool:
        """True when it may free something: expected starts once for all connected classes, and
        guaranteed ones of its own tenant."""
        is_open, own = self.is_open(request), self.guaranteed_behind(request, at)
        return bool(own) or (not is_open and bool(self.expected_behind(request, at)))

    def of(self, request: Request) -> list[Sequence[int]]:
        """The places of all that one more request may free: expected, and its own tenant's, in all
        classes that it would connect."""
        parts = sorted({self._parts.get(name, "") for name in request.ask.all_classes})
        expected = [self._expected.get(part, ()) for part in parts]
        return [*expected, *(self._guaranteed.get((request.tenant, part), ()) for part in parts)]

    def earliest_behind(self, request: Request, at: int) -> int | None:
        """The earliest of the expected starts behind a place; None: there is none."""
        part, behind = self.part_of(request), self.expected_behind(request, at)
        if part not in self._earliest and behind:
            starts = reversed(self._starts[part])
            self._earliest[part] = list(accumulate(starts, min))[::-1]
        return self._earliest[part][-len(behind)] if behind else None


def _behind(places: Sequence[int], at: int) -> Sequence[int]:
    return places[bisect_right(places, at) :]


def starts_without_freeing(state: CycleState, request: Request) -> bool:
    """True when it can start as requested with all planned starts where they are, or never."""
    demands, _ = possible_demands(state, demands_of(request))
    if not demands:
        return True
    if request.series is not None or request.cheapest or request.durations or request.home:
        return False
    first = request.earliest if request.fixed else state.first_start(request.earliest)
    if first < state.now or first > last_start(state, request):
        return False
    found = state.first_at(demands, first)
    if found is not None:
        uses = state.uses(found.demand)
        return not any(state.quota.takes_back(use, found.window) for use in uses)
    return not request.fixed and out_of_service(state, demands, first) is not None


def is_pushed_out(outcome: Outcome, changed: Container[str], request: Request, kept: Fit) -> bool:
    """True when work that counts has taken the quota of a start that does not count, or is to stay
    within the guarantee: the limits of the former ignore the latter. True also when nobody may be
    paused any more for a start with victims, because of what its tenant was given since."""
    state = outcome.state
    if outcome.preemption.is_older_than_grants(kept):
        return not _may_still_pause(state, outcome.preemption, request, kept)
    uses = [use for use in state.uses(kept.demand) if use.gpu_class in changed]
    is_ignored = request.within or not state.quota.tier(request.quota_tier).counts
    if not uses or not is_ignored:
        return False
    for use in uses:
        state.quota.add(use, kept.window, -1)
    # A cap of hours counts what starts days later, too; each newcomer has counted these hours.
    blocks = [state.quota.over(use, kept.window, hours=False) for use in uses]
    for use in uses:
        state.quota.add(use, kept.window)
    return any(blocks)


def _may_still_pause(
    state: CycleState, preemption: Preemption, request: Request, kept: Fit
) -> bool:
    """Whether the next cycle would reserve a start with victims on its places."""
    with state.trial(kept.demand.gpu_class):
        state.free(kept)
        found = preemption.on_the_same_places(request, replace(kept, victims=()))
        uses, quota = state.uses(kept.demand), state.quota
        is_over = any(quota.over(use, kept.window, hours=False) for use in uses)
        is_free = state.is_free(kept) and not is_over
        state.reserve(kept)
    return found is not None or is_free


class TakenPlaces:
    """Who took which places since the walk began."""

    def __init__(self) -> None:
        self._on: dict[str, list[tuple[Fit, Place, Turn]]] = {}
        self._last: dict[tuple[str, str], Turn] = {}

    def add(self, found: Fit, cause: Turn) -> None:
        """The places of `found` were taken because of `cause`."""
        for place in found.places:
            self._on.setdefault(place.gpu, []).append((found, place, cause))
        for each in found.demand.parts:
            name = each.gpu_class
            self._last[name, found.demand.owners[0]] = self._last[name, ""] = cause

    def of(self, old: Fit, request: Request) -> Turn | None:
        """The booking for which the places or the quota of an old start were taken."""
        near = [
            (not _meets(place, other), cause.key, cause)
            for place in old.places
            for found, other, cause in self._on.get(place.gpu, ())
            if found.starts < old.ends and old.starts < found.ends
        ]
        if near:
            return min(near, key=lambda each: each[:2])[2]
        name = old.demand.gpu_class
        return self._last.get((name, request.tenant)) or self._last.get((name, ""))


def _meets(one: Place, other: Place) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size


def connected_classes(turns: Iterable[Turn]) -> dict[str, str]:
    """For each class the name of all that requests connect with it: the smallest of them."""
    parts: dict[str, str] = {}
    for classes in sorted({turn.request.ask.all_classes for turn in turns}):
        names = {parts.get(name, name) for name in classes}
        least = min(names, default="")
        for name in classes:
            parts[name] = least
        for name, part in parts.items():
            if part in names:
                parts[name] = least
    return parts
