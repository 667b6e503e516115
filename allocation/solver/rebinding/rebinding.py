"""Late binding: what has not begun gives way to a newcomer, at its own start in another place.

A booking owns a start, not a device: its places are a certificate that it fits, and any other
places at the same start are as good a one. That holds for promises and for rows that are written,
until the freeze horizon. Nobody is delayed, and nothing is moved unless that lets somebody in or
makes a start earlier.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from allocation.reasons.reason import reason
from allocation.solver.fleet.groups import Counts
from allocation.solver.model.inputs import Request, Snapshot
from allocation.solver.model.plan import Move
from allocation.solver.placement.gang import Demand
from allocation.solver.placement.repack import make_room
from allocation.solver.rebinding.neighbourhoods import (
    Reserved,
    at_one_place,
    joined,
    level_of,
    neighbourhoods,
    slices,
)
from allocation.solver.rebinding.strategies import (
    Strategy,
    laid_anew,
    newcomer_at,
    newcomer_first,
    packed,
    proven,
)
from allocation.solver.state.movable import MovableReservations
from allocation.solver.state.planned_rows import RowMasks, planned_rows_of
from allocation.solver.state.working import Fit, Working

_MOST_SLICES = 200
"""No more slices are packed closer, or looked at one by one, for one newcomer;"""
_FEW = 3
"""of these no more are moved."""


class Rebinding:
    """What has been promised, in this cycle or before, and what is written and has not begun; all
    of it is reserved where it says."""

    def __init__(self, working: Working, snapshot: Snapshot) -> None:
        """Nothing is promised yet. What is written is read when it is first in the way."""
        self._working, self._snapshot = working, snapshot
        self.movable = MovableReservations(working)
        self._written: dict[str, Fit] | None = None
        self._bits: dict[str, RowMasks] = {}
        self._failed: dict[tuple[object, ...], int] = {}
        # A quarter is for promises, which have a start; what they leave is for newcomers too.
        self._left = working.policy.neighbourhoods // 4
        self._exact_left = 0

    def open_to_newcomers(self) -> None:
        """The promises of earlier cycles have been gone through."""
        policy = self._working.policy
        self._left += policy.neighbourhoods - policy.neighbourhoods // 4
        self._exact_left = policy.exact_neighbourhoods

    def add(self, booking: str, found: Fit) -> None:
        """It is promised or given, and reserved. What stands on the room of others stays there,
        and what is pinned where it is."""
        if not found.over and not found.demand.pin:
            self.movable.add(booking, found)

    def keep(self, kept: Mapping[str, Fit]) -> None:
        """All these promises of earlier cycles."""
        for booking, found in kept.items():
            self.add(booking, found)

    def take(self, booking: str, kept: Mapping[str, Fit]) -> Fit | None:
        """Where a kept promise lies by now; it moves no more until it is added again."""
        before = kept.get(booking)
        if before is None:
            return None
        return self.movable.take(booking, before.demand.gpu_class) or before

    def moves(self) -> Iterator[Move]:
        """What is written and lies elsewhere now."""
        for booking, before in sorted((self._written or {}).items()):
            found = self.movable.found(booking, before.demand.gpu_class)
            if found is not None and found.places != before.places:
                why = reason("laid_anew")
                gpu_class, places = found.demand.gpu_class, (before.places, found.places)
                yield Move(booking, gpu_class, *places, *found.window, (why,))

    def earlier_with_moves(
        self, demands: Iterable[Demand], found: Fit | None, *wished: int
    ) -> Fit | None:
        """A start at one of the wished instants that nobody has to pause for, or what is found."""
        demands = tuple(demands)
        for starts in wished:
            if found is not None and found.starts <= starts and not found.over:
                break
            answer = self.place_with_moves(demands, starts)
            if answer is not None:
                return answer
        return found

    def earlier_than_planned(self, request: Request, kept: Fit) -> Fit | None:
        """Its wished start instead of the promise that is kept and reserved, which is free then;
        None: it stays reserved."""
        working, first = self._working, self._working.first_start(request.earliest)
        if not may_move_others(request) or not self._may_succeed(kept.demand, first):
            return None
        with working.no_room.trial(kept.demand.gpu_class) as keep:
            working.free(kept)
            found = self.place_with_moves((kept.demand,), first)
            if found is None:
                working.reserve(kept)
            else:
                keep()
        return found

    @contextmanager
    def kept(self) -> Iterator[None]:
        """For looking only: afterwards everything lies again where it lay."""
        mark, left = self.movable.mark(), (self._left, self._exact_left)
        yield
        self.movable.back(mark)
        self._left, self._exact_left = left

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """The same while room is taken that is free again afterwards: then there is hope again."""
        hopeless = dict(self._failed)
        with self.kept():
            yield
        self._failed = hopeless

    def place_with_moves(self, demands: Iterable[Demand], starts: int) -> Fit | None:
        """Places for exactly this start, after others have moved to other places at their starts.

        The room found is free, not reserved. None: no such plan, and nothing is changed.
        """
        for demand in demands:
            # A limit is its owner's: it says nothing of others who want the same.
            if self._working.over(demand, starts) is not None or not self._may_succeed(
                demand, starts
            ):
                continue
            found = self._cleared(demand, starts)
            if found is not None:
                return found
            self._failed[(*demand.kind, starts)] = demand.duration
        return None

    def _may_succeed(self, demand: Demand, starts: int) -> bool:
        """Whether it may be tried: there would be room if all that may move were elsewhere.

        Room only gets less: what was in vain for less time is not tried for more.
        """
        if self._left <= 0:
            return False
        kind = (*demand.kind, starts)
        if self._failed.get(kind, demand.duration + 1) <= demand.duration:
            return False
        self._read()
        sums = self._working.pools[demand.gpu_class].sums(
            level_of(demand), self._room(demand, starts)
        )
        if sums.max(initial=0) >= demand.count:
            return True
        self._failed[kind] = demand.duration
        return False

    def _read(self) -> None:
        if self._written is not None:
            return
        self._written = planned_rows_of(self._working, self._snapshot)
        classes: dict[str, list[Fit]] = {}
        for booking, found in self._written.items():
            self.add(booking, found)
            classes.setdefault(found.demand.gpu_class, []).append(found)
        self._bits = {name: RowMasks(self._working, rows) for name, rows in classes.items()}

    def _cleared(self, demand: Demand, starts: int) -> Fit | None:
        """By the first way that finds room, the ways that cost least first."""
        working = self._working
        room = self._room(demand, starts)
        near = self.movable.near(demand.gpu_class, (starts, starts + demand.duration))
        for rows, strategy in self._ways(demand, starts, near, room):
            answer = laid_anew(working, demand, starts, rows, strategy)
            if answer is not None:
                newcomer, ends = answer
                self.movable.move(demand.gpu_class, ends)
                return newcomer
        return None

    def _ways(
        self, demand: Demand, starts: int, near: Reserved, room: Counts
    ) -> Iterator[tuple[Reserved, Strategy]]:
        """Who is laid anew, and how, as often as the policy allows."""
        sets = neighbourhoods(self._working, demand, starts, near, room)
        for each in _greedy(self._working, demand, starts, near, sets):
            if self._left <= 0:
                break
            self._left -= 1
            yield each
        if sets and self._exact_left > 0:
            self._exact_left -= 1
            yield joined(sets), proven

    def _room(self, demand: Demand, starts: int) -> Counts:
        """How many of the want each column would hold if all that may move were elsewhere."""
        at = np.array([starts], dtype=np.int64)
        masks = self._working.busy(demand, at, held_only=True)[0][0]
        bits = self._bits.get(demand.gpu_class)
        if bits is not None:
            masks = bits.cleared(masks, (starts, starts + demand.duration))
        return self._working.pools[demand.gpu_class].capacity(demand.shape, masks)


def _greedy(
    working: Working, demand: Demand, starts: int, near: Reserved, sets: Iterable[Reserved]
) -> Iterator[tuple[Reserved, Strategy]]:
    """The ways that search for no proof."""
    few = _few_moves(working, demand, starts, near)
    if few:
        yield few
    yield from ((rows, newcomer_first) for rows in sets)
    rows = slices(near, _MOST_SLICES)
    if rows:
        yield rows, packed


def _few_moves(
    working: Working, demand: Demand, starts: int, near: Reserved
) -> tuple[Reserved, Strategy] | None:
    """For one slice: the fewest that must go elsewhere, as far as its own window shows."""
    alone = at_one_place(near, _MOST_SLICES)
    if demand.profile is None or demand.count > 1 or not alone:
        return None
    busy, _ = working.busy(demand, np.array([starts], dtype=np.int64))
    room = make_room(working.pools[demand.gpu_class], demand, busy[0], tuple(alone), _FEW)
    if room is None or not room.moves:
        return None
    return {n: f for old, _ in room.moves for n, f in alone[old].items()}, newcomer_at(room.place)


def may_move_others(request: Request) -> bool:
    """Whether an earlier start is worth moves: what is chosen by its cost or its end need not be
    soon, and who was paused goes on where there is room."""
    is_chosen = request.cheapest or bool(request.durations)
    return not (request.fixed or request.paused or is_chosen)
