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
from allocation.solver.placement.gang import Want
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
    Way,
    at_place,
    laid_anew,
    newcomer_first,
    packed,
    proven,
)
from allocation.solver.state.movable import Lying
from allocation.solver.state.planned_rows import Bits, written_of
from allocation.solver.state.working import Found, Working

_MOST_SLICES = 200
"""No more slices are packed closer, or looked at one by one, for one newcomer;"""
_FEW = 3
"""of these no more are moved."""


class Promised:
    """What has been promised, in this cycle or before, and what is written and has not begun; all
    of it is reserved where it says."""

    def __init__(self, working: Working, snapshot: Snapshot) -> None:
        """Nothing is promised yet. What is written is read when it is first in the way."""
        self._working, self._snapshot = working, snapshot
        self.lying = Lying(working)
        self._written: dict[str, Found] | None = None
        self._bits: dict[str, Bits] = {}
        self._hopeless: dict[tuple[object, ...], int] = {}
        # A quarter is for promises, which have a start; what they leave is for newcomers too.
        self._left = working.policy.neighbourhoods // 4
        self._exact_left = 0

    def open_to_newcomers(self) -> None:
        """The promises of earlier cycles have been gone through."""
        policy = self._working.policy
        self._left += policy.neighbourhoods - policy.neighbourhoods // 4
        self._exact_left = policy.exact_neighbourhoods

    def add(self, booking: str, found: Found) -> None:
        """It is promised or given, and reserved. What stands on the room of others stays there,
        and what is pinned where it is."""
        if not found.over and not found.want.pin:
            self.lying.add(booking, found)

    def keep(self, kept: Mapping[str, Found]) -> None:
        """All these promises of earlier cycles."""
        for booking, found in kept.items():
            self.add(booking, found)

    def take(self, booking: str, kept: Mapping[str, Found]) -> Found | None:
        """Where a kept promise lies by now; it moves no more until it is added again."""
        before = kept.get(booking)
        if before is None:
            return None
        return self.lying.take(booking, before.want.gpu_class) or before

    def moves(self) -> Iterator[Move]:
        """What is written and lies elsewhere now."""
        for booking, before in sorted((self._written or {}).items()):
            found = self.lying.found(booking, before.want.gpu_class)
            if found is not None and found.places != before.places:
                why = reason("laid_anew")
                gpu_class, places = found.want.gpu_class, (before.places, found.places)
                yield Move(booking, gpu_class, *places, *found.window, (why,))

    def sooner(self, wants: Iterable[Want], found: Found | None, *wished: int) -> Found | None:
        """A start at one of the wished instants that nobody has to pause for, or what is found."""
        wants = tuple(wants)
        for starts in wished:
            if found is not None and found.starts <= starts and not found.over:
                break
            answer = self.make_way(wants, starts)
            if answer is not None:
                return answer
        return found

    def sooner_than(self, request: Request, kept: Found) -> Found | None:
        """Its wished start instead of the promise that is kept and reserved, which is free then;
        None: it stays reserved."""
        working, first = self._working, self._working.first_start(request.earliest)
        if not may_give_way_to(request) or not self._may_hope(kept.want, first):
            return None
        with working.outlook.on_trial(kept.want.gpu_class) as keep:
            working.free(kept)
            found = self.make_way((kept.want,), first)
            if found is None:
                working.reserve(kept)
            else:
                keep()
        return found

    @contextmanager
    def kept(self) -> Iterator[None]:
        """For looking only: afterwards everything lies again where it lay."""
        mark, left = self.lying.mark(), (self._left, self._exact_left)
        yield
        self.lying.back(mark)
        self._left, self._exact_left = left

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """The same while room is taken that is free again afterwards: then there is hope again."""
        hopeless = dict(self._hopeless)
        with self.kept():
            yield
        self._hopeless = hopeless

    def make_way(self, wants: Iterable[Want], starts: int) -> Found | None:
        """Places for exactly this start, after others have moved to other places at their starts.

        The room found is free, not reserved. None: no such plan, and nothing is changed.
        """
        for want in wants:
            # A limit is its owner's: it says nothing of others who want the same.
            if self._working.over(want, starts) is not None or not self._may_hope(want, starts):
                continue
            found = self._cleared(want, starts)
            if found is not None:
                return found
            self._hopeless[(*want.kind, starts)] = want.duration
        return None

    def _may_hope(self, want: Want, starts: int) -> bool:
        """Whether it may be tried: there would be room if all that may move were elsewhere.

        Room only gets less: what was in vain for less time is not tried for more.
        """
        if self._left <= 0:
            return False
        kind = (*want.kind, starts)
        if self._hopeless.get(kind, want.duration + 1) <= want.duration:
            return False
        self._read()
        sums = self._working.pools[want.gpu_class].sums(level_of(want), self._room(want, starts))
        if sums.max(initial=0) >= want.count:
            return True
        self._hopeless[kind] = want.duration
        return False

    def _read(self) -> None:
        if self._written is not None:
            return
        self._written = written_of(self._working, self._snapshot)
        classes: dict[str, list[Found]] = {}
        for booking, found in self._written.items():
            self.add(booking, found)
            classes.setdefault(found.want.gpu_class, []).append(found)
        self._bits = {name: Bits(self._working, rows) for name, rows in classes.items()}

    def _cleared(self, want: Want, starts: int) -> Found | None:
        """By the first way that finds room, the ways that cost least first."""
        working = self._working
        room = self._room(want, starts)
        near = self.lying.near(want.gpu_class, (starts, starts + want.duration))
        for rows, way in self._ways(want, starts, near, room):
            answer = laid_anew(working, want, starts, rows, way)
            if answer is not None:
                newcomer, ends = answer
                self.lying.move(want.gpu_class, ends)
                return newcomer
        return None

    def _ways(
        self, want: Want, starts: int, near: Reserved, room: Counts
    ) -> Iterator[tuple[Reserved, Way]]:
        """Who is laid anew, and how, as often as the policy allows."""
        sets = neighbourhoods(self._working, want, starts, near, room)
        for each in _greedy(self._working, want, starts, near, sets):
            if self._left <= 0:
                break
            self._left -= 1
            yield each
        if sets and self._exact_left > 0:
            self._exact_left -= 1
            yield joined(sets), proven

    def _room(self, want: Want, starts: int) -> Counts:
        """How many of the want each column would hold if all that may move were elsewhere."""
        at = np.array([starts], dtype=np.int64)
        masks = self._working.busy(want, at, held_only=True)[0][0]
        bits = self._bits.get(want.gpu_class)
        if bits is not None:
            masks = bits.cleared(masks, (starts, starts + want.duration))
        return self._working.pools[want.gpu_class].capacity(want.shape, masks)


