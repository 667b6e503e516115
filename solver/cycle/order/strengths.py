"""The strength of each planned start, and what projects of a tenant do not lend each other.

A project that does not lend what it is guaranteed keeps it from the other projects of its tenant:
their work is inside the tenant's guarantee only in what is left without it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from solver.cycle.order.guaranteed_use import GuaranteedUse
from solver.cycle.order.held_guarantees import Level, Whose
from solver.model.demand import Fit
from solver.model.inputs import PlannedStart, Request, Snapshot, Strength
from solver.quota.limits import dates_of, guarantees_at
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


@dataclass(frozen=True, slots=True)
class _Wall:
    """Units that some projects keep for themselves; `inner`: the part that single ones of them keep
    from each other."""

    projects: frozenset[str]
    units: int
    inner: tuple["_Wall", ...] = ()

    def kept(self, project: str, used: dict[str, int]) -> int:
        """What of it is neither in use nor open to a project."""
        inner = sum(each.kept(project, used) for each in self.inner)
        if project in self.projects:
            return inner
        return max(inner, self.units - sum(used.get(each, 0) for each in self.projects))


class Unlent:
    """The units that each tenant keeps for some of its projects, next to what these hold."""

    def __init__(self, state: CycleState, snapshot: Snapshot, use: GuaranteedUse) -> None:
        self._dates = dates_of(snapshot) if snapshot.guarantees else []
        self._walls = [_walls_of(snapshot), *(_walls_of(guarantees_at(snapshot, at)) for at in self._dates)]
        """Of the usual guarantees, then from each date on."""
        self._whose = {whose for walls in self._walls for whose in walls}
        self._held: dict[Whose, list[tuple[str, Level, int, int, int]]] = {}
        for row in snapshot.held if self._whose else ():
            name = state.class_of(row.place.gpu) or ""
            if (row.tenant, name) in self._whose and use.counts(row.quota_tier):
                units = state.units(name, (row.place,))
                times = (row.starts, state.free_from(row.ends))
                held = (row.project, use.level(row.quota_tier), units, *times)
                self._held.setdefault((row.tenant, name), []).append(held)

    def is_kept(self, tenant: str, gpu_class: str) -> bool:
        """True when some of the tenant's guarantee is not lent to all of its projects."""
        return (tenant, gpu_class) in self._whose

    def kept_from(self, whose: Whose, project: str, level: Level, at: int, passed: dict[str, int]) -> int:
        """Units of a tenant's guarantee that are kept from a project at an instant. `passed` is
        what its projects get before; held work of lower levels does not count."""
        used = dict(passed)
        for owner, each, units, since, until in self._held.get(whose, ()):
            if each >= level and since <= at < until:
                used[owner] = used.get(owner, 0) + units
        walls = self._walls[bisect_right(self._dates, at)]
        return sum(wall.kept(project, used) for wall in walls.get(whose, ()))


def _walls_of(snapshot: Snapshot) -> dict[Whose, list[_Wall]]:
    found: dict[Whose, list[_Wall]] = {}
    for row in snapshot.limits:
        if row.parent is not None and row.lend is not None and row.lend < row.guaranteed:
            wall = _Wall(frozenset((row.owner,)), row.guaranteed - row.lend)
            found.setdefault((row.parent, row.gpu_class), []).append(wall)
    for key, wall in _labs(snapshot):
        inner = [each for each in found.get(key, ()) if each.projects <= wall.projects]
        outer = [each for each in found.get(key, ()) if each not in inner]
        found[key] = [*outer, replace(wall, inner=tuple(inner))]
    return found


def _labs(snapshot: Snapshot) -> Iterator[tuple[Whose, _Wall]]:
    for lab in snapshot.labs:
        if lab.lend is not None and lab.lend < lab.guaranteed:
            units = lab.guaranteed - lab.lend
            yield (lab.tenant, lab.gpu_class), _Wall(frozenset(lab.projects), units)
