"""The strength of each planned start, and what of a tenant is inside its guarantee over time.

Only the tenant's own nominal quota counts, never a project's. But a project that does not lend what
it is guaranteed keeps it from the other projects of its tenant: their work is inside the tenant's
guarantee only in what is left without it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace

from allocation.solver.model.demand import Demand, Fit
from allocation.solver.model.inputs import Held, PlannedStart, Request, Shape, Snapshot, Strength
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.held_guarantees import (
    HeldGuarantees,
    Level,
    Whose,
    Window,
    add,
    windows_left,
)
from allocation.solver.state.held_work import HeldWork
from allocation.solver.timeline.step_function import StepFunction


@dataclass(frozen=True, slots=True)
class Part:
    """Units and the windows in which they are inside a guarantee."""

    level: Level
    units: int
    windows: tuple[Window, ...]


class GuaranteedUse:
    """Use of each tenant's guarantee over time, by held work and by planned starts.

    At each instant the guarantee goes to higher levels first, then to older grants, then to planned
    starts in the order in which they are counted. Whatever does not fit then is borrowed and takes
    nothing.
    """

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        self._state = state
        self._guaranteed = {
            (row.owner, row.gpu_class): row.guaranteed
            for row in snapshot.limits
            if row.parent is None and row.guaranteed
        }
        self._levels: dict[str, Level] = {}
        self._held = self._held_of(state.work_of(snapshot.held))
        self._units_of: dict[tuple[str, Shape, int], int] = {}
        self._counted: dict[Whose, dict[str, Part]] = {}
        self._counted_as: dict[str, tuple[tuple[Whose, ...], Fit, bool]] = {}
        self._use: dict[Whose, dict[Level, StepFunction]] = {}

    def without_planned(self) -> "GuaranteedUse":
        """The same with held work alone."""
        twin = copy(self)
        twin._counted, twin._counted_as, twin._use = {}, {}, {}
        return twin

    def with_held(self, rows: Iterable[Held]) -> "GuaranteedUse":
        """The same with other held work, and nothing planned."""
        twin = self.without_planned()
        twin._held = self._held_of(rows)
        return twin

    def guaranteed(self, tenant: str, gpu_class: str) -> int:
        """Units of the class that the tenant is guaranteed."""
        return self._guaranteed.get((tenant, gpu_class), 0)

    def left(self, tenant: str, gpu_class: str, tier: str, window: Window) -> int:
        """Units of the guarantee that are left for work of a tier in all of a window."""
        most = self.guaranteed(tenant, gpu_class)
        if not most:
            return 0
        use = self._use_of((tenant, gpu_class), self.level(tier))
        return most - int(use.values[use.rows(*window)].max(initial=0))

    def is_inside(self, demand: Demand, window: Window) -> bool:
        """True when a demand of a tier that counts is inside the guarantee in all of a window; a
        mixed one, in each of its classes."""
        if demand.groups:
            return all(self.is_inside(each, window) for each in demand.parts)
        tenant, name = demand.owners[0], demand.gpu_class
        if (tenant, name) not in self._guaranteed or not self.counts(demand.tier):
            return False
        return self._units(demand) <= self.left(tenant, name, demand.tier, window)

    def count(self, booking: str, found: Fit) -> bool:
        """Count a planned start where it is inside; its earlier one no longer counts. Returns
        whether it is inside in all of its window."""
        counted = self._counted_as.get(booking)
        if counted is not None and (counted[1] is found or counted[1] == found):
            return counted[2]
        self.lift(booking)
        if not self.counts(found.demand.tier):
            return False
        rows = {self._whose(each): self._part(each, found) for each in found.demand.parts}
        inside = all(row is not None and row.windows == (found.window,) for row in rows.values())
        if len(rows) > 1 and not inside:
            # A mixed start that is borrowed in one class is borrowed in all.
            return False
        parts = {key: row for key, row in rows.items() if row is not None}
        if not parts:
            return False
        self._counted_as[booking] = (tuple(parts), found, inside)
        for key, part in parts.items():
            self._counted.setdefault(key, {})[booking] = part
            self._change(key, part, 1)
        return inside

    def _part(self, demand: Demand, found: Fit) -> Part | None:
        """What a demand would use of its guarantee, and when; None: there is no guarantee."""
        key = self._whose(demand)
        if key not in self._guaranteed:
            return None
        level, units = self.level(demand.tier), self._units(demand)
        most, use = self._guaranteed[key], self._use_of(key, level)
        return Part(level, units, windows_left(use, most - units, found.window))

    def has(self, booking: str) -> bool:
        """True for a start that is counted."""
        return booking in self._counted_as

    def found(self, booking: str) -> Fit:
        """A start that is counted."""
        return self._counted_as[booking][1]

    def whose(self, booking: str) -> tuple[Whose, ...]:
        """The tenant and the classes of a start that is counted."""
        return self._counted_as[booking][0]

    def is_counted(self, booking: str) -> bool:
        """True for a counted start that is inside in all of its window."""
        counted = self._counted_as.get(booking)
        return counted is not None and counted[2]

    def outgrown(self) -> set[str]:
        """Counted bookings that a higher level has pushed out since."""
        found = set()
        for key, parts in self._counted.items():
            most = self._guaranteed[key]
            full = {level for level, use in self._use.get(key, {}).items()
                    if int(use.values.max()) > most}  # fmt: skip
            for booking, part in parts.items() if full else ():
                use = self._use_of(key, part.level)
                peaks = (int(use.values[use.rows(*w)].max()) for w in part.windows)
                if part.level in full and any(peak > most for peak in peaks):
                    found.add(booking)
        return found

    @contextmanager
    def lifted(self, booking: str) -> Iterator[None]:
        """Do not count a booking for as long as the context lasts."""
        counted = self._counted_as.get(booking)
        self.lift(booking)
        yield
        if counted is not None:
            self.count(booking, counted[1])

    def lift(self, booking: str) -> None:
        """Undo `count`, if it counted the start."""
        counted = self._counted_as.pop(booking, None)
        for key in counted[0] if counted is not None else ():
            self._change(key, self._counted[key].pop(booking), -1)

    def _whose(self, demand: Demand) -> Whose:
        return (demand.owners[0], demand.gpu_class)

    def _units(self, demand: Demand) -> int:
        key = (demand.gpu_class, demand.shape, demand.count)
        if key not in self._units_of:
            self._units_of[key] = self._state.use(demand).units
        return self._units_of[key]

    def level(self, tier: str) -> Level:
        """The level of a tier's work."""
        if tier not in self._levels:
            rules = self._state.quota.tier(tier)
            self._levels[tier] = (rules.priority, not rules.pausable)
        return self._levels[tier]

    def counts(self, tier: str) -> bool:
        """True when work of the tier counts against guarantees."""
        return self._state.quota.tier(tier).counts

    def _change(self, key: Whose, part: Part, sign: int) -> None:
        for level, use in self._use.get(key, {}).items():
            if level <= part.level:
                for window in part.windows:
                    add(use, sign * part.units, window)

    def _use_of(self, key: Whose, level: Level) -> StepFunction:
        """Use of this level and above over time, made when it is first needed."""
        levels = self._use.setdefault(key, {})
        if level not in levels:
            parts = self._counted.get(key, {}).values()
            rows = [(p.units, window) for p in parts if p.level >= level for window in p.windows]
            levels[level] = self._held.of(key).use_of(self._state, level, rows)
        return levels[level]

    def _held_of(self, rows: HeldWork | Iterable[Held]) -> HeldGuarantees:
        quota = self._state.quota

        # Not by methods of this object, which has the result: memory is not freed by reference
        # counts while two objects refer to each other.
        def level_of(tier: str) -> Level | None:
            rules = quota.tier(tier)
            return (rules.priority, not rules.pausable) if rules.counts else None

        return HeldGuarantees(self._state, rows, self._guaranteed, level_of)

    def count_all(self, planned: Iterable[tuple[str, Fit]]) -> None:
        """`count` for many at once: one by one only where some are not inside."""
        rows: dict[Whose, dict[str, Fit]] = {}
        planned = list(planned)
        if any(found.demand.groups for _, found in planned):
            for booking, found in planned:
                self.count(booking, found)
            return
        for booking, found in planned:
            key = self._whose(found.demand)
            if key in self._guaranteed and self.counts(found.demand.tier):
                rows.setdefault(key, {})[booking] = found
        for key, group in rows.items():
            if not self._count_together(key, group):
                for booking, found in group.items():
                    self.count(booking, found)

    def _count_together(self, key: Whose, group: Mapping[str, Fit]) -> bool:
        """Count all of them if they are inside together; nothing of the tenant is counted yet."""
        parts = {
            booking: Part(self.level(f.demand.tier), self._units(f.demand), (f.window,))
            for booking, f in group.items()
        }
        self._counted[key] = parts
        self._use.pop(key, None)
        levels = {part.level for part in parts.values()}
        most = self._guaranteed[key]
        if all(int(self._use_of(key, level).values.max()) <= most for level in levels):
            self._counted_as.update((booking, ((key,), f, True)) for booking, f in group.items())
            return True
        del self._counted[key]
        self._use.pop(key, None)
        return False


