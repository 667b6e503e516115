"""The strength of each planned start."""

from collections.abc import Iterable

from solver.cycle.order.guaranteed_use import GuaranteedUse
from solver.model.demand import Fit
from solver.model.inputs import PlannedStart, Request, Snapshot, Strength
from solver.state.cycle_state import CycleState


class Strengths:
    """The strength of planned starts during a cycle."""

    def __init__(self, state: CycleState, snapshot: Snapshot, use: GuaranteedUse) -> None:
        """Planned starts are counted in `use`."""
        self._state, self.use = state, use
        self._leaving = {(row.place.gpu, row.ends) for row in snapshot.held if row.pausing}
        self._before: dict[str, Strength] = {}

    def of_before(self, request: Request) -> Strength:
        """The strength of a planned start of an earlier cycle, as that cycle stated it.

        It is firm once its victims have notice and within the freeze horizon.
        """
        if request.booking not in self._before:
            self._before[request.booking] = self._of_before(request)
        return self._before[request.booking]

    def _of_before(self, request: Request) -> Strength:
        planned = request.planned
        if planned is None or not planned.places:
            return "expected"
        if request.fixed or planned.strength == "firm" or self.has_room_made(planned):
            return "firm"
        if planned.strength is None:
            # Nothing proves the start, so others may have its places.
            return "expected"
        names = {self._state.class_of(place.gpu) for place in planned.places} - {None}
        if any(planned.starts <= self._state.frozen_until(name) for name in names if name):
            return "firm"
        return planned.strength

    def has_room_made(self, planned: PlannedStart | Fit) -> bool:
        """True when somebody has notice to leave for this start."""
        leaving = self._leaving
        return bool(leaving) and any((p.gpu, planned.starts) in leaving for p in planned.places)

    def firm(self, requests: Iterable[Request]) -> set[str]:
        """Bookings with a firm start of an earlier cycle."""
        return {
            request.booking
            for request in requests
            if request.planned is not None and self.of_before(request) == "firm"
        }

    def count(self, request: Request, found: Fit, *, firm: bool = False) -> Strength:
        """Count a reserved start and state its strength; `firm`: no booking may delay it."""
        inside = self.use.count(request.booking, found)
        return strength_of(is_firm=firm or request.fixed, is_inside=inside)

    def lift(self, booking: str) -> None:
        """Undo `count`."""
        self.use.lift(booking)

    def is_inside(self, request: Request, found: Fit) -> bool:
        """True when a start would be guaranteed instead of the booking's present one."""
        with self.use.lifted(request.booking):
            return self.use.is_inside(found.demand, found.window)


def strength_of(*, is_firm: bool, is_inside: bool) -> Strength:
    """The strength of a start. `is_firm`: a fixed window, a start for which others have notice, or
    one within the freeze horizon; `is_inside`: it is inside its tenant's guarantee all the time."""
    if is_firm:
        return "firm"
    return "guaranteed" if is_inside else "expected"
