"""Soft places: room that is kept for a while for requests that wait for an approval.

A soft place takes free room only and no quota. It is in no share, no guarantee and no queue, and
nobody is paused for it. A booking ahead of it in the queue passes it, and so does a claim of
another tenant inside its guarantee, or a claim that would otherwise have somebody paused. Others
respect it.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from solver.cycle.extending.extensions import overlaps
from solver.cycle.order.queue import BookingQueue, Key, Turn
from solver.cycle.outcome import Outcome
from solver.cycle.planned_starts import is_usable
from solver.explanation.explain import possible_demands
from solver.model.demand import Demand, Fit, demand_on, demands_of
from solver.model.inputs import UNITS_PER_GPU, Request
from solver.model.plan import SoftPlace
from solver.state.cycle_state import CycleState
from solver.state.start_times import earliest_free, last_start

MARGIN = 900
"""A place is given up so many seconds before its start: others can still use it."""
MOST_UNITS = 8 * UNITS_PER_GPU
"""Kept for all requests of a project."""
MOST_BORROWED = 10
"""Percent of a class that are kept for a tenant above its guarantee, in fixed windows only."""
PartOf = Callable[[str], str]
"""The name of the classes that requests connect with a class."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A soft place, with the quota units that the request would use."""

    turn: Turn
    fit: Fit
    units: int
    inside: bool


