"""When each column of a step function is taken next, on which searches for room are built."""

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools
from solver.timeline.step_function import Run, StepFunction

_MOST_INSTANTS = 2_048
_FIRST_ROWS = 64
_ROWS_AHEAD = 128
_FEW = 4
_NEVER = np.iinfo(np.int64).max


class NextTaken:
    """For some instants and each column, the first second from the instant on at which a bit is
    taken.

    A search reads one row for each start, however long the windows are. What is added later is
    followed; columns of which something is removed are read again before the next answer.
    """

    def __init__(self, steps: StepFunction) -> None:
        """`steps` has the taken bits: (stretches, columns)."""
        self._steps = steps
        self._row: dict[int, int] = {}
        self._forget()
        self._stale: Bools = np.zeros(steps.values.shape[1], dtype=np.bool_)
        self._is_stale = False

    def after(self, instant: int) -> Ints:
        """The second for each column; the largest integer for those that are never taken."""
        self._refresh()
        if instant not in self._row:
            if len(self._row) >= _MOST_INSTANTS:
                self._forget()
            self._append(np.array([instant], dtype=np.int64), self._read_one(instant)[None, :])
        found: Ints = self._next[self._row[instant]]
        return found

    def after_rows(self, rows: Ints) -> Ints:
        """The seconds from the begins of these rows of the step function on: (rows, columns)."""
        self._refresh()
        instants = self._steps.times[rows].tolist()
        if any(instant not in self._row for instant in instants):
            self._add_rows(rows, instants)
        found: Ints = self._next[[self._row[instant] for instant in instants]]
        return found

    def add(self, columns: Run, starts: int, ends: int) -> None:
        """The columns are taken in [starts, ends), too."""
        if self._row:
            since = np.maximum(self._instants, starts)
            since[self._instants >= ends] = _NEVER
            known = self._next[: len(since)]
            known[:, columns] = np.minimum(known[:, columns], since[:, None])

    def remove(self, columns: Run, starts: int) -> None:
        """Something of the columns that was taken from `starts` on has become free."""
        known = self._next[: len(self._instants), columns]
        if self._row and np.maximum.reduce(known, axis=None, initial=0) >= starts:
            self._stale[columns] = True
            self._is_stale = True

    def _refresh(self) -> None:
        """Read again the columns of which something was removed."""
        if self._is_stale:
            columns = np.flatnonzero(self._stale)
            if len(self._instants):
                self._next[: len(self._instants), columns] = self._read(self._instants, columns)
            self._stale[columns] = False
            self._is_stale = False

    def _forget(self) -> None:
        self._row.clear()
        self._instants: Ints = np.zeros(0, dtype=np.int64)
        self._next: Ints = np.zeros((_FIRST_ROWS, self._steps.values.shape[1]), dtype=np.int64)

    def _add_rows(self, rows: Ints, instants: list[int]) -> None:
        """Read what is missing of these rows, which begin at these instants."""
        if len(self._row) + len(rows) + _ROWS_AHEAD > _MOST_INSTANTS:
            self._forget()
        missing = sorted({instant for instant in instants if instant not in self._row})
        if len(missing) <= _FEW:
            for instant in reversed(missing):
                self._append(np.array([instant], dtype=np.int64), self._read_one(instant)[None, :])
            return
        # Later searches ask for what follows.
        begins = self._steps.times[int(rows[0]) : int(rows[-1]) + 1 + _ROWS_AHEAD]
        new = begins[[instant not in self._row for instant in begins.tolist()]]
        self._append(new, self._read(new, slice(None)))

    def _append(self, instants: Ints, following: Ints) -> None:
        known, rows = len(self._row), len(self._row) + len(instants)
        if rows > len(self._next):
            more = np.zeros((rows + _FIRST_ROWS - known, self._next.shape[1]), dtype=np.int64)
            self._next = np.concatenate([self._next[:known], more])
        self._next[known:rows] = following
        self._row.update(zip(instants.tolist(), range(known, rows), strict=True))
        self._instants = np.append(self._instants, instants)

    def _read_one(self, instant: int) -> Ints:
        """The same for all columns and one instant."""
        steps = self._steps
        at = int(steps.times.searchsorted(instant, side="right")) - 1
        following = self._row.get(int(steps.times[at + 1])) if at + 1 < len(steps.times) else None
        if following is not None:
            found: Ints = np.where(steps.values[at] != 0, instant, self._next[following])
            return found
        return np.maximum(self._from(at, np.arange(steps.values.shape[1])), instant)

    def _read(self, instants: Ints, columns: Run) -> Ints:
        steps = self._steps
        first = steps.times.searchsorted(instants, side="right") - 1
        low, after = int(first.min()), int(first.max()) + 1
        taken = steps.values[low:after, columns] != 0
        times = np.where(taken, steps.times[low:after, None], _NEVER)
        later = self._from(after, np.arange(steps.values.shape[1])[columns])
        following = np.minimum.accumulate(np.vstack([later, times[::-1]]), axis=0)[:0:-1]
        found: Ints = np.maximum(following[first - low], instants[:, None])
        return found

    def _from(self, at: int, columns: Ints) -> Ints:
        """The first second of a stretch from this one on in which each column is taken, as far ahead as some
        are not taken yet."""
        steps = self._steps
        found: Ints = np.full(len(columns), _NEVER, dtype=np.int64)
        open_ones, size = np.arange(len(columns)), _FIRST_ROWS
        while at < len(steps.times) and len(open_ones):
            taken = steps.values[at : at + size][:, columns[open_ones]] != 0
            first = taken.argmax(axis=0)
            is_taken = taken[first, np.arange(len(open_ones))]
            found[open_ones[is_taken]] = steps.times[at + first[is_taken]]
            open_ones = open_ones[~is_taken]
            at, size = at + size, 2 * size
        return found