class Strengths:
    """The strength of planned starts during a cycle."""

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        self._state = state
        self.use = GuaranteedUse(state, snapshot)
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

    def has_room_made(self, planned: PlannedStart) -> bool:
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

    def count_all(self, requests: Iterable[Request], kept: Mapping[str, Fit]) -> None:
        """Count the reserved firm and guaranteed starts of earlier cycles, in this order."""
        self.use.count_all(
            (request.booking, kept[request.booking])
            for request in requests
            if request.booking in kept and self.of_before(request) != "expected"
        )

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
        self._walls = _walls_of(snapshot)
        self._held: dict[Whose, list[tuple[str, Level, int, int, int]]] = {}
        for row in snapshot.held if self._walls else ():
            name = state.class_of(row.place.gpu) or ""
            if (row.tenant, name) in self._walls and use.counts(row.quota_tier):
                units = state.units(name, (row.place,))
                times = (row.starts, state.free_from(row.ends))
                held = (row.project, use.level(row.quota_tier), units, *times)
                self._held.setdefault((row.tenant, name), []).append(held)

    def is_kept(self, tenant: str, gpu_class: str) -> bool:
        """True when some of the tenant's guarantee is not lent to all of its projects."""
        return (tenant, gpu_class) in self._walls

    def kept_from(
        self, whose: Whose, project: str, level: Level, at: int, passed: dict[str, int]
    ) -> int:
        """Units of a tenant's guarantee that are kept from a project at an instant. `passed` is
        what its projects get before; held work of lower levels does not count."""
        used = dict(passed)
        for owner, each, units, since, until in self._held.get(whose, ()):
            if each >= level and since <= at < until:
                used[owner] = used.get(owner, 0) + units
        return sum(wall.kept(project, used) for wall in self._walls[whose])


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
