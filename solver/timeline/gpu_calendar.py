"""Use over time of one GPU class: time × GPU -> busy mask, and thousandths if shared."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import SHARED, WHOLE_MASK, WHOLE_SHARE, Masks
from solver.fleet.pool import Pool
from solver.model.inputs import Place
from solver.timeline.grid import Grid
from solver.timeline.next_taken import NextTaken
from solver.timeline.step_function import Run, StepFunction

_WHOLE = np.uint16(WHOLE_MASK)
_NOT_WHOLE = np.uint16(WHOLE_MASK ^ 0xFFFF)


class Windows(NamedTuple):
    """Bits that are taken of columns in windows, whose ends are on the grid. The serial numbers
    rise, and the same number has the same bits, column and begin."""

    serial: Ints
    column: Ints
    bits: Masks
    starts: Ints
    ends: Ints

    def only(self, which: npt.NDArray[np.bool_]) -> "Windows":
        """Some of them."""
        columns: Iterable[Any] = self
        return Windows._make(each[which] for each in columns)


class Painted(NamedTuple):
    """The rows of a calendar with some windows and nothing else."""

    rows: Windows
    times: Ints
    values: Masks

    def changed(self, rows: Windows, width: int) -> npt.NDArray[np.bool_]:
        """The columns of which a window is new, gone or has another end."""
        old = self.rows
        gone, new = ~_among(old, rows), ~_among(rows, old)
        found = np.zeros(width, dtype=np.bool_)
        found[old.column[gone]] = True
        found[rows.column[new]] = True
        return found


def _among(rows: Windows, others: Windows) -> npt.NDArray[np.bool_]:
    """Which rows the others have too. All windows of a serial number have one end."""
    if not len(others.serial):
        return np.zeros(len(rows.serial), dtype=np.bool_)
    at = np.minimum(others.serial.searchsorted(rows.serial), len(others.serial) - 1)
    found: npt.NDArray[np.bool_] = others.serial[at] == rows.serial
    found &= others.ends[at] == rows.ends
    return found


class GpuCalendar:
    """Taken slots of a class over time, as masks; shares are counted separately."""

    def __init__(self, pool: Pool, grid: Grid, instants: Iterable[int] | Ints = ()) -> None:
        """Empty from the grid's origin on, with rows for the starts and ends in `instants`."""
        self.pool = pool
        self.grid = grid
        self._instants = instants
        self._steps = StepFunction(grid, len(pool), np.uint16, instants)
        self._next: NextTaken | None = None
        self._shares: StepFunction | None = None
        # By the identity of a gang's places, which is kept alive here.
        self._runs: dict[int, tuple[Sequence[Place], Run | None]] = {}
        self.version = 0
        """Number of changes so far."""

    def copy(self) -> "GpuCalendar":
        twin = GpuCalendar.__new__(GpuCalendar)
        twin.pool, twin.grid, twin._instants = self.pool, self.grid, self._instants
        twin._steps = self._steps.copy()
        twin._next = None
        twin._shares = self._shares and self._shares.copy()
        twin._runs = self._runs
        twin.version = self.version
        return twin

    def is_same(self, other: "GpuCalendar") -> bool:
        """True when the same is taken at the same times."""
        shares = self._shares is other._shares or (
            self._shares is not None and self._shares.is_same(other._shares)
        )
        return shares and self._steps.is_same(other._steps)

    @property
    def steps(self) -> StepFunction:
        """The taken slots of each column over time; shares are apart."""
        return self._steps

    @property
    def following(self) -> NextTaken:
        """When a slot of each column is taken next. Shared GPUs count as idle."""
        if self._next is None:
            self._next = NextTaken(self._steps)
        return self._next

    @property
    def has_shares(self) -> bool:
        """True when something is or was shared."""
        return self._shares is not None

    def is_free(self, places: Sequence[Place], starts: int, ends: int) -> bool:
        """True when none of the places is taken at any instant of [starts, ends)."""
        if ends <= starts:
            return True
        taken: dict[int, int] = {}
        rows = self._rows(starts, ends)
        run = None if rows[1] is not None else self.run(places)
        if run is not None:
            return not int(np.bitwise_or.reduce(rows[0][:, run], axis=None)) & WHOLE_MASK
        for place in places:
            column = self.pool.column[place.gpu]
            if column not in taken:
                taken[column] = _taken(rows, column)
            after = self._with(taken[column], place)
            if after is None:
                return False
            taken[column] = after
        return True

    def free_until(self, place: Place, starts: int, ends: int) -> int:
        """End of the free stretch of the place that begins at `starts`, at most `ends`."""
        column = self.pool.column[place.gpu]
        times = self.starts_between(starts, ends - 1).tolist()
        for begin, end in zip(times, [*times[1:], ends], strict=True):
            if self._with(_taken(self._rows(begin, end), column), place) is None:
                return int(begin)
        return ends

    def put(self, places: Sequence[Place], starts: int, ends: int) -> None:
        """Take the places for [starts, ends). ValueError when one of them is not free."""
        self.must_be_free(places, starts, ends)
        self.add(places, starts, ends)

    def must_be_free(self, places: Sequence[Place], starts: int, ends: int) -> None:
        """ValueError when one of the places is taken at some instant of [starts, ends)."""
        if not self.is_free(places, starts, ends):
            raise ValueError(f"not free from {starts} to {ends}: {places}")

    def add(self, places: Sequence[Place], starts: int, ends: int) -> None:
        """Take the places without a check: running work is there whether or not it fits."""
        self.version += 1
        within = self._steps.cut(starts, ends)
        rows = self._steps.values[within]
        run, until = self.run(places), self.grid.end(ends)
        if run is not None:
            rows[:, run] |= _WHOLE
            if self._next is not None:
                self._next.add(run, starts, until)
            return
        for place in places:
            column = self.pool.column[place.gpu]
            if place.share is None:
                taken = rows[:, column]
                taken |= self.pool.geometries[column].mask_of(place)
                if self._next is not None:
                    self._next.add(slice(column, column + 1), starts, until)
            else:
                self._share(column, place.share, starts, ends)

    def load(self, rows: Windows, before: "Painted | None" = None) -> npt.NDArray[np.bool_]:
        """Take these windows without a check, while the calendar is empty but has rows for their
        begins and ends.

        `before` has windows of an earlier calendar: only columns of which one has changed are
        taken anew. Returns these columns.
        """
        self.version += 1
        steps = self._steps
        changed = np.ones(len(self.pool), dtype=np.bool_)
        if before is not None and before.times[0] <= steps.times[0]:
            changed = before.changed(rows, len(self.pool))
            at = before.times.searchsorted(steps.times, side="right") - 1
            # All are in range; with the default mode the rows would go through a buffer.
            np.take(before.values, at, axis=0, out=steps.values, mode="clip")
            steps.values[:, changed] = 0
        picked = changed[rows.column]
        new = rows.only(picked)
        first = steps.times.searchsorted(new.starts).tolist()
        last = steps.times.searchsorted(new.ends).tolist()
        for to, taken, begin, end in zip(new.column.tolist(), new.bits, first, last, strict=True):
            steps.values[begin:end, to] |= taken
        return changed

    def painted(self, rows: Windows) -> "Painted":
        """What was loaded, for later calendars; before anything else is added."""
        return Painted(rows, self._steps.times.copy(), self._steps.values.copy())

    def remove(self, places: Sequence[Place], starts: int, ends: int) -> None:
        """Undo `add` with the same arguments."""
        self.version += 1
        within = self._steps.cut(starts, ends)
        rows = self._steps.values[within]
        run = self.run(places)
        if run is not None:
            rows[:, run] &= _NOT_WHOLE
            if self._next is not None:
                self._next.remove(run, starts)
            return
        for place in places:
            column = self.pool.column[place.gpu]
            if place.share is None:
                taken = rows[:, column]
                taken &= self.pool.geometries[column].mask_of(place) ^ 0xFFFF
                if self._next is not None:
                    self._next.remove(slice(column, column + 1), starts)
            else:
                self._share(column, -place.share, starts, ends)

    def copy_columns(self, columns: list[int], other: "GpuCalendar") -> None:
        """Copy these columns from `other`, which changes at no further instants.

        Shares are the same in both.
        """
        self.version += 1
        mine, its = self._steps, other._steps
        rows = its.times.searchsorted(mine.times, side="right") - 1
        mine.values[:, columns] = its.values[rows[:, None], columns]
        if self._next is not None:
            self._next.remove(np.array(columns, dtype=np.intp), self.grid.origin)

    def starts_between(self, first: int, last: int) -> Ints:
        """Candidate starts: `first`, then each instant up to `last` at which something changes.

        The earliest feasible start is always one of them: a window that can't be moved to an
        earlier second either begins at `first` or touches the end of what is in its way.
        """
        times = self._steps.between(first, last)
        if self._shares is not None:
            times = np.union1d(times, self._shares.between(first, last))
        return np.concatenate([np.array([first], dtype=np.int64), times])

    def busy(self, starts: Ints, duration: int) -> Masks:
        """What is taken at any instant of each window: (len(starts), columns)."""
        masks: Masks = self._steps.over((starts, duration), np.bitwise_or)
        if self._shares is None:
            return masks
        shared = self._shares.over((starts, duration), np.maximum)
        return _joined(masks, shared)

    def busy_without(
        self, others: Iterable[tuple[Iterable[Place], int, int]], starts: int, ends: int
    ) -> Masks:
        """What is taken at any instant of [starts, ends) without the given places: (columns,).

        Only slots; shares are left out.
        """
        within = self._steps.rows(starts, ends)
        values = self._steps.values[within]
        found: Masks = np.bitwise_or.reduce(values, axis=0)
        left: dict[int, Masks] = {}
        for places, since, until in others:
            rows = self._steps.rows(since, until)
            mine = slice(max(0, rows.start - within.start), max(0, rows.stop - within.start))
            for place in places:
                column = self.pool.column[place.gpu]
                rest = left.setdefault(column, values[:, column].copy())
                rest[mine] &= np.uint16(self.pool.mask_of(place) ^ 0xFFFF)
        for column, rest in left.items():
            found[column] = np.bitwise_or.reduce(rest)
        return found

    def _rows(self, starts: int, ends: int) -> tuple[Masks, Ints | None]:
        """The rows that touch [starts, ends), of masks and of shares."""
        masks: Masks = self._steps.values[self._steps.rows(starts, ends)]
        shares = self._shares
        return masks, None if shares is None else shares.values[shares.rows(starts, ends)]

    def run(self, places: Sequence[Place]) -> Run | None:
        """The columns of whole GPUs, adjacent ones as a slice, which are read and written at once;
        None: not all are whole."""
        known = self._runs.get(id(places))
        if known is None:
            known = self._runs[id(places)] = (places, self._run_of(places))
        return known[1]

    def _run_of(self, places: Sequence[Place]) -> Run | None:
        if not places or any(p.profile is not None or p.share is not None for p in places):
            return None
        columns = sorted({self.pool.column[place.gpu] for place in places})
        if len(columns) < len(places):
            return None
        is_run = columns[-1] - columns[0] == len(columns) - 1
        return slice(columns[0], columns[-1] + 1) if is_run else np.array(columns, dtype=np.intp)

    def _with(self, taken: int, place: Place) -> int | None:
        """The mask with the place added; None when it does not fit."""
        if place.share is not None:
            after = max(taken, SHARED) + place.share
            is_free = taken in (0, SHARED) or taken & SHARED
            return after if is_free and after <= SHARED + WHOLE_SHARE else None
        mask = self.pool.mask_of(place)
        return None if taken & (mask | SHARED) else taken | mask

    def _share(self, column: int, share: int, starts: int, ends: int) -> None:
        if self._shares is None:
            self._shares = StepFunction(self.grid, len(self.pool), np.int16, self._instants)
        rows = self._shares.cut(starts, ends)
        self._shares.values[rows, column] += share


