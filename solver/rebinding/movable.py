"""Reservations that may change their places, with an undo log of the moves."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import Masks
from solver.model.demand import Fit, demand_of_held
from solver.model.inputs import Held, Snapshot
from solver.state.cycle_state import CycleState

Rows = dict[str, Fit]


class MovableReservations:
    """Movable reservations by class and booking; each keeps its window."""

    def __init__(self, state: CycleState) -> None:
        self._state = state
        self._rows: dict[str, Rows] = {}
        self._windows: dict[str, _Windows] = {}
        self._moved: list[tuple[str, Fit]] = []
        self._numbers: dict[str, int] = {}
        self._last = 0
        self._later: tuple[int, Callable[[], Rows]] | None = None

    def add_later(self, read: Callable[[], Rows]) -> None:
        """Note rows that are read when they are first needed. Their order is that of now."""
        self._later = (self._last, read)

    def settle(self) -> None:
        """Add what was to be added later."""
        if self._later is None:
            return
        (mark, read), self._later = self._later, None
        by_class: dict[str, Rows] = {}
        for booking, found in read().items():
            by_class.setdefault(found.demand.gpu_class, {})[booking] = found
        for name, new in by_class.items():
            rows, number = self._rows.get(name, {}), self._numbers
            before = {each: rows[each] for each in rows if number[each] <= mark}
            self._rows[name] = {**before, **new, **rows}
            self._windows.pop(name, None)
        self._numbers.update(dict.fromkeys((name for new in by_class.values() for name in new), 0))

    def add(self, booking: str, found: Fit) -> None:
        """Add a reserved fit."""
        self._settle_for(booking)
        rows = self._rows.setdefault(found.demand.gpu_class, {})
        if booking not in rows:
            self._last += 1
            self._numbers[booking] = self._last
        rows[booking] = found
        self._windows.pop(found.demand.gpu_class, None)

    def take(self, booking: str, gpu_class: str) -> Fit | None:
        """Remove and return a reservation, which moves no more; None: it was not movable."""
        self._settle_for(booking)
        self._windows.pop(gpu_class, None)
        return self._rows.get(gpu_class, {}).pop(booking, None)

    def found(self, booking: str, gpu_class: str) -> Fit | None:
        """The present fit of a reservation; None: it is not movable."""
        self._settle_for(booking)
        return self._rows.get(gpu_class, {}).get(booking)

    def _settle_for(self, booking: str) -> None:
        """Only what is held was to be added later."""
        if self._later is not None and self._state.work.has(booking):
            self.settle()

    def near(self, gpu_class: str, window: tuple[int, int]) -> Rows:
        """The reservations that overlap the window, but those that have victims by now."""
        self.settle()
        rows = self._rows.get(gpu_class, {})
        known = self._windows.get(gpu_class)
        if known is None:
            known = self._windows[gpu_class] = _Windows(rows)
        near = {booking: rows[booking] for booking in known.meeting(window)}
        return {booking: found for booking, found in near.items() if not found.victims}

    def move(self, gpu_class: str, ends: Mapping[str, Fit]) -> None:
        """Record new places, which are reserved already."""
        rows = self._rows[gpu_class]
        self._moved += [(booking, rows[booking]) for booking in ends]
        rows |= ends

    def mark(self) -> int:
        """The number of moves so far, for `moved_since` and `back`."""
        return len(self._moved)

    def moved_since(self, mark: int) -> int:
        """How many reservations have other places than at the mark."""
        return sum(rows[name].places != found.places for name, found, rows in self._before(mark))

    def back(self, mark: int) -> None:
        """Undo the moves since the mark for all that are still movable."""
        changed = list(self._before(mark))
        del self._moved[mark:]
        for booking, _, rows in changed:
            self._state.free(rows[booking])
        for booking, found, rows in changed:
            self._state.reserve(found)
            rows[booking] = found

    def _before(self, mark: int) -> Iterator[tuple[str, Fit, Rows]]:
        """Each reservation moved since the mark: its fit at the mark, and its present rows."""
        first: Rows = {}
        for booking, found in self._moved[mark:]:
            first.setdefault(booking, found)
        for booking, found in first.items():
            rows = self._rows[found.demand.gpu_class]
            if booking in rows:
                yield booking, found, rows


class _Windows:
    """Starts and ends of one class's reservations, which no move changes."""

    def __init__(self, rows: Rows) -> None:
        self._names = tuple(rows)
        self._starts: Ints = np.fromiter((found.starts for found in rows.values()), dtype=np.int64)
        self._ends: Ints = np.fromiter((found.ends for found in rows.values()), dtype=np.int64)

    def meeting(self, window: tuple[int, int]) -> list[str]:
        near = (self._starts < window[1]) & (window[0] < self._ends)
        return [self._names[at] for at in np.flatnonzero(near).tolist()]


