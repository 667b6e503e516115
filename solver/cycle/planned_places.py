"""Planned starts in the queue: how many get one, which may be freed, and who took which place.

Behind the depth of planning a booking that borrows starts at once where there is room, else it
waits without a planned start until it is among them. So a cycle costs as much as its depth and its
fleet, however long the queue is. A planned start may be freed for bookings ahead of it.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from solver.cycle.order.held_guarantees import Whose
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
    """Free room at this second."""
    state = outcome.state
    hopeful = [each for each in demands if state.has_room(each, state.now)]
    return state.first_at(hopeful, state.now) if hopeful else None


class PlannedPlaces:
    """The places in the queue of planned starts that may be freed, by connected classes."""

    def __init__(self, turns: Sequence[Turn], kept: Mapping[str, Fit], outcome: Outcome) -> None:
        strengths = outcome.strengths
        self._parts = connected_classes(turns)
        self.behind_depth = self._behind_depth(turns, outcome.state.policy.plan_depth)
        self._expected: dict[str, list[int]] = {}
        self._guaranteed: dict[Whose, list[int]] = {}
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

    def part_named(self, gpu_class: str) -> str:
        """Return the name of the classes that are connected with this one."""
        return self._parts.get(gpu_class, gpu_class)

    def expected_behind(self, request: Request, at: int) -> Sequence[int]:
        """The places in the queue of expected starts behind place `at`, in order."""
        return _behind(self._expected.get(self.part_of(request), ()), at)

    def guaranteed_behind(self, request: Request, at: int) -> Sequence[int]:
        """Like `expected_behind`, for guaranteed starts of the request's tenant."""
        return _behind(self._guaranteed.get((request.tenant, self.part_of(request)), ()), at)

    def of(self, request: Request) -> list[Sequence[int]]:
        """The places of all that one more request may free: expected, and its own tenant's, in all
        classes that it would connect."""
        parts = sorted({self._parts.get(name, "") for name in request.ask.all_classes})
        expected = [self._expected.get(part, ()) for part in parts]
        return [*expected, *(self._guaranteed.get((request.tenant, part), ()) for part in parts)]


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
    if outcome.preemption.notices.is_older_than_grants(kept):
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


def _may_still_pause(state: CycleState, preemption: Preemption, request: Request, kept: Fit) -> bool:
    """Whether the next cycle would reserve a start with victims on its places."""
    with state.trial(kept.demand.gpu_class):
        state.free(kept)
        found = preemption.places.on_the_same_places(request, replace(kept, victims=()))
        uses, quota = state.uses(kept.demand), state.quota
        is_over = any(quota.over(use, kept.window, hours=False) for use in uses)
        is_free = state.is_free(kept) and not is_over
        state.reserve(kept)
    return found is not None or is_free


class TakenPlaces:
    """Who took which places, and whose quota, since the walk began."""

    def __init__(self, state: CycleState) -> None:
        self._state = state
        self._on: dict[str, list[tuple[Fit, Place, Turn]]] = {}
        self._of: dict[str, list[tuple[Fit, Turn]]] = {}

    def add(self, found: Fit, cause: Turn) -> None:
        """The places of `found` were taken because of `cause`."""
        for place in found.places:
            self._on.setdefault(place.gpu, []).append((found, place, cause))
        for name in {each.gpu_class for each in found.demand.parts}:
            self._of.setdefault(name, []).append((found, cause))

    def of(self, old: Fit, request: Request, *, is_free: bool) -> Turn | None:
        """The booking for which the places of an old start were taken, or its quota where these are
        free; None: what is missing was lost before."""
        if is_free:
            return self._of_quota(old, request.tenant)
        starts, ends = old.starts, old.ends
        near = [
            (not _meets(place, other), cause.key, cause)
            for place in old.places
            for found, other, cause in self._on.get(place.gpu, ())
            if found.starts < ends and starts < found.ends
        ]
        return min(near, key=lambda each: each[:2])[2] if near else None

    def last_of(self, old: Fit, tenant: str = "") -> Turn | None:
        """The last change in the time and classes of an old start, of a tenant or of anybody."""
        causes = (cause for _, cause in reversed(self._in_time(old)))
        return next((c for c in causes if not tenant or c.request.tenant == tenant), None)

    def _in_time(self, old: Fit) -> list[tuple[Fit, Turn]]:
        # A cap counts hours of other days, too.
        return [
            (found, cause)
            for name in sorted({each.gpu_class for each in old.demand.parts})
            for found, cause in self._of.get(name, ())
            if self._state.quota.has_hours or _overlap(found, old)
        ]

    def _of_quota(self, old: Fit, tenant: str) -> Turn | None:
        """The last of those without whose changes the old start would be within its quota: of its
        own tenant if these are enough."""
        state, rows = self._state, self._in_time(old)
        own = [row for row in rows if row[1].request.tenant == tenant]
        for some in filter(None, (own, rows)):
            uses = [(use, found.window) for found, _ in some for use in state.uses(found.demand)]
            for use, window in uses:
                state.quota.add(use, window, -1)
            is_within = state.over(old.demand, old.starts) is None
            for use, window in uses:
                state.quota.add(use, window)
            if is_within:
                return some[-1][1]
        return None


def _overlap(one: Fit, other: Fit) -> bool:
    return one.starts < other.ends and other.starts < one.ends


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