def _taken(rows: tuple[Masks, Ints | None], column: int) -> int:
    """The busy mask of one column over all the rows."""
    masks, shares = rows
    mask = np.bitwise_or.reduce(masks[:, column])
    if shares is None:
        return int(mask)
    shared = np.maximum.reduce(shares[:, column], initial=0)
    return int(_joined(mask[None], shared[None])[0])


def idle_from(calendar: GpuCalendar, places: Sequence[Place], first: int, starts: int) -> int:
    """The first second, not before `first`, from which on some of what the places take is idle until
    `starts`, where a row begins."""
    steps, pool = calendar.steps, calendar.pool
    last = steps.row(starts)
    values = steps.values[steps.row(first) : last]
    run = calendar.run(places)
    if run is not None:
        taken = values[:, run] != 0
    else:
        bits = [(pool.column[p.gpu], bit) for p in places for bit in _bits(pool.mask_of(p))]
        taken = (values[:, [at for at, _ in bits]] & np.array([bit for _, bit in bits], np.uint16)) != 0
    if taken[-1].all():
        return starts
    since = np.where(taken.any(axis=0), taken[::-1].argmax(axis=0), last)
    return max(first, int(steps.times[max(0, last - int(since.max()))]))


def _bits(mask: int) -> list[int]:
    """The bits of a mask, one by one."""
    return [1 << number for number in range(mask.bit_length()) if mask >> number & 1]


def _joined(masks: Masks, shared: Ints) -> Masks:
    """Masks including shares; a GPU with both slots and shares taken is full.

    Overcommitted shares count as full.
    """
    flags = np.minimum(shared, WHOLE_SHARE).astype(np.uint16) | np.uint16(SHARED)
    either = np.where(masks == 0, flags, np.uint16(WHOLE_MASK))
    return np.where(shared > 0, either, masks)


Window = tuple[int, int]
