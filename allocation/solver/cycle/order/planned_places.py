"""Planned starts that may be freed for bookings ahead of them, and who needs them to be."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from allocation.solver.cycle.order.queue import Turn
from allocation.solver.cycle.order.strengths import Strengths
from allocation.solver.cycle.order.takers import connected_classes
from allocation.solver.cycle.outcome import Outcome
from allocation.solver.model.demand import Fit, demands_of
from allocation.solver.model.inputs import Request
from allocation.solver.preemption.search import Preemption
from allocation.solver.reasons.blockers import out_of_service
from allocation.solver.reasons.explain import possible_demands
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.held_guarantees import Whose
from allocation.solver.state.start_times import last_start


class PlannedPlaces:
    """The places in the queue of planned starts that may be freed, by connected classes."""

    def __init__(
        self, turns: Sequence[Turn], kept: Mapping[str, Fit], strengths: Strengths
    ) -> None:
        self._parts = connected_classes(turns)
        self._expected: dict[str, list[int]] = {}
        self._guaranteed: dict[Whose, list[int]] = {}
        self._starts: dict[str, list[int]] = {}
        self._earliest: dict[str, list[int]] = {}
        for at, turn in enumerate(turns):
            request = turn.request
            if request.booking not in kept:
                continue
            strength, part = strengths.of_before(request), self.part_of(request)
            if strength == "guaranteed" and strengths.is_counted(request.booking):
                self._guaranteed.setdefault((request.tenant, part), []).append(at)
            elif strength != "firm":
                self._expected.setdefault(part, []).append(at)
                self._starts.setdefault(part, []).append(kept[request.booking].starts)

    def part_of(self, request: Request) -> str:
        """Return the name of the connected classes of a request."""
        return self._parts.get(request.ask.classes[0], "") if request.ask.classes else ""

    def expected(self, part: str) -> Sequence[int]:
        """Return the places of the expected starts, the first first."""
        return self._expected.get(part, ())

    def guaranteed(self, tenant: str, part: str) -> Sequence[int]:
        """Return the places of a tenant's guaranteed starts, the first first."""
        return self._guaranteed.get((tenant, part), ())

    def of(self, request: Request) -> tuple[Sequence[int], Sequence[int]]:
        """Return the places of all that a request may free: expected, and its own tenant's."""
        part = self.part_of(request)
        return self.expected(part), self.guaranteed(request.tenant, part)

    def earliest_from(self, part: str) -> list[int]:
        """Return for each expected start the earliest of it and all behind it."""
        if part not in self._earliest:
            starts = reversed(self._starts[part])
            self._earliest[part] = list(accumulate(starts, min))[::-1]
        return self._earliest[part]


def needs_no_way(state: CycleState, request: Request) -> bool:
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
    """True when work that counts has taken the quota of a start that does not count: the limits
    of the former ignore the latter. True also when nobody may be paused any more for a start with
    victims, because of what its tenant was given since."""
    state = outcome.state
    if outcome.preemption.is_older_than_grants(kept):
        return not _may_still_pause(state, outcome.preemption, request, kept)
    uses = [use for use in state.uses(kept.demand) if use.gpu_class in changed]
    if not uses or state.quota.tier(request.quota_tier).counts:
        return False
    for use in uses:
        state.quota.add(use, kept.window, -1)
    blocks = [state.quota.over(use, kept.window) for use in uses]
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
        is_free = state.is_free(kept) and state.over(kept.demand, kept.starts) is None
        state.reserve(kept)
    return found is not None or is_free
