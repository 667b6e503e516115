"""What of a tenant is inside its guarantee over time: held work, and planned starts.

Only the tenant's own nominal quota counts, never a project's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Index
from solver.model.demand import Demand, Fit
from solver.model.inner_limits import FOREVER
from solver.model.inputs import Held, Shape, Snapshot
from solver.quota.limits import limits_at
from solver.quota.tree import profile_of_arrays
from solver.quota.use import Kind
from solver.state.cycle_state import CycleState
from solver.state.held_work import Grant, HeldWork, Piece, granted_of
from solver.timeline.step_function import StepFunction

Level = tuple[int, bool]
"""The tier's priority; at equal priority what is never paused comes first."""
Window = tuple[int, int]
Whose = tuple[str, str]
"""A tenant and a class."""


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

        return HeldGuarantees(self._state, rows, (self._guaranteed, self._changes), level_of, soon)

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


class LevelTable(NamedTuple):
    """Units in windows as arrays, with the number of each row's level."""

    levels: tuple[Level, ...]
    level: Index
    units: Ints
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, rows: Iterable[tuple[Level, int, Window]]) -> "LevelTable":
        """The table of rows with a level, units and a window."""
        numbers: dict[Level, int] = {}
        found = [(numbers.setdefault(at, len(numbers)), units, *w) for at, units, w in rows]
        table = np.array(found, dtype=np.int64).reshape(-1, 4)
        return cls(tuple(numbers), table[:, 0], table[:, 1], table[:, 2], table[:, 3])

    def with_rows(self, rows: Iterable[tuple[Level, int, Window]]) -> "LevelTable":
        """The table with more rows of a level of their own."""
        more = LevelTable.of(rows)
        columns = zip(self[2:], more[2:], strict=True)
        numbers = np.concatenate([self.level, more.level + len(self.levels)])
        return LevelTable((*self.levels, *more.levels), numbers, *map(np.concatenate, columns))

    def use_of(
        self, state: CycleState, level: Level, more: Sequence[tuple[int, Window]] = ()
    ) -> StepFunction:
        """The use of this level and above over time, with `more` units in windows."""
        mine = np.array([each >= level for each in self.levels], dtype=np.bool_)
        mine = mine[self.level] if len(mine) else np.zeros(0, dtype=np.bool_)
        extra = np.array([(units, *w) for units, w in more], dtype=np.int64).reshape(-1, 3)
        columns = zip((self.units, self.starts, self.ends), extra.T, strict=True)
        return _sum(state, *(np.concatenate([one[mine], two]) for one, two in columns))


Changes = tuple[tuple[int, int], ...]
"""The units that a tenant is guaranteed from each instant on, the first of which is in the past."""

_ABOVE_ALL: Level = (1 << 60, True)


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


