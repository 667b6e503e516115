"""The held work of tenants that is inside their guarantees, as tables over time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Index
from solver.model.inner_limits import FOREVER
from solver.model.inputs import Held
from solver.quota.tier_parts import TierParts
from solver.quota.tree import profile_of_arrays
from solver.quota.use import Kind
from solver.state.cycle_state import CycleState
from solver.state.held_work import Grant, HeldWork, Piece, granted_of
from solver.timeline.step_function import StepFunction

Level = tuple[int, bool]
"""The tier's priority; at equal priority what is never paused comes first."""
Window = tuple[int, int]
Whose = tuple[str, str]
"""A tenant, or what its other tiers use of its guarantee, and a class."""


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


class HeldGuarantees:
    """The held work of each tenant that is inside its guarantee: higher levels first, then older
    grants. What does not fit then takes nothing."""

    def __init__(
        self,
        state: CycleState,
        rows: HeldWork | Iterable[Held],
        guarantees: tuple[Mapping[Whose, int], Mapping[Whose, "Changes"]],
        level_of: Callable[[str], Level | None],
        parts: TierParts | None,
        soon: int = 0,
    ) -> None:
        """`guarantees` are the highest of each tenant, and of its other tiers where it has `parts`, and
        those that change with time. `level_of` is the level of a tier, None if it does not count. What
        begins by `soon` counts from now on."""
        guaranteed, self._changes = guarantees
        self._state, self._guaranteed, self._level_of = state, guaranteed, level_of
        self._soon, self._parts = soon, parts
        self._pairs = parts.pairs() if parts is not None else {}
        self._tenants = {others: key for key, others in self._pairs.items()}
        self._work = rows if isinstance(rows, HeldWork) else None
        self._rows = {} if isinstance(rows, HeldWork) else _by_whose(state, rows, guaranteed)
        self._inside: dict[Whose, LevelTable] = {}

    def of(self, key: Whose) -> LevelTable:
        """What of a tenant's work on a class is inside its guarantee, or of that of its other tiers."""
        if key not in self._inside:
            tenant = self._tenants.get(key, key)
            if self._parts is not None and tenant in self._pairs:
                self._inside |= self._inside_with_parts(tenant, self._parts)
            else:
                self._inside[key] = self._inside_of(key)
        return self._inside[key]

    def _inside_with_parts(self, key: Whose, every: TierParts) -> dict[Whose, LevelTable]:
        """The same where other tiers may not use all of a guarantee: what these have inside fits both."""
        keys = (key, self._pairs[key])
        parts = {each: self._withheld(each) for each in keys}
        uses = {each: _sum(self._state, *LevelTable.of(rows)[2:]) for each, rows in parts.items()}
        for row in self._ordered(key):
            mine = keys[:1] if every.key(*key, row.tier) is None else keys
            windows: tuple[Window, ...] = (row.window,)
            for each in mine:
                most = self._guaranteed[each] - row.units
                windows = tuple(left for w in windows for left in windows_left(uses[each], most, w))
            for each in mine:
                for window in windows:
                    add(uses[each], row.units, window)
                    parts[each].append((row.level, row.units, window))
        return {each: LevelTable.of(rows) for each, rows in parts.items()}

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
            _HeldRow(level, granted, amount, (starts, self._state.free_from(ends)), tier)
            for (level, granted, tier, starts, ends), amount in units.items()
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
    tier: str


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
