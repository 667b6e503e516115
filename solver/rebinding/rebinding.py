"""Late binding: reservations change their places, not their starts, so that a newcomer fits.

A booking owns a start, not a device: its places prove that it fits, and any other places at the
same start prove it as well. This holds for planned starts and for written rows outside the freeze
horizon. No start gets later, and nothing moves unless that lets a booking in or makes a start
earlier.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Counts, Pool
from solver.model.demand import Demand, Fit
from solver.model.inputs import Place, Request, Snapshot, Together
from solver.model.plan import Move
from solver.placement.repack import make_room
from solver.reasons.reason import reason
from solver.rebinding.movable import MovableReservations, RowMasks, planned_rows_of
from solver.rebinding.strategies import (
    Strategy,
    newcomer_at,
    newcomer_first,
    packed,
    proven,
    rebind_with,
)
from solver.state.cycle_state import CycleState

_MOST_SLICES = 200
"""Most slices that are repacked, or examined one by one, for one newcomer."""
_FEW = 3
"""Most of these that are moved."""


Reserved = Mapping[str, Fit]


class _WrittenRows:
    """Written rows that have not begun, and where they are, once they are read.

    An object of its own: what reads later refers to it, and memory is not freed by reference counts
    while two objects refer to each other.
    """

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        self._state, self._snapshot = state, snapshot
        self.rows: dict[str, Fit] = {}
        self.masks: dict[str, RowMasks] = {}

    def read(self) -> dict[str, Fit]:
        """Read all, and return those that may move: not those with victims, pinned or mixed."""
        self.rows = planned_rows_of(self._state, self._snapshot)
        classes: dict[str, list[Fit]] = {}
        for found in self.rows.values():
            classes.setdefault(found.demand.gpu_class, []).append(found)
        self.masks = {name: RowMasks(self._state, rows) for name, rows in classes.items()}
        return {name: found for name, found in self.rows.items() if _may_move(found)}


class Rebinding:
    """Planned starts and written rows that have not begun; all of them are reserved."""

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        """Written rows are read when they are first needed."""
        self._state = state
        self._written = _WrittenRows(state, snapshot)
        self._is_read = False
        self.movable = MovableReservations(state)
        self._failed: dict[tuple[object, ...], int] = {}
        # A quarter of the attempts is for planned starts; newcomers also use what these leave.
        self._left = self._planned_left = state.policy.neighbourhoods // 4
        self._exact_left = 0
        self._is_open = False

    @property
    def attempts(self) -> tuple[int, int, bool]:
        """Attempts that are left, in all and with a proof search, and whether newcomers have had
        theirs."""
        return self._left, self._exact_left, self._is_open

    @attempts.setter
    def attempts(self, left: tuple[int, int, bool]) -> None:
        self._left, self._exact_left, self._is_open = left

    def open_to_newcomers(self) -> None:
        """Allow the attempts for newcomers, once: all planned starts are done."""
        if self._is_open:
            return
        policy, self._is_open = self._state.policy, True
        self._planned_left = self._left
        self._left += policy.neighbourhoods - policy.neighbourhoods // 4
        self._exact_left = policy.exact_neighbourhoods

    @contextmanager
    def without_newcomers(self) -> Iterator[None]:
        """Inside there are only the attempts that planned starts had before newcomers got theirs:
        a newcomer behind others brings them none."""
        if not self._is_open:
            yield
            return
        left = self._left, self._exact_left
        self._left, self._exact_left = self._planned_left, 0
        yield
        self._planned_left = self._left
        self._left, self._exact_left = left

    def add(self, booking: str, found: Fit) -> None:
        """Add a reserved fit. Fits with victims, pinned and mixed ones do not move."""
        if _may_move(found):
            self.movable.add(booking, found)

    def keep(self, planned: Iterable[Request], kept: Mapping[str, Fit]) -> None:
        """Add the kept planned starts of earlier cycles; suspended work stays where it is."""
        for request in planned:
            if request.booking in kept and not request.home:
                self.add(request.booking, kept[request.booking])

    def take(self, booking: str, kept: Mapping[str, Fit]) -> Fit | None:
        """The present fit of a kept planned start, which moves no more until it is added again."""
        before = kept.get(booking)
        if before is None:
            return None
        return self.movable.take(booking, before.demand.gpu_class) or before

    def written(self, booking: str) -> Fit | None:
        """The present fit of a written row that may move; None: it may not."""
        self._read()
        before = self._written.rows.get(booking)
        if before is None:
            return None
        return self.movable.found(booking, before.demand.gpu_class)

    def near(self, gpu_class: str, window: tuple[int, int]) -> Mapping[str, Fit]:
        """The reservations that overlap the window and may move, written ones as well."""
        self._read()
        return self.movable.near(gpu_class, window)

    def last_end(self, gpu_class: str, window: tuple[int, int]) -> int:
        """The last end of what overlaps the window and may move; the window's without any."""
        near = self.near(gpu_class, window).values()
        return max((found.ends for found in near), default=window[1])

    def forget_written(self, booking: str) -> None:
        """Forget the written rows of a booking, which get other ones."""
        if self._is_read:
            self.movable.settle()
            self._written.rows.pop(booking, None)

    def moves(self) -> Iterator[Move]:
        """Moves of written rows."""
        for booking, before in sorted(self._written.rows.items()):
            found = self.movable.found(booking, before.demand.gpu_class)
            if found is not None and found.places != before.places:
                why = reason("laid_anew")
                gpu_class, places = found.demand.gpu_class, (before.places, found.places)
                yield Move(booking, gpu_class, *places, *found.window, (why,))

    def earlier_with_moves(self, demands: Iterable[Demand], found: Fit | None, *instants: int) -> Fit | None:
        """A start at one of `instants` without victims, after moves; else `found`."""
        demands = tuple(demands)
        for starts in instants:
            if found is not None and found.starts <= starts and not found.victims:
                break
            answer = self.place_with_moves(demands, starts)
            if answer is not None:
                return answer
        return found

    def earlier_than_planned(self, request: Request, kept: Fit) -> Fit | None:
        """A fit at the requested start, which frees the kept one; None: the kept one stays
        reserved."""
        state, first = self._state, self._state.first_start(request.earliest)
        if not may_move_others(request) or not self._may_succeed(kept.demand, first):
            return None
        with state.trial(kept.demand.gpu_class) as keep:
            state.free(kept)
            found = self.place_with_moves((kept.demand,), first)
            if found is None:
                state.reserve(kept)
            else:
                keep()
        return found

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Undo all moves made inside the context, and give back their attempts."""
        mark, left = self.movable.mark(), (self._left, self._exact_left)
        yield
        self.movable.back(mark)
        self._left, self._exact_left = left

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """The same while further room is taken: failures found meanwhile are forgotten."""
        hopeless = dict(self._failed)
        with self.kept():
            yield
        self._failed = hopeless

    def place_with_moves(self, demands: Iterable[Demand], starts: int) -> Fit | None:
        """A fit at exactly this start, after moves of other reservations at their own starts.

        The room is free, not reserved. None: no such moves, and nothing is changed.
        """
        for demand in demands:
            if demand.groups:
                continue
            # A limit concerns its owner only, so it proves nothing for others of this kind.
            if self._state.over(demand, starts) is not None or not self._may_succeed(demand, starts):
                continue
            found = self._cleared(demand, starts)
            if found is not None:
                return found
            self._failed[(*demand.kind, starts)] = demand.duration
        return None

    def _may_succeed(self, demand: Demand, starts: int) -> bool:
        """True when it would fit if all movable reservations were elsewhere.

        Room only gets less: a failed shorter attempt rules out a longer one.
        """
        if self._left <= 0:
            return False
        kind = (*demand.kind, starts)
        if self._failed.get(kind, demand.duration + 1) <= demand.duration:
            return False
        if not self._is_read:
            self._is_read = True
            self.movable.add_later(self._written.read)
        if self._may_hold(demand, starts):
            self.movable.settle()
            if self._holds(demand, self._room(demand, starts)):
                return True
        self._failed[kind] = demand.duration
        return False

    def _holds(self, demand: Demand, room: Counts) -> bool:
        sums = self._state.pools[demand.gpu_class].sums(level_of(demand), room)
        return bool(sums.max(initial=0) >= demand.count)

    def _may_hold(self, demand: Demand, starts: int) -> bool:
        """False when it would not fit even if every row could move, which needs no rows read."""
        name, window = demand.gpu_class, (starts, starts + demand.duration)
        masks = self._state.taken_by_unmovable(name, window, self._state.frozen_until(name))
        return self._holds(demand, self._state.pools[name].capacity(demand.shape, masks))

    def _read(self) -> None:
        if not self._is_read:
            self._is_read = True
            self.movable.add_later(self._written.read)
        self.movable.settle()

    def _cleared(self, demand: Demand, starts: int) -> Fit | None:
        """The fit of the first strategy that succeeds, cheapest strategies first."""
        state = self._state
        room = self._room(demand, starts)
        near = self.movable.near(demand.gpu_class, (starts, starts + demand.duration))
        for rows, strategy in self._ways(demand, starts, near, room):
            answer = rebind_with(state, demand, starts, rows, strategy)
            if answer is not None:
                newcomer, ends = answer
                self.movable.move(demand.gpu_class, ends)
                return newcomer
        return None

    def _ways(
        self, demand: Demand, starts: int, near: Reserved, room: Counts
    ) -> Iterator[tuple[Reserved, Strategy]]:
        """Reservations to move and the strategy for each attempt, as many as the policy allows."""
        sets = neighbourhoods(self._state, demand, starts, near, room)
        for each in _greedy(self._state, demand, starts, near, sets):
            if self._left <= 0:
                break
            self._left -= 1
            yield each
        if sets and self._exact_left > 0:
            self._exact_left -= 1
            yield joined(sets, self._state.policy.moved_bookings), proven

    def _room(self, demand: Demand, starts: int) -> Counts:
        """How many of the demand each column holds if all movable reservations were elsewhere."""
        at = np.array([starts], dtype=np.int64)
        masks = self._state.held.busy(demand, at)[0][0]
        bits = self._written.masks.get(demand.gpu_class)
        if bits is not None:
            masks = bits.cleared(masks, (starts, starts + demand.duration))
        return self._state.pools[demand.gpu_class].capacity(demand.shape, masks)


def _may_move(found: Fit) -> bool:
    return not (found.victims or found.demand.pin or found.demand.groups)


def _greedy(
    state: CycleState, demand: Demand, starts: int, near: Reserved, sets: Iterable[Reserved]
) -> Iterator[tuple[Reserved, Strategy]]:
    """Attempts without a proof search."""
    few = _few_moves(state, demand, starts, near)
    if few:
        yield few
    yield from ((rows, newcomer_first) for rows in sets)
    rows = slices(near, _MOST_SLICES)
    if rows:
        yield rows, packed


def _few_moves(
    state: CycleState, demand: Demand, starts: int, near: Reserved
) -> tuple[Reserved, Strategy] | None:
    """For one slice: the fewest moves, judged by its own window."""
    alone = at_one_place(near, _MOST_SLICES)
    if demand.profile is None or demand.count > 1 or not alone:
        return None
    busy, _ = state.all.busy(demand, np.array([starts], dtype=np.int64))
    room = make_room(state.pools[demand.gpu_class], demand, busy[0], tuple(alone), _FEW)
    if room is None or not room.moves:
        return None
    return {n: f for old, _ in room.moves for n, f in alone[old].items()}, newcomer_at(room.place)


def may_move_others(request: Request) -> bool:
    """True when an earlier start is worth moves: not for fixed, paused or mixed bookings, nor for
    those that choose by cost or by end."""
    is_chosen = request.cheapest or bool(request.durations) or bool(request.ask.groups)
    return not (request.fixed or request.paused or is_chosen)


def level_of(demand: Demand) -> Together:
    """The level at which nodes are searched: at least a node."""
    return demand.level if demand.level in ("rack", "any") else "node"


def neighbourhoods(
    state: CycleState, demand: Demand, starts: int, near: Reserved, room: Counts
) -> list[dict[str, Fit]]:
    """Reservations in `near` on sets of nodes that hold the demand without them, smallest sets
    first.

    `room`: how many of the demand each column holds if all movable reservations were elsewhere.
    """
    pool = state.pools[demand.gpu_class]
    node_of = pool.node_of.tolist()
    here: dict[int, dict[str, Fit]] = {}
    for booking, found in near.items():
        for place in found.places:
            here.setdefault(node_of[pool.column[place.gpu]], {})[booking] = found
    rooms = pool.sums("node", room)
    free = _free(state, demand, starts)
    sets: list[tuple[int, list[int], dict[str, Fit]]] = []
    for nodes in _groups(pool, level_of(demand), here):
        sets_left = state.policy.node_sets
        for chosen in islice(_chosen(nodes, here, demand.count, (free, rooms)), sets_left):
            rows = {name: found for node in chosen for name, found in here.get(node, {}).items()}
            if 0 < len(rows) <= state.policy.moved_bookings:
                sets.append((len(rows), chosen, rows))
    return [rows for _, _, rows in sorted(sets, key=lambda each: each[:2])[: state.policy.node_sets]]


def joined(sets: Iterable[Reserved], most: int) -> dict[str, Fit]:
    """The union of the first neighbourhoods of at most `most` bookings."""
    found: dict[str, Fit] = {}
    for rows in sets:
        if len(found.keys() | rows.keys()) <= most:
            found |= rows
    return found


def at_one_place(near: Reserved, most: int) -> dict[Place, dict[str, Fit]]:
    """Single slices by their place, of the first `most` places."""
    found: dict[Place, dict[str, Fit]] = {}
    for booking, each in sorted(near.items()):
        if each.demand.profile is not None and each.demand.count == 1 and len(found) < most:
            found.setdefault(each.places[0], {})[booking] = each
    return found


def slices(near: Reserved, most: int) -> dict[str, Fit]:
    """Slices without a level, the first `most` by start."""
    able = [
        (found.starts, booking)
        for booking, found in near.items()
        if found.demand.profile is not None and found.demand.level == "any"
    ]
    return {booking: near[booking] for _, booking in sorted(able)[:most]}


def _free(state: CycleState, demand: Demand, starts: int) -> Ints:
    """How many of the demand each node holds now."""
    pool = state.pools[demand.gpu_class]
    masks, hosts = state.all.busy(demand, np.array([starts], dtype=np.int64))
    sums = pool.sums("node", pool.capacity(demand.shape, masks[0]))
    if hosts is not None and any(demand.host_resources):
        sums = np.minimum(sums, hosts.row(0).devices(*demand.host_resources))
    return sums


def _groups(pool: Pool, level: Together, here: Mapping[int, object]) -> Iterator[Sequence[int]]:
    """Nodes of each group of the level that has a movable reservation."""
    if level == "node":
        yield from ([node] for node in sorted(here))
        return
    of_node = pool.groups(level)[pool.bounds["node"]].tolist()
    members: dict[int, list[int]] = {}
    for node, group in enumerate(of_node):
        members.setdefault(group, []).append(node)
    for group in sorted({of_node[node] for node in here}):
        yield members[group]


def _chosen(
    nodes: Sequence[int],
    here: Mapping[int, Mapping[str, Fit]],
    count: int,
    capacities: tuple[Ints, Ints],
) -> Iterator[list[int]]:
    """Sets of nodes that are enough: untouched nodes, then those with the fewest moves; then the
    same without the first of these."""
    free, rooms = capacities
    idle = [node for node in nodes if node not in here and free[node]]
    movers = sorted((n for n in nodes if n in here and rooms[n]), key=lambda n: (len(here[n]), n))
    have = int(free[idle].sum())
    for skip in range(len(movers)):
        chosen, total = list(idle), have
        for node in movers[skip:]:
            if total >= count:
                break
            chosen.append(node)
            total += int(rooms[node])
        if total < count:
            return
        yield chosen
