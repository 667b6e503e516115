"""What a cycle has decided so far, and the plan that it comes to."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from allocation.reasons.reason import Reason
from allocation.solver.cycle.relocation_orders import OrderResult
from allocation.solver.cycle.resume_in_place import planned_resume
from allocation.solver.model.inputs import Request, Snapshot
from allocation.solver.model.plan import Assign, Extend, OrderAnswer, Pause, Plan, Refuse, Waiting
from allocation.solver.placement.gang import Demand, demands_of
from allocation.solver.preemption.borrowing import borrows_of, with_borrowed_reason
from allocation.solver.preemption.search import Preemption
from allocation.solver.reasons.alternatives import alternatives, next_free
from allocation.solver.reasons.blockers import why_still_waiting, why_waiting
from allocation.solver.reasons.explain import QueueAhead, freed_by, mode_change, placed, with_totals
from allocation.solver.reasons.preemption import makes_room
from allocation.solver.rebinding.rebinding import Rebinding
from allocation.solver.state.working import Fit, Working

Given = TypeVar("Given", Assign, Waiting)


@dataclass(slots=True)
class Outcome:
    """What the cycle has decided so far."""

    working: Working
    preemption: Preemption
    promised: Rebinding
    assigns: list[Assign] = field(default_factory=list)
    waits: list[Waiting] = field(default_factory=list)
    resumes: list[Waiting] = field(default_factory=list)
    standing: set[str] = field(default_factory=set)
    refusals: list[Refuse] = field(default_factory=list)
    lines: dict[str, QueueAhead] = field(default_factory=dict)
    orders: list[OrderAnswer] = field(default_factory=list)

    def carry(self, results: Iterable[OrderResult]) -> list[str]:
        """Notes what became of orders; who got its places that way. All is reserved already."""
        for each in results:
            self.orders.append(each.answer)
            self.assigns += each.assigns
            self.resumes += each.resumes
            self.preemption.pauses += each.pauses
        return [given.booking for given in self.assigns]

    def line(self, gpu_class: str) -> QueueAhead:
        return self.lines.get(gpu_class, QueueAhead())

    def refuse(
        self, request: Request, reasons: tuple[Reason, ...], able: tuple[Demand, ...]
    ) -> None:
        """`able` are the wants that another window would serve."""
        starts = max(request.earliest, self.working.now)
        if not request.fixed:
            starts = self.working.first_start(request.earliest)
        asked = demands_of(request) if request.duration > 0 else ()
        later = next_free(self.working, able, starts)
        instead = alternatives(self.working, asked, later, starts, dict(request.durations))
        self.refusals.append(Refuse(request.booking, freed_by(reasons, later), instead))

    def give(
        self,
        request: Request,
        found: Fit,
        delayed_by: Reason | None = None,
        slow: tuple[Reason, ...] = (),
    ) -> None:
        """Reserve it: places for good if it starts within the freeze horizon or is fixed in time,
        else a promise.

        On the room of running work it is a promise until they have been told. `slow`: why not on
        other classes.
        """
        working, is_due = self.working, self.preemption.is_due(found)
        frozen_until = working.frozen_until(found.demand.gpu_class)
        is_soon = found.starts <= frozen_until or request.fixed
        is_late = found.starts > working.first_start(request.earliest)
        reasons: tuple[Reason, ...] = ()
        if not (is_soon and is_due) or (request.pinned and is_late):
            reasons = why_waiting(working, request, found, self.line(found.demand.gpu_class))
        if is_soon and is_due:
            reasons = (*reasons, *_modes_changed(working, found))
            self.preemption.notify(request, found)
            working.reserve(found)
            self.assign(request, found, reasons)
            if found.starts > frozen_until:
                self.promised.add(request.booking, found)
            return
        if is_due:
            self.preemption.notify(request, found)
        else:
            self.standing.add(request.booking)
        working.reserve(found)
        if not request.home:
            self.promised.add(request.booking, found)
        self.wait(request, found, (*_room_made(found), *reasons, *slow), delayed_by)

    def stay(self, request: Request, kept: Fit, slow: tuple[Reason, ...]) -> None:
        """It keeps its promise where it is reserved, on room that is free."""
        working = self.working
        if kept.starts <= working.frozen_until(kept.demand.gpu_class):
            self.assign(request, kept)
            return
        reasons = why_still_waiting(working, request, kept, self.line(kept.demand.gpu_class))
        self.promised.add(request.booking, kept)
        self.wait(request, kept, (*reasons, *slow), None)

    def assign(self, request: Request, found: Fit, late: tuple[Reason, ...] = ()) -> None:
        """The room is reserved already. `late`: why what is pinned does not start sooner."""
        why = (placed(self.working, found), *_room_made(found), *late)
        self.assigns.append(
            Assign(request.booking, found.demand.gpu_class, found.places, *found.window, why)
        )

    def wait(
        self,
        request: Request,
        found: Fit,
        reasons: tuple[Reason, ...],
        delayed_by: Reason | None,
    ) -> None:
        """Its room is reserved already, unless nothing proves the start: then it has none."""
        demand = found.demand
        units = demand.count * self.working.pools[demand.gpu_class].units(demand.shape)
        self.lines[demand.gpu_class] = self.line(demand.gpu_class).longer(units)
        self.waits.append(_waiting(request, found, reasons, delayed_by))

    def resume(self, running: Iterable[Request]) -> None:
        """Plan when those that are told to leave go on; who finds no start now asks again later."""
        notified = self.working.running.notified
        known = {each.booking for each in self.resumes}
        for request in running:
            if request.booking in notified and request.booking not in known:
                found, reasons = planned_resume(self.working, request, notified[request.booking])
                if found is not None:
                    self.working.reserve(found)
                    self.resumes.append(_waiting(request, found, reasons, None))

    def plan(self, snapshot: Snapshot, extensions: tuple[Extend, ...]) -> Plan:
        given: list[Assign | Waiting] = [*self.assigns, *self.waits]
        borrows, claims = borrows_of(self.working, snapshot, given, self.standing)
        by_booking = {borrow.booking: borrow for borrow in borrows}
        waits = (
            self._in_line(self._with_current_places(wait)) for wait in (*self.waits, *self.resumes)
        )
        assigns = map(self._with_current_places, self.assigns)
        return Plan(
            tuple(with_borrowed_reason(row, by_booking) for row in sorted(assigns, key=_booking)),
            tuple(with_borrowed_reason(row, by_booking) for row in sorted(waits, key=_booking)),
            tuple(sorted(self.refusals, key=_booking)),
            extensions,
            borrows,
            claims,
            tuple(sorted(self.preemption.pauses, key=_booking)),
            tuple(self.promised.moves()),
            orders=tuple(self.orders),
        )

    def _in_line(self, wait: Waiting) -> Waiting:
        """With its place among all that wait for the class."""
        reasons = with_totals(wait.reasons, self.line(wait.gpu_class).bookings)
        return wait if reasons is wait.reasons else replace(wait, reasons=reasons)

    def _with_current_places(self, row: Given) -> Given:
        """What was given or promised, where it lies after others have been let in."""
        found = self.promised.movable.found(row.booking, row.gpu_class)
        if found is None or found.places == row.places:
            return row
        if isinstance(row, Waiting):
            return replace(row, places=found.places)
        why = (placed(self.working, found), *row.reasons[1:])
        return replace(row, places=found.places, reasons=why)


def _booking(answer: Assign | Waiting | Refuse | Pause) -> str:
    return answer.booking


def _waiting(
    request: Request, found: Fit, reasons: tuple[Reason, ...], delayed_by: Reason | None
) -> Waiting:
    gpu_class = found.demand.gpu_class
    return Waiting(request.booking, gpu_class, found.places, *found.window, reasons, delayed_by)


def _modes_changed(working: Working, found: Fit) -> tuple[Reason, ...]:
    """The GPUs that change their mode for it; before it is reserved."""
    demand = found.demand
    if not working.modes.may_switch(demand.gpu_class):
        return ()
    pool = working.pools[demand.gpu_class]
    switches = working.modes.switching(pool, demand.shape, found.starts)
    count = len({place.gpu for place in found.places if switches[pool.column[place.gpu]]})
    seconds = working.modes.lead(demand.gpu_class)
    return (mode_change(demand.gpu_class, count, seconds, demand.shape),) if count else ()


def _room_made(found: Fit) -> tuple[Reason, ...]:
    return (makes_room(len(found.over), found.starts),) if found.over else ()