def planned_rows_of(state: CycleState, snapshot: Snapshot) -> dict[str, Fit]:
    """Movable rows of bookings that have not begun, by booking in the order of the rows.

    They own their window and shape, not the device. Nothing within the freeze horizon moves, nor a
    booking that is being extended, nor a row that late work or maintenance overlaps.
    """
    kept = {extension.booking for extension in snapshot.extensions}
    frozen = {name: state.frozen_until(name) for name in state.pools}
    gangs: dict[str, list[Held]] = {}
    for row in snapshot.held:
        if row.level is None or row.pinned or row.booking in kept:
            continue
        gpu_class = state.class_of(row.place.gpu)
        if gpu_class is None or row.starts > frozen[gpu_class]:
            gangs.setdefault(row.booking, []).append(row)
    if not gangs:
        return {}
    there: dict[str, list[Held]] = {}
    for row in snapshot.held:
        if row.booking not in gangs:
            there.setdefault(row.place.gpu, []).append(row)
        elif row.level is None:
            kept.add(row.booking)
    fits = _fits(state, gangs)
    found = {name: fits[name] for name in gangs if name not in kept}
    return {
        name: each
        for name, each in found.items()
        if each is not None and not _is_reached_into(state, each, there)
    }


def _fits(state: CycleState, gangs: Mapping[str, list[Held]]) -> dict[str, Fit | None]:
    """Each booking's rows as one fit. Rows that are the same as in an earlier cycle are the same
    fit."""
    before = state.work.fits
    now = state.work.fits = {
        booking: known
        if (known := before.get(booking)) is not None and known[0] == rows
        else (rows, _found(state, rows))
        for booking, rows in gangs.items()
    }
    return {booking: found for booking, (_, found) in now.items()}


def _found(state: CycleState, rows: Sequence[Held]) -> Fit | None:
    """The rows of one booking as one fit; None: they differ, or would count otherwise elsewhere."""
    first = rows[0]
    gpu_class = state.class_of(first.place.gpu)
    if gpu_class is None or first.level is None:
        return None
    alike = {(row.starts, row.ends, row.place.shape, state.class_of(row.place.gpu)) for row in rows}
    if len(alike) > 1:
        return None
    level = first.level if len(rows) > 1 else "any"
    demand = demand_of_held(first, gpu_class, first.ends - first.starts, len(rows), level)
    places = tuple(row.place for row in rows)
    # Models of one class may count a slice differently; such a booking stays.
    is_counted_so = state.units(gpu_class, places) == state.use(demand).units
    return Fit(demand, places, first.starts) if is_counted_so else None


def _is_reached_into(state: CycleState, found: Fit, there: Mapping[str, Sequence[Held]]) -> bool:
    starts, ends = found.window
    gpus = [place.gpu for place in found.places]
    if state.maintenance.away(found.demand.gpu_class, found.window, gpus)[0]:
        return True
    if there.keys().isdisjoint(gpus):
        return False
    pool = state.pools[found.demand.gpu_class]
    return any(
        row.starts < ends
        and starts < state.end_of(row)
        and pool.mask_of(row.place) & pool.mask_of(place)
        and not (row.place.share and place.share)
        for place in found.places
        for row in there.get(place.gpu, ())
    )


class RowMasks:
    """Bits that planned rows of one class take, to be cleared from masks at once."""

    def __init__(self, state: CycleState, rows: Sequence[Fit]) -> None:
        pool = state.pools[rows[0].demand.gpu_class]
        pieces = [(place, found) for found in rows for place in found.places]
        self._columns = np.array([pool.column[place.gpu] for place, _ in pieces], dtype=np.intp)
        # What is left of a shared GPU is unknown: assume nothing is taken.
        self._rest = np.array(
            [0xFFFF ^ pool.mask_of(p) if p.share is None else 0 for p, _ in pieces], dtype=np.uint16
        )
        self._starts: Ints = np.array([found.starts for _, found in pieces], dtype=np.int64)
        self._ends: Ints = np.array([found.ends for _, found in pieces], dtype=np.int64)

    def cleared(self, busy: Masks, window: tuple[int, int]) -> Masks:
        """The masks without the rows that overlap the window."""
        near = (self._starts < window[1]) & (window[0] < self._ends)
        masks = busy.copy()
        np.bitwise_and.at(masks, self._columns[near], self._rest[near])
        return masks