class HeldGuarantees:
    """The held work of each tenant that is inside its guarantee: higher levels first, then older
    grants. What does not fit then takes nothing."""

    def __init__(
        self,
        state: CycleState,
        rows: HeldWork | Iterable[Held],
        guarantees: tuple[Mapping[Whose, int], Mapping[Whose, "Changes"]],
        level_of: Callable[[str], Level | None],
        soon: int = 0,
    ) -> None:
        """`guarantees` are the highest of each tenant, and those that change with time. `level_of` is
        the level of a tier, None if it does not count. What begins by `soon` counts from now on."""
        guaranteed, self._changes = guarantees
        self._state, self._guaranteed, self._level_of = state, guaranteed, level_of
        self._soon = soon
        self._work = rows if isinstance(rows, HeldWork) else None
        self._rows = {} if isinstance(rows, HeldWork) else _by_whose(state, rows, guaranteed)
        self._inside: dict[Whose, LevelTable] = {}

    def of(self, key: Whose) -> LevelTable:
        """What of a tenant's work on a class is inside its guarantee."""
        if key not in self._inside:
            self._inside[key] = self._inside_of(key)
        return self._inside[key]

    def _inside_of(self, key: Whose) -> LevelTable:
        most, state = self._guaranteed[key], self._state
        every, withheld = self._all_of(key), self._withheld(key)
        if withheld:
            every = every.with_rows(withheld)
        if int(_sum(state, every.units, every.starts, every.ends).values.max()) <= most:
            return every
        use, parts = _sum(state, *LevelTable.of(withheld)[2:]), withheld
        for row in self._ordered(key):
            for window in windows_left(use, most - row.units, row.window):
                add(use, row.units, window)
                parts.append((row.level, row.units, window))
        return LevelTable.of(parts)

    def _withheld(self, key: Whose) -> "list[tuple[Level, int, Window]]":
        """What the guarantee is lower at each time than at its highest, as use above all levels. Each
        change lasts for good, so that the end of no window is rounded."""
        left, rows = self._guaranteed[key], list[tuple[Level, int, Window]]()
        for since, units in self._changes.get(key, ()):
            rows.append((_ABOVE_ALL, left - units, (since, FOREVER)))
            left = units
        return rows

    def _all_of(self, key: Whose) -> LevelTable:
        """All that counts."""
        if self._work is None:
            rows = self._ordered(key)
            return LevelTable.of((row.level, row.units, row.window) for row in rows)
        table = self._work.table
        levels = [self._level(key, kind) for kind in table.kinds]
        known = tuple(dict.fromkeys(each for each in levels if each is not None))
        number = [-1 if each is None else known.index(each) for each in levels]
        level = np.array(number, dtype=np.intp)[table.kind] if number else table.kind
        at = np.flatnonzero(level >= 0)
        ends = self._state.free_from_all(table.ends[at])
        starts = table.starts[at]
        starts = np.where(starts <= self._soon, np.minimum(starts, self._state.now), starts)
        return LevelTable(known, level[at], table.units[at], starts, ends)

    def _ordered(self, key: Whose) -> "list[_HeldRow]":
        """The same row by row, higher levels and older grants first."""
        units: dict[tuple[Level, Grant, str, int, int], int] = {}
        for piece, level in self._pieces(key):
            starts = min(piece.starts, self._state.now) if piece.starts <= self._soon else piece.starts
            row = (level, piece.granted, piece.tier, starts, piece.ends)
            units[row] = units.get(row, 0) + piece.units
        found = [
            _HeldRow(level, granted, amount, (starts, self._state.free_from(ends)))
            for (level, granted, _, starts, ends), amount in units.items()
        ]
        found.sort(key=lambda row: row.granted)
        found.sort(key=lambda row: row.level, reverse=True)
        return found

    def _pieces(self, key: Whose) -> "Iterable[tuple[Piece | _Loose, Level]]":
        if self._work is None:
            rows: Iterable[Piece | _Loose] = self._rows.get(key, ())
        else:
            table = self._work.table
            mine = [self._level(key, kind) is not None for kind in table.kinds]
            at = np.flatnonzero(np.array(mine, dtype=np.bool_)[table.kind]) if mine else ()
            rows = (self._work.pieces[each] for each in at)
        for row in rows:
            level = self._level_of(row.tier)
            if level is not None:
                yield row, level

    def _level(self, key: Whose, kind: Kind) -> Level | None:
        if (kind.quota_owners[0], kind.gpu_class) != key:
            return None
        return self._level_of(kind.tier)


class _HeldRow(NamedTuple):
    """Units that a tenant with a guarantee holds in a window."""

    level: Level
    granted: Grant
    units: int
    window: Window


class _Loose(NamedTuple):
    """One held row."""

    tier: str
    granted: Grant
    starts: int
    ends: int
    units: int


def _by_whose(
    state: CycleState, rows: Iterable[Held], guaranteed: Mapping[Whose, int]
) -> dict[Whose, list[_Loose]]:
    """The rows of tenants with a guarantee."""
    found: dict[Whose, list[_Loose]] = {}
    for row in rows if guaranteed else ():
        name = state.class_of(row.place.gpu)
        if name is not None and (row.tenant, name) in guaranteed:
            units = state.units(name, (row.place,))
            loose = _Loose(row.quota_tier, granted_of(row), row.starts, row.ends, units)
            found.setdefault((row.tenant, name), []).append(loose)
    return found


def _sum(state: CycleState, units: Ints, starts: Ints, ends: Ints) -> StepFunction:
    """Units in their windows over time."""
    if not len(units):
        return StepFunction(state.grid, None, np.int64)
    times, sums = profile_of_arrays(units, starts, ends, state.grid)
    use = StepFunction(state.grid, None, np.int64, times)
    use.values[:] = sums
    return use


def add(use: StepFunction, units: int, window: Window) -> None:
    """Add units in a window."""
    rows = use.cut(*window)
    use.values[rows] += units


def windows_left(use: StepFunction, most: int, window: Window) -> tuple[Window, ...]:
    """The parts of a window in which at most so many units are in use."""
    rows = use.rows(*window)
    fits = use.values[rows] <= most
    if fits.all():
        return (window,)
    if not fits.any():
        return ()
    times = np.append(np.maximum(use.times[rows], window[0]), window[1])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], fits.astype(np.int8), [0]])))
    return tuple((int(times[first]), int(times[last])) for first, last in edges.reshape(-1, 2).tolist())
