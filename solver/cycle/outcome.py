"""The decisions of a cycle so far, and the plan made of them."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from solver.cycle.order.lost_guarantees import lost_guarantees
from solver.cycle.order.queue import Turn
from solver.cycle.order.strengths import Strengths
from solver.cycle.relocation_orders import OrderResult
from solver.cycle.resume_in_place import planned_resume
from solver.explanation.alternatives import alternatives, next_free
from solver.explanation.blockers import why_limited_still, why_not_yet, why_still_waiting, why_waiting
from solver.explanation.explain import (
    QueueAhead,
    data_placed,
    freed_by,
    mode_change,
    placed,
)
from solver.model.demand import Demand, Fit, demands_of
from solver.model.inputs import Request, Snapshot, Strength
from solver.model.plan import Assign, Borrow, Claim, Extend, OrderAnswer, Pause, Plan, Refuse, Waiting
from solver.preemption.borrowing import borrows_of, with_borrowed_reason
from solver.preemption.search import Preemption
from solver.reasons.reason import Reason, reason, with_facts
from solver.rebinding.rebinding import Rebinding
from solver.state.cycle_state import CycleState

Given = TypeVar("Given", Assign, Waiting)


@dataclass(slots=True)
class Outcome:
    """The decisions of a cycle so far. `keys`: the place of each booking in the queue.

    `failed_claims`: by owner and kind of demand, the shortest duration for which planned starts
    were lifted in vain; `lifted_in_vain`: how many those were in all attempts. `with_data`: the demands
    of assigned bookings that name data. A `brief` plan does not
    say why somebody waits, who borrows, and what else would work.
    """

    state: CycleState
    preemption: Preemption
    rebinding: Rebinding
    strengths: Strengths
    keys: dict[str, tuple[int, ...]] = field(default_factory=dict)
    assigns: list[Assign] = field(default_factory=list)
    waits: list[Waiting] = field(default_factory=list)
    resumes: list[Waiting] = field(default_factory=list)
    awaiting_pauses: set[str] = field(default_factory=set)
    refusals: list[Refuse] = field(default_factory=list)
    queues: dict[str, QueueAhead] = field(default_factory=dict)
    orders: list[OrderAnswer] = field(default_factory=list)
    placed: dict[str, Fit] = field(default_factory=dict)
    failed_claims: dict[tuple[object, ...], int] = field(default_factory=dict)
    lifted_in_vain: int = 0
    with_data: dict[str, Demand] = field(default_factory=dict)
    brief: bool = False

    def record_orders(self, results: Iterable[OrderResult]) -> list[str]:
        """Record the results of relocation orders, which are reserved; return all bookings with
        places."""
        for each in results:
            self.orders.append(each.answer)
            for row in each.assigns:
                self.assigns.append(replace(row, position=len(self.assigns) + 1))
            self.resumes += each.resumes
            self.preemption.notices.pauses += each.pauses
        return [given.booking for given in self.assigns]

    def ahead(self, gpu_class: str) -> QueueAhead:
        return self.queues.get(gpu_class, QueueAhead())

    def refuse(self, request: Request, reasons: tuple[Reason, ...], able: tuple[Demand, ...]) -> None:
        """Refuse a request. `able` are the demands that another window would serve."""
        if self.brief:
            self.refusals.append(Refuse(request.booking, reasons))
            return
        starts, until = max(request.earliest, self.state.now), None
        if not request.fixed:
            starts = self.state.first_start(request.earliest)
            until = request.latest or self.state.now + self.state.policy.horizon
        asked = demands_of(request) if request.duration > 0 else ()
        later = next_free(self.state, able, starts)
        instead = alternatives(self.state, asked, later, starts, dict(request.durations), until=until)
        self.refusals.append(Refuse(request.booking, freed_by(reasons, later), instead))

    def place(
        self,
        request: Request,
        found: Fit,
        delayed_by: Reason | None = None,
        slow: tuple[Reason, ...] = (),
        chosen: Reason | None = None,
        room_at: int | None = None,
    ) -> None:
        """Reserve the fit and assign it, or plan the start, before which there is room first at `room_at`, if
        that is known.

        A start within the freeze horizon or in a fixed window is assigned, unless its victims need
        no notice yet. `slow`: why other classes are too slow, `chosen`: why it is not the earliest.
        """
        state = self.state
        # What was written since it was found may forbid its pauses; then it waits.
        is_due = not found.victims or (
            self.preemption.notices.is_due(found) and self.preemption.notices.may_notify(request, found)
        )
        frozen_until = state.frozen_for(found.demand)
        is_assigned = is_due and (found.starts <= frozen_until or request.fixed)
        is_late = found.starts > state.first_start(request.earliest)
        reasons: tuple[Reason, ...] = (chosen,) if chosen is not None and not is_assigned else ()
        if chosen is None and not self.brief and (not is_assigned or (request.pinned and is_late)):
            reasons = why_waiting(state, request, found, self.ahead(found.demand.gpu_class), room_at)
        if is_assigned:
            reasons = (*reasons, *_modes_changed(state, found))
        if found.victims and is_due:
            self.preemption.notices.notify(request, found)
        state.reserve(found)
        if not is_assigned:
            self._plan(request, found, (*_room_made(self, found), *reasons, *slow), delayed_by, is_due=is_due)
            return
        self.assign(request, found, reasons)
        if found.starts > frozen_until:
            self.rebinding.add(request.booking, found)

    def _plan(
        self,
        request: Request,
        found: Fit,
        reasons: tuple[Reason, ...],
        delayed_by: Reason | None,
        *,
        is_due: bool,
    ) -> None:
        """Plan a start that is reserved. `is_due`: its victims, if any, have notice."""
        if not is_due:
            self.awaiting_pauses.add(request.booking)
        self.placed[request.booking] = found
        if not request.home:
            self.rebinding.add(request.booking, found)
        firm = (is_due and bool(found.victims)) or self._was_firm(request, found)
        depends = self.preemption.notices.depends_on_others
        if not firm and ((request.pinned and found.victims) or depends(found)):
            # As soon as there is room elsewhere, nobody is paused for a pin.
            strength: Strength = "expected"
        else:
            strength = self.strengths.count(request, found, firm=firm)
        self.wait(request, found, reasons, delayed_by, strength)

    def take_back(self, booking: str) -> Fit:
        """Free a start that this cycle has planned; return it where it was by now."""
        found = self.placed.pop(booking)
        found = self.rebinding.movable.take(booking, found.demand.gpu_class) or found
        self.state.free(found)
        self.strengths.lift(booking)
        self.waits[:] = [each for each in self.waits if each.booking != booking]
        return found

    def keep_start(
        self, request: Request, kept: Fit, slow: tuple[Reason, ...], room_at: int | None = None
    ) -> None:
        """Keep a planned start where it is reserved; its room is free, and there is none before, or first at
        `room_at`, and quota forbids all that there is."""
        state = self.state
        if kept.starts <= state.frozen_for(kept.demand):
            self.assign(request, kept)
            return
        is_as_asked = kept.starts <= state.first_start(request.earliest)
        why = why_not_yet if is_as_asked else why_still_waiting
        if room_at is not None:
            why = partial(why_limited_still, room_at=room_at)
        ahead = self.ahead(kept.demand.gpu_class)
        reasons = () if self.brief else why(state, request, kept, ahead)
        self.rebinding.add(request.booking, kept)
        self.placed[request.booking] = kept
        strength = self.strengths.count(request, kept, firm=self._was_firm(request, kept))
        self.wait(request, kept, (*reasons, *slow), None, strength)

    def keep_as_before(self, request: Request, kept: Fit) -> None:
        """Keep a planned start where it is reserved, with the reasons that it had."""
        self.rebinding.add(request.booking, kept)
        self.placed[request.booking] = kept
        strength = self.strengths.count(request, kept, firm=self._was_firm(request, kept))
        self.wait(request, kept, (), None, strength, as_before=True)

    def is_weaker(self, request: Request, kept: Fit, found: Fit) -> bool:
        """True when an earlier start would lose the guarantee, and is not assigned at once."""
        if found.starts <= self.state.frozen_for(found.demand) or found.victims:
            return False
        if self.strengths.of_before(request) != "guaranteed":
            return False
        return not self.strengths.is_inside(request, found)

    def _was_firm(self, request: Request, found: Fit) -> bool:
        """True for a firm start of an earlier cycle that is not later."""
        planned = request.planned
        if planned is None or found.starts > max(planned.starts, self.state.now):
            return False
        return self.strengths.of_before(request) == "firm"

    def assign(self, request: Request, found: Fit, late: tuple[Reason, ...] = ()) -> None:
        """Assign reserved places. `late`: why a pinned booking does not start sooner."""
        why = (*placed(self.state, found), *_room_made(self, found), *late)
        name, position = found.demand.gpu_class, len(self.assigns) + 1
        self.preemption.victim_rules.in_place.grant(request.booking, found)
        self.strengths.count(request, found)
        if found.demand.data:
            self.with_data[request.booking] = found.demand
        self.assigns.append(Assign(request.booking, name, found.places, *found.window, why, position))

    def wait(
        self,
        request: Request,
        found: Fit,
        reasons: tuple[Reason, ...],
        delayed_by: Reason | None,
        strength: Strength = "expected",
        *,
        as_before: bool = False,
    ) -> None:
        """Keep the request waiting. Its room is reserved, unless the start is unproven."""
        for use in self.state.uses(found.demand):
            self.queues[use.gpu_class] = self.ahead(use.gpu_class).plus(use.units)
        if not as_before and (rests := self.preemption.why_no_claim(found)):
            reasons = (*reasons, rests)
        wait = self._waiting(request, found, reasons, delayed_by, strength, as_before=as_before)
        self.waits.append(wait)

    def resume(self, turn: Turn, make_way: Callable[[Turn], None]) -> Fit | None:
        """Plan when a paused booking resumes; without a start it is tried again in the next
        cycle. If it can't resume at once, those behind it make way. Returns what is reserved."""
        request, out = turn.request, self.state.running.notified[turn.request.booking]
        found, reasons = planned_resume(self.state, request, out)
        if found is None or found.starts > self.state.first_start(out):
            make_way(turn)
            found, reasons = planned_resume(self.state, request, out)
        if found is not None:
            self.state.reserve(found)
            strength = self.strengths.count(request, found)
            self.resumes.append(self._waiting(request, found, reasons, None, strength))
        return found

    def _waiting(
        self,
        request: Request,
        found: Fit,
        reasons: tuple[Reason, ...],
        delayed_by: Reason | None,
        strength: Strength,
        *,
        as_before: bool = False,
    ) -> Waiting:
        name, key = found.demand.gpu_class, self.keys.get(request.booking, ())
        return Waiting(
            request.booking,
            name,
            found.places,
            *found.window,
            reasons,
            delayed_by,
            strength,
            key,
            as_before=as_before,
        )

    def is_written(self, booking: str) -> bool:
        """True for a booking with GPUs of its own, assigned in this cycle or before."""
        is_assigned = any(row.booking == booking for row in self.assigns)
        return is_assigned or self.rebinding.written(booking) is not None


