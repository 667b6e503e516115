"""What of a tenant is inside its guarantee over time: held work, and planned starts.

Only the tenant's own nominal quota counts, never a project's. Work of tiers that may not use all of it
is counted twice: as the tenant's, and as that of its other tiers.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from solver.cycle.order.held_guarantees import (
    Changes,
    HeldGuarantees,
    Level,
    Whose,
    Window,
    add,
    windows_left,
)
from solver.model.demand import Demand, Fit
from solver.model.inputs import Held, Shape, Snapshot
from solver.quota.limits import limits_at
from solver.quota.tier_parts import TierParts
from solver.state.cycle_state import CycleState
from solver.state.held_work import HeldWork
from solver.timeline.step_function import StepFunction


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
        self._changes = _changes_of(snapshot)
        for key, changes in self._changes.items():
            self._guaranteed[key] = max(units for _, units in changes)
        self._parts = parts = TierParts(snapshot) if snapshot.tier_parts else None
        for key, others in parts.pairs().items() if parts is not None else ():
            if parts is not None and key in self._guaranteed:
                self._changes[others] = tuple(parts.changes(key))
                self._guaranteed[others] = max(units for _, units in self._changes[others])
        self._levels: dict[str, Level] = {}
        changes_of_mode = max((model.switch_seconds for model in snapshot.models), default=0)
        self._soon = state.now + state.policy.freeze_horizon + changes_of_mode
        self._held = self._held_of(state.work)
        self._units_of: dict[tuple[str, Shape, int], int] = {}
        self._counted: dict[Whose, dict[str, Part]] = {}
        self._counted_as: dict[str, tuple[tuple[Whose, ...], Fit, bool]] = {}
        self._use: dict[Whose, dict[Level, StepFunction]] = {}

    def without_planned(self) -> "GuaranteedUse":
        """The same with held work alone."""
        twin = copy(self)
        twin._counted, twin._counted_as, twin._use = {}, {}, {}
        return twin

    def for_queue(self) -> "GuaranteedUse":
        """The same with held work alone; what begins within the freeze horizon has begun.

        A booking that waits counts in the order from its requested start on. If it counted later
        once it is assigned, others would be inside the guarantee for the seconds until then.
        """
        twin = self.without_planned()
        twin._held = self._held_of(self._state.work, self._soon)
        return twin

    def with_held(self, rows: Iterable[Held]) -> "GuaranteedUse":
        """The same with other held work, and nothing planned."""
        twin = self.without_planned()
        twin._held = self._held_of(rows)
        return twin

    def guaranteed(self, tenant: str, gpu_class: str) -> int:
        """Units of the class that the tenant is guaranteed, at some time."""
        return self._guaranteed.get((tenant, gpu_class), 0)

    def keys(self, tenant: str, gpu_class: str, tier: str) -> tuple[Whose, ...]:
        """Whose use work of a tier is: the tenant's, and that of its other tiers if it is one of theirs.
        Nobody's without a guarantee."""
        key = (tenant, gpu_class)
        if not self._guaranteed.get(key):
            return ()
        others = None if self._parts is None else self._parts.key(tenant, gpu_class, tier)
        return (key,) if others is None else (key, others)

    def left(self, tenant: str, gpu_class: str, tier: str, window: Window) -> int:
        """Units of the guarantee that are left for work of a tier in all of a window."""
        keys = self.keys(tenant, gpu_class, tier)
        return min((self.left_of(key, tier, window) for key in keys), default=0)

    def left_of(self, key: Whose, tier: str, window: Window) -> int:
        """Units that are left of one of the `keys` for work of a tier in all of a window."""
        use = self._use_of(key, self.level(tier))
        return self._guaranteed[key] - int(use.values[use.rows(*window)].max(initial=0))

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
        parts, inside = dict[Whose, Part](), True
        for each in found.demand.parts:
            mine = self._parts_of(each, found)
            inside = inside and bool(mine) and all(row.windows == (found.window,) for row in mine.values())
            parts |= mine
        if len(found.demand.parts) > 1 and not inside:
            # A mixed start that is borrowed in one class is borrowed in all.
            return False
        if not parts:
            return False
        self._counted_as[booking] = (tuple(parts), found, inside)
        for key, part in parts.items():
            self._counted.setdefault(key, {})[booking] = part
            self._change(key, part, 1)
        return inside

    def _parts_of(self, demand: Demand, found: Fit) -> dict[Whose, Part]:
        """What a demand would use of its guarantee, and when, by its keys; nothing without one."""
        keys = self.keys(*self._whose(demand), demand.tier)
        level, units = self.level(demand.tier), self._units(demand)
        windows: tuple[Window, ...] = (found.window,)
        for key in keys:
            most, use = self._guaranteed[key], self._use_of(key, level)
            windows = tuple(left for window in windows for left in windows_left(use, most - units, window))
        return dict.fromkeys(keys, Part(level, units, windows))

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
            full = {level for level, use in self._use.get(key, {}).items() if int(use.values.max()) > most}
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

    def _held_of(self, rows: HeldWork | Iterable[Held], soon: int = 0) -> "HeldGuarantees":
        quota = self._state.quota

        # Not by methods of this object, which has the result: memory is not freed by reference
        # counts while two objects refer to each other.
        def level_of(tier: str) -> Level | None:
            rules = quota.tier(tier)
            return (rules.priority, not rules.pausable) if rules.counts else None

        guarantees = (self._guaranteed, self._changes)
        return HeldGuarantees(self._state, rows, guarantees, level_of, self._parts, soon)

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
        if self._parts is not None and key in self._parts.pairs():
            return False
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


def _changes_of(snapshot: Snapshot) -> dict[Whose, Changes]:
    """The guarantees of tenants that change with time, if they are not always zero."""
    found: dict[Whose, Changes] = {}
    rows = [row for row in snapshot.limits if row.parent is None]
    for row in rows if snapshot.guarantees else ():
        key = (row.owner, row.gpu_class)
        dated = [each for each in snapshot.guarantees if (each.owner, each.gpu_class) == key]
        edges = sorted({0, *(at for each in dated for at in (each.starts, each.ends))})
        at_each = [(at, limits_at((row,), dated, at)[0].guaranteed) for at in edges]
        if dated and any(units for _, units in at_each):
            found[key] = tuple(at_each)
    return found
