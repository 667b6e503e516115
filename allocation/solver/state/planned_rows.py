"""Rows of bookings that have not begun: they own their window and their shape, not the device.

Inside the freeze horizon nothing is touched, nor what is being extended, nor a row that something
else reaches into: work that is late, or maintenance.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.mig_geometry import Masks
from allocation.solver.model.demand import demand_of_held
from allocation.solver.model.inputs import Held, Snapshot
from allocation.solver.state.working import Fit, Working


def planned_rows_of(working: Working, snapshot: Snapshot) -> dict[str, Fit]:
    """What may be laid anew, as it lies on the calendar now, by booking in the order of the rows.

    `Working.free` and `Working.reserve` take it off and put it back.
    """
    kept = {extension.booking for extension in snapshot.extensions}
    gangs: dict[str, list[Held]] = {}
    for row in snapshot.held:
        gpu_class = working.class_of(row.place.gpu)
        frozen = 0 if gpu_class is None else working.frozen_until(gpu_class)
        may_move = row.level is not None and not row.pinned and row.starts > frozen
        if may_move and row.booking not in kept:
            gangs.setdefault(row.booking, []).append(row)
    if not gangs:
        return {}
    there: dict[str, list[Held]] = {}
    for row in snapshot.held:
        if row.booking not in gangs:
            there.setdefault(row.place.gpu, []).append(row)
        elif row.level is None:
            kept.add(row.booking)
    found = {name: _found(working, rows) for name, rows in gangs.items() if name not in kept}
    return {
        name: each
        for name, each in found.items()
        if each is not None and not _is_reached_into(working, each, there)
    }


def _found(working: Working, rows: Sequence[Held]) -> Fit | None:
    """The rows of one booking as one; None: they are not alike, or count otherwise elsewhere."""
    first = rows[0]
    gpu_class = working.class_of(first.place.gpu)
    if gpu_class is None or first.level is None:
        return None
    alike = {
        (row.starts, row.ends, row.place.shape, working.class_of(row.place.gpu)) for row in rows
    }
    if len(alike) > 1:
        return None
    level = first.level if len(rows) > 1 else "any"
    demand = demand_of_held(first, gpu_class, first.ends - first.starts, len(rows), level)
    places = tuple(row.place for row in rows)
    # Models of one class may count a slice differently: there it stays where it is counted.
    is_counted_so = working.units(gpu_class, places) == working.use(demand).units
    return Fit(demand, places, first.starts) if is_counted_so else None


def _is_reached_into(working: Working, found: Fit, there: Mapping[str, Sequence[Held]]) -> bool:
    starts, ends = found.window
    gpus = [place.gpu for place in found.places]
    if working.maintenance.away(found.demand.gpu_class, found.window, gpus)[0]:
        return True
    pool = working.pools[found.demand.gpu_class]
    return any(
        row.starts < ends
        and starts < working.end_of(row)
        and pool.mask_of(row.place) & pool.mask_of(place)
        and not (row.place.share and place.share)
        for place in found.places
        for row in there.get(place.gpu, ())
    )


class RowMasks:
    """What written rows of one class take, to be taken away from masks at once."""

    def __init__(self, working: Working, rows: Sequence[Fit]) -> None:
        """Where they lie when the cycle begins."""
        pool = working.pools[rows[0].demand.gpu_class]
        pieces = [(place, found) for found in rows for place in found.places]
        self._columns = np.array([pool.column[place.gpu] for place, _ in pieces], dtype=np.intp)
        # Of a shared GPU it is not known what is left: as if nothing were.
        self._rest = np.array(
            [0xFFFF ^ pool.mask_of(p) if p.share is None else 0 for p, _ in pieces], dtype=np.uint16
        )
        self._starts: Ints = np.array([found.starts for _, found in pieces], dtype=np.int64)
        self._ends: Ints = np.array([found.ends for _, found in pieces], dtype=np.int64)

    def cleared(self, busy: Masks, window: tuple[int, int]) -> Masks:
        """The masks without those that meet the window, at least."""
        near = (self._starts < window[1]) & (window[0] < self._ends)
        masks = busy.copy()
        np.bitwise_and.at(masks, self._columns[near], self._rest[near])
        return masks