def _room_made(outcome: Outcome, found: Fit) -> tuple[Reason, ...]:
    """The reason of a start with victims; call after those that are due have notice."""
    if not found.victims:
        return ()
    left = outcome.preemption.notices.to_notify(found)
    numbers = {"pauses": len(found.victims), "unnotified": len(left) or None}
    return (reason("makes_room", found.starts, **numbers, until=_protected_until(outcome, found, left)),)


def _protected_until(outcome: Outcome, found: Fit, left: Iterable[str]) -> int | None:
    """Until when those without notice are protected; None: that is not why it starts so late."""
    state = outcome.state
    runners = [state.running[each] for each in left]
    until = max((each.protected for each in runners), default=0)
    if until <= state.now:
        return None
    out = max(map(outcome.preemption.victim_rules.departures.out, runners))
    return until if found.starts <= state.first_start(out) else None


def plan_of(outcome: Outcome, snapshot: Snapshot, extensions: tuple[Extend, ...]) -> Plan:
    """The plan of a cycle whose decisions are complete."""
    given: list[Assign | Waiting] = [*outcome.assigns, *outcome.waits]
    borrows: tuple[Borrow, ...] = ()
    claims: tuple[Claim, ...] = ()
    if not outcome.brief:
        borrows, claims = borrows_of(outcome.state, snapshot, given, outcome.awaiting_pauses)
    by_booking = {borrow.booking: borrow for borrow in borrows}
    outgrown = _outside_guarantee(outcome, snapshot, extensions)
    waits = (
        _with_strength(_with_total(outcome, _with_current_places(outcome, wait)), outgrown)
        for wait in (*outcome.waits, *outcome.resumes)
    )
    assigns = (_with_data_reason(outcome, _with_current_places(outcome, row)) for row in outcome.assigns)
    return Plan(
        tuple(with_borrowed_reason(row, by_booking) for row in sorted(assigns, key=_booking)),
        tuple(
            row if row.as_before else with_borrowed_reason(row, by_booking)
            for row in sorted(waits, key=_booking)
        ),
        tuple(sorted(outcome.refusals, key=_booking)),
        extensions,
        borrows,
        claims,
        tuple(sorted(outcome.preemption.notices.pauses, key=_booking)),
        tuple(outcome.rebinding.moves()),
        orders=tuple(outcome.orders),
        dropped=outcome.preemption.places.dropped(),
    )