def _greedy(
    working: Working, want: Want, starts: int, near: Reserved, sets: Iterable[Reserved]
) -> Iterator[tuple[Reserved, Way]]:
    """The ways that search for no proof."""
    few = _few_moves(working, want, starts, near)
    if few:
        yield few
    yield from ((rows, newcomer_first) for rows in sets)
    rows = slices(near, _MOST_SLICES)
    if rows:
        yield rows, packed


def _few_moves(
    working: Working, want: Want, starts: int, near: Reserved
) -> tuple[Reserved, Way] | None:
    """For one slice: the fewest that must go elsewhere, as far as its own window shows."""
    alone = at_one_place(near, _MOST_SLICES)
    if want.profile is None or want.count > 1 or not alone:
        return None
    busy, _ = working.busy(want, np.array([starts], dtype=np.int64))
    room = make_room(working.pools[want.gpu_class], want, busy[0], tuple(alone), _FEW)
    if room is None or not room.moves:
        return None
    return {n: f for old, _ in room.moves for n, f in alone[old].items()}, at_place(room.place)


def may_give_way_to(request: Request) -> bool:
    """Whether an earlier start is worth moves: what is chosen by its cost or its end need not be
    soon, and who was paused goes on where there is room."""
    is_chosen = request.cheapest or bool(request.durations)
    return not (request.fixed or request.paused or is_chosen)
