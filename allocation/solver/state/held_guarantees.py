"""What of a tenant's held work is inside its guarantee, and when."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.pool import Index
from allocation.solver.model.inputs import Held
from allocation.solver.quota.tree import profile_of_arrays
from allocation.solver.quota.use import Kind
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.held_work import Grant, HeldWork, Piece, granted_of
from allocation.solver.timeline.step_function import StepFunction

Level = tuple[int, bool]
"""The tier's priority; at equal priority what is never paused comes first."""
Window = tuple[int, int]
Whose = tuple[str, str]
"""A tenant and a class."""


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

    def use_of(
        self, state: CycleState, level: Level, more: Sequence[tuple[int, Window]] = ()
    ) -> StepFunction:
        """The use of this level and above over time, with `more` units in windows."""
        mine = np.array([each >= level for each in self.levels], dtype=np.bool_)
        mine = mine[self.level] if len(mine) else np.zeros(0, dtype=np.bool_)
        extra = np.array([(units, *w) for units, w in more], dtype=np.int64).reshape(-1, 3)
        columns = zip((self.units, self.starts, self.ends), extra.T, strict=True)
        return _sum(state, *(np.concatenate([one[mine], two]) for one, two in columns))


class HeldGuarantees:
    """The held work of each tenant that is inside its guarantee: higher levels first, then older
    grants. What does not fit then takes nothing."""

    def __init__(
        self,
        state: CycleState,
        rows: HeldWork | Iterable[Held],
        guaranteed: Mapping[Whose, int],
        level_of: Callable[[str], Level | None],
    ) -> None:
        """`level_of` is the level of a tier, None if it does not count."""
        self._state, self._guaranteed, self._level_of = state, guaranteed, level_of
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
        every = self._all_of(key)
        if int(_sum(state, every.units, every.starts, every.ends).values.max()) <= most:
            return every
        use, parts = _sum(state, *_NOTHING), list[tuple[Level, int, Window]]()
        for row in self._ordered(key):
            for window in windows_left(use, most - row.units, row.window):
                add(use, row.units, window)
                parts.append((row.level, row.units, window))
        return LevelTable.of(parts)

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
        return LevelTable(known, level[at], table.units[at], table.starts[at], ends)

    def _ordered(self, key: Whose) -> "list[_HeldRow]":
        """The same row by row, higher levels and older grants first."""
        units: dict[tuple[Level, Grant, str, int, int], int] = {}
        for piece, level in self._pieces(key):
            row = (level, piece.granted, piece.tier, piece.starts, piece.ends)
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


_NOTHING = (np.zeros(0, dtype=np.int64),) * 3


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
    return tuple(
        (int(times[first]), int(times[last])) for first, last in edges.reshape(-1, 2).tolist()
    )