def _outside_guarantee(outcome: Outcome, snapshot: Snapshot, extensions: tuple[Extend, ...]) -> set[str]:
    """Bookings whose planned start has lost its guarantee since it was reserved."""
    use, written = outcome.strengths.use, (outcome.assigns, extensions, outcome.preemption.notices.pauses)
    waits = (*outcome.waits, *outcome.resumes)
    return use.outgrown() | lost_guarantees(outcome.state, use, snapshot, waits, written)


def _with_total(outcome: Outcome, wait: Waiting) -> Waiting:
    """The answer with the total number of bookings that wait for its class."""
    if not any(each.code == "line" for each in wait.reasons):
        return wait
    total = outcome.ahead(wait.gpu_class).bookings
    reasons = tuple(with_facts(each, of=total) if each.code == "line" else each for each in wait.reasons)
    return replace(wait, reasons=reasons)


def _with_current_places(outcome: Outcome, row: Given) -> Given:
    """The answer with its present places: a later booking may have moved it."""
    found = outcome.rebinding.movable.found(row.booking, row.gpu_class)
    if found is None or found.places == row.places:
        return row
    if isinstance(row, Waiting):
        made: tuple[Reason, ...] = _room_made(outcome, found)
        return replace(row, places=found.places, reasons=(*made, *row.reasons))
    where: tuple[Reason, ...] = placed(outcome.state, found)
    return replace(row, places=found.places, reasons=(*where, *row.reasons[1:]))