class SoftPlaces:
    """The soft places of a cycle. `requests` wait for an approval."""

    def __init__(self, outcome: Outcome, queue: BookingQueue, requests: Iterable[Request]) -> None:
        """The requests are in queue order. What else their owners wait for does not count."""
        self._outcome, self._state = outcome, outcome.state
        self._requests = tuple(requests)
        turns = sorted((_ranked(queue, each) for each in self._requests), key=lambda turn: turn.key)
        self._waiting = deque(turns)
        self._later: list[Turn] = []
        self._kept: dict[str, _Kept] = {}
        self._free_now: dict[str, _Kept] = {}
        usual = (MARGIN, MOST_UNITS // UNITS_PER_GPU, MOST_BORROWED)
        self._margin, gpus, self._borrowed = self._state.policy.soft_bounds or usual
        self._most_units = gpus * UNITS_PER_GPU

    def keep_before(self, key: Key | None, freed: Collection[Fit] = ()) -> None:
        """Keep places for the requests that are ahead of this key, next to all others; None: for all of
        them. The starts in `freed` are to be reserved again, so their room is not free.
        """
        self._keep_again(self._free_now.values(), freed)
        turns, self._later = self._later, []
        while self._is_waiting(key):
            turns.append(self._waiting.popleft())
        for turn in turns:
            self._keep(turn, _planned(self._state, turn.request), freed)

    def _is_waiting(self, key: Key | None) -> bool:
        return bool(self._waiting) and (key is None or self._waiting[0].key <= key)

    def pass_by(self, turn: Turn, start: Fit | None, freed: Mapping[str, Fit], part_of: PartOf) -> None:
        """Keep places for the requests ahead of a booking, free those that it may pass, before it gets
        its start, and keep again those in its classes that only others could pass. `start` is the planned
        one that is reserved.

        Most bookings pass the same places as the one ahead, so these stay free from turn to turn.
        """
        if self._later or self._is_waiting(turn.key):
            self.keep_before(turn.key, freed.values())
        near = partial(self._near, turn, freed, part_of)
        if turn.request.planned is None:
            # Whether somebody would be paused for it is known only next to all places.
            self._keep_again(near(), freed.values())
        passed = self._passed(turn, start) if self._kept or self._free_now else []
        may_pass = {each.turn.request.booking for each in passed}
        behind = (each for each in near() if each.turn.request.booking not in may_pass)
        self._keep_again(behind, freed.values())
        for each in passed:
            if each.turn.request.booking in self._kept:
                self._give_up(each)

    def _near(self, turn: Turn, freed: Collection[str], part_of: PartOf) -> list[_Kept]:
        """The places that are free now, in the classes that the booking's own ones are connected with;
        in all while starts are freed, because these are reserved again in any turn."""
        if freed or not self._free_now:
            return [*self._free_now.values()]
        parts = {*map(part_of, turn.request.ask.all_classes)}
        return [each for each in self._free_now.values() if part_of(each.fit.demand.gpu_class) in parts]

    def _keep_again(self, passed: Iterable[_Kept], freed: Collection[Fit]) -> None:
        for each in sorted(passed, key=lambda each: each.turn.key):
            del self._free_now[each.turn.request.booking]
            self._keep(each.turn, each.fit, freed)

    def in_the_way(self, found: Fit) -> Turn | None:
        """The first in the queue of the requests whose places are in the way of a start."""
        near = [each for each in self._kept.values() if overlaps(each.fit, (found,))]
        return min((each.turn for each in near), key=lambda turn: turn.key, default=None)

    def answers(self) -> tuple[SoftPlace, ...]:
        """The places that are kept, and the requests that have lost theirs."""
        rows = []
        for request in self._requests:
            kept = self._kept.get(request.booking)
            if kept is not None:
                name, window = kept.fit.demand.gpu_class, kept.fit.window
                rows.append(SoftPlace(request.booking, name, kept.fit.places, *window))
            elif request.planned is not None:
                rows.append(SoftPlace(request.booking, "", (), 0, 0))
        return tuple(sorted(rows, key=lambda row: row.booking))

    def _keep(self, turn: Turn, before: Fit | None, freed: Collection[Fit]) -> None:
        """Keep the places that it had before, else others at the same start, else the earliest."""
        request, state = turn.request, self._state
        first = self._first(request)
        if first is None or self._is_over(request) or request.ask.groups:
            return
        if before is not None and before.starts >= first and self._is_free(before):
            found: Fit | None = before
        elif any(fit.demand.gpu_class in request.ask.classes for fit in freed):
            self._later.append(turn)
            return
        else:
            found = self._searched(request, first, before)
        kept = None if found is None else self._allowed(turn, found)
        if kept is not None:
            # Room only: quota that others need is never taken by what is not approved.
            state.take(kept.fit)
            self._kept[request.booking] = kept

    def _searched(self, request: Request, first: int, before: Fit | None) -> Fit | None:
        state = self._state
        demands, _ = possible_demands(state, demands_of(request))
        last = last_start(state, request)
        if not demands or first > last:
            return None
        if request.fixed:
            return state.first_at(demands, first)
        same = None if before is None else state.first_at(demands, max(before.starts, first))
        return same or earliest_free(state, request, demands, first, last)

    def _is_free(self, found: Fit) -> bool:
        state = self._state
        are_usable = all(is_usable(state, place) for place in found.places)
        return are_usable and state.is_free(found) and state.over(found.demand, found.starts) is None

    def _first(self, request: Request) -> int | None:
        """The first start of which the place can still be kept; None: a fixed one that can't."""
        soon = self._state.now + self._margin + 1
        if request.fixed:
            return request.earliest if request.earliest >= soon else None
        return self._state.first_start(max(request.earliest, soon))

    def _is_over(self, request: Request) -> bool:
        return request.until is None or request.until <= self._state.now

    def _allowed(self, turn: Turn, found: Fit) -> _Kept | None:
        """The place if it is within its bounds: of its project, and inside the guarantee or within
        what is kept above it."""
        request, state, demand = turn.request, self._state, found.demand
        use, name = state.use(demand), demand.gpu_class
        mine = [each for each in self._kept.values() if each.turn.request.tenant == request.tenant]
        in_project = sum(each.units for each in mine if each.turn.request.project == request.project)
        if in_project + use.units > self._most_units:
            return None
        near = [each for each in mine if each.fit.demand.gpu_class == name]
        guarantees = self._outcome.strengths.use
        left = guarantees.left(request.tenant, name, request.quota_tier, found.window)
        left -= sum(each.units for each in near if each.inside and _meets(each.fit, found))
        inside = guarantees.counts(request.quota_tier) and use.units <= left
        borrowed = sum(each.units for each in near if not each.inside)
        most = state.capacity[name] * self._borrowed // 100
        if not inside and not (request.fixed and borrowed + use.units <= most):
            return None
        return _Kept(turn, found, use.units, inside)

    def _give_up(self, kept: _Kept) -> None:
        booking = kept.turn.request.booking
        self._free_now[booking] = self._kept.pop(booking)
        self._state.free(kept.fit)
        # `free` also gives back quota, which a soft place never had.
        self._state.quota.add(self._state.use(kept.fit.demand), kept.fit.window)

    def _passed(self, turn: Turn, start: Fit | None) -> list[_Kept]:
        """The places that a booking may pass, in queue order."""
        request, state = turn.request, self._state
        names = request.ask.all_classes
        places = (*self._kept.values(), *self._free_now.values())
        near = [each for each in places if each.fit.demand.gpu_class in names]
        first = request.earliest if request.fixed else state.first_start(request.earliest)
        if not near or (start is not None and start.starts <= first):
            return []
        if not self._would_pause(turn):
            near = [each for each in near if turn.inside and each.turn.request.tenant != request.tenant]
        return sorted(near, key=lambda each: each.turn.key)

    def _would_pause(self, turn: Turn) -> bool:
        """True when somebody could be paused for the booking where soft places keep free room."""
        request, state = turn.request, self._state
        if not state.firm.gpus.keys() & set(request.ask.all_classes):
            return False
        if request.planned is not None:
            return True
        demands, _ = possible_demands(state, demands_of(request))
        first, last = max(request.earliest, state.now), last_start(state, request)
        if not demands or first > last:
            return False
        if request.fixed and state.first_at(_rest(request, demands, first), first) is not None:
            return False
        found = self._outcome.preemption.earliest(request, demands, first, last)
        if found is not None and found.victims:
            return True
        # A claim inside its guarantee may have planned starts moved, and somebody paused with them.
        return turn.inside and (found is None or found.starts > first)


def _ranked(queue: BookingQueue, request: Request) -> Turn:
    """Its place in the queue, with its age since it was submitted: it waits for people, not for its
    window."""
    turn = queue.turn(request)
    since = queue.turn(replace(request, earliest=min(request.earliest, request.submitted)))
    band, *_ = turn.key
    _, *rest = since.key
    return replace(turn, key=cast(Key, (band, *rest)))


def _planned(state: CycleState, request: Request) -> Fit | None:
    """The place of an earlier cycle; None: there is none, or the request is another by now."""
    planned = request.planned
    name = state.class_of(planned.places[0].gpu) if planned and planned.places else None
    if planned is None or name not in request.ask.classes:
        return None
    return Fit(demand_on(request, name), planned.places, planned.starts)


def _rest(request: Request, demands: tuple[Demand, ...], first: int) -> tuple[Demand, ...]:
    """The demands of what is left of a fixed window."""
    gone = first - request.earliest
    return tuple(replace(d, duration=d.duration - gone) for d in demands if d.duration > gone)


def _meets(one: Fit, other: Fit) -> bool:
    return one.starts < other.ends and other.starts < one.ends