def _with_data_reason(outcome: Outcome, row: Assign) -> Assign:
    """The answer with what its places mean for the data that it names."""
    demand = outcome.with_data.get(row.booking)
    if demand is None:
        return row
    return replace(row, reasons=(*row.reasons, data_placed(outcome.state, demand, row.places)))


def _booking(answer: Assign | Waiting | Refuse | Pause) -> str:
    return answer.booking


def _with_strength(wait: Waiting, outgrown: Container[str]) -> Waiting:
    """The answer without the guarantee that own work has taken."""
    is_outgrown = wait.strength == "guaranteed" and wait.booking in outgrown
    return replace(wait, strength="expected") if is_outgrown else wait


def _modes_changed(state: CycleState, found: Fit) -> tuple[Reason, ...]:
    """The reason for GPUs that must change their mode; call before the fit is reserved."""
    if found.demand.groups:
        every = (_modes_changed(state, part) for part in state.parts(found))
        return tuple(each for reasons in every for each in reasons)
    demand = found.demand
    if not state.all.modes.may_switch(demand.gpu_class):
        return ()
    pool = state.pools[demand.gpu_class]
    switches = state.all.modes.switching(pool, demand.shape, found.starts)
    count = len({place.gpu for place in found.places if switches[pool.column[place.gpu]]})
    seconds = state.all.modes.lead(demand.gpu_class)
    return (mode_change(demand.gpu_class, count, seconds, demand.shape),) if count else ()
