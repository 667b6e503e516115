"""Optimal rearrangements of small neighbourhoods by CP-SAT: the cheapest moves so that a demand
fits.

One worker, a fixed seed, and a limit on deterministic work instead of seconds: the same input gives
the same answer on every machine. OR-Tools is imported only here and only when needed, because it is
larger than the rest of the solver.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from solver.fleet.pool import Pool
from solver.model.demand import Demand
from solver.model.inputs import SLOTS_PER_GPU, Place, Together
from solver.model.ordering import place_order
from solver.timeline.host_calendar import Free

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

WORK = 2.0
"""CP-SAT's deterministic measure of effort, about a second on an ordinary machine."""
_BITS = 16
_ASK = ""

Window = tuple[int, int]
IsFree = Callable[[Place, Window], bool]
"""True when no fixed work takes the place at any instant of [starts, ends)."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A slice or GPU that may move, in the same shape, for `cost` (more than zero); needed in
    `window`.

    Members of one `gang` stay together at its `level`. Each needs `host_resources` of its node:
    cores (thousandths) and memory (MiB).
    """

    place: Place
    cost: int
    window: Window
    gang: str
    level: Together = "any"
    host_resources: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The columns to examine. `free`: what the nodes have in a window next to fixed work; None:
    hosts do not matter."""

    pool: Pool
    columns: tuple[int, ...]
    is_free: IsFree
    free: Callable[[Window], Free] | None = None


@dataclass(frozen=True, slots=True)
class Rearranged:
    """The demand's places once all moves of `ends` are made; `cost` is the sum of the moves.

    `proven`: nothing cheaper exists among the examined columns.
    """

    places: tuple[Place, ...]
    ends: tuple[tuple[Movable, Place], ...]
    cost: int
    proven: bool

    @property
    def moves(self) -> tuple[tuple[Place, Place], ...]:
        """(from, to) of those that move."""
        return tuple((item.place, place) for item, place in self.ends if place != item.place)


def rearrange(
    near: Neighbourhood, demand: Demand, starts: int, movable: Sequence[Movable], work: float = WORK
) -> Rearranged | None:
    """The cheapest rearrangement after which the demand fits from `starts` on; None: none found.

    ValueError: a movable piece is outside the neighbourhood.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415  see above

    model = cp_model.CpModel()
    items = sorted(movable, key=lambda each: (place_order(each.place), each.window))
    if any(near.pool.column[item.place.gpu] not in near.columns for item in items):
        raise ValueError("a movable piece is outside the neighbourhood")
    window = (starts, starts + demand.duration)
    nowhere = Place("", demand.profile, 0, 0)
    asked = Movable(nowhere, 0, window, _ASK, demand.level, demand.host_resources)
    pieces = [_Piece(item, _choice(model, near, item, item.place)) for item in items]
    goes = [_Piece(asked, _choice(model, near, asked, None)) for _ in range(demand.count)]
    _disjoint(model, near.pool, [*pieces, *goes])
    _within_hosts(model, near, [*pieces, *goes])
    _together(model, near.pool, [*pieces, *goes])
    _in_order(model, goes)
    model.minimize(sum(piece.item.cost * (1 - piece.stays) for piece in pieces))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 7
    solver.parameters.max_deterministic_time = work
    # The linear relaxation proves at once that places are too few; without it that takes long.
    solver.parameters.linearization_level = 2
    solver.parameters.cp_model_probing_level = 0
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    ends = tuple((piece.item, piece.chosen(solver)) for piece in pieces)
    return Rearranged(
        places=tuple(sorted((piece.chosen(solver) for piece in goes), key=place_order)),
        ends=ends,
        cost=sum(item.cost for item, place in ends if place != item.place),
        proven=status == cp_model.OPTIMAL,
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece that needs a place, with a variable for each possible one."""

    item: Movable
    choice: "list[tuple[Place, cp_model.IntVar]]"

    @property
    def stays(self) -> Any:  # noqa: ANN401  an expression of CP-SAT
        return sum(chosen for place, chosen in self.choice if place == self.item.place)

    def chosen(self, solver: "cp_model.CpSolver") -> Place:
        return next(place for place, chosen in self.choice if solver.boolean_value(chosen))


def _choice(
    model: "cp_model.CpModel", near: Neighbourhood, item: Movable, home: Place | None
) -> "list[tuple[Place, cp_model.IntVar]]":
    """One variable for each free place of the shape; exactly one is true.

    A piece may always stay where it is.
    """
    found = [
        (place, model.new_bool_var(""))
        for column in near.columns
        for place in _places(near.pool, column, item.place.profile)
        if place != home and near.is_free(place, item.window)
    ]
    if home is not None:
        found.append((home, model.new_bool_var("")))
    model.add_exactly_one([chosen for _, chosen in found])
    return found


def _places(pool: Pool, column: int, profile: str | None) -> Iterator[Place]:
    if not pool.eligible(profile)[column]:
        return
    gpu = pool.gpus[column].id
    if profile is None:
        yield Place(gpu, None, 0, SLOTS_PER_GPU)
        return
    for spot in pool.geometries[column].places(profile):
        yield replace(spot, gpu=gpu)


def _at_once(pieces: Sequence[_Piece]) -> Iterator[tuple[Window, list[_Piece]]]:
    """Pieces that are needed at the same time, for each stretch between two begins."""
    begins = sorted({piece.item.window[0] for piece in pieces})
    ends = max((piece.item.window[1] for piece in pieces), default=0)
    for begin, end in pairwise([*begins, ends]):
        here = [p for p in pieces if p.item.window[0] <= begin < p.item.window[1]]
        yield (begin, max(end, begin + 1)), here


def _disjoint(model: "cp_model.CpModel", pool: Pool, pieces: Sequence[_Piece]) -> None:
    """Every bit of every GPU is taken at most once at a time."""
    for _, here in _at_once(pieces):
        users: dict[tuple[int, int], list[Any]] = {}
        for piece in here:
            for place, chosen in piece.choice:
                column, mask = pool.column[place.gpu], pool.mask_of(place)
                for bit in range(_BITS):
                    if mask >> bit & 1:
                        users.setdefault((column, bit), []).append(chosen)
        for key in sorted(users):
            model.add_at_most_one(users[key])


def _within_hosts(model: "cp_model.CpModel", near: Neighbourhood, pieces: Sequence[_Piece]) -> None:
    """No node gives more cores or memory than it has next to fixed work."""
    if near.free is None or not any(any(piece.item.host_resources) for piece in pieces):
        return
    nodes = near.pool.node_of
    for window, here in _at_once(pieces):
        free = near.free(window)
        users: dict[int, list[tuple[Any, tuple[int, int]]]] = {}
        for piece in here:
            for place, chosen in piece.choice:
                node = int(nodes[near.pool.column[place.gpu]])
                users.setdefault(node, []).append((chosen, piece.item.host_resources))
        for node in sorted(users):
            for at, most in enumerate((free.cores, free.memory)):
                model.add(sum(each[at] * chosen for chosen, each in users[node]) <= int(most[node]))


def _together(model: "cp_model.CpModel", pool: Pool, pieces: Sequence[_Piece]) -> None:
    """Every gang is in one group of its level."""
    groups_of: dict[str, dict[int, Any]] = {}
    for piece in pieces:
        if piece.item.level == "any":
            continue
        groups = pool.groups(piece.item.level)
        mine = groups_of.setdefault(piece.item.gang, {})
        for place, chosen in piece.choice:
            group = int(groups[pool.column[place.gpu]])
            if group not in mine:
                mine[group] = model.new_bool_var("")
            model.add_implication(chosen, mine[group])
    for mine in groups_of.values():
        model.add_at_most_one(mine.values())


def _in_order(model: "cp_model.CpModel", goes: Sequence[_Piece]) -> None:
    """Members of the demand are alike, so only one order of them is examined."""
    for one, other in pairwise(goes):
        model.add(
            sum(at * chosen for at, (_, chosen) in enumerate(one.choice))
            <= sum(at * chosen for at, (_, chosen) in enumerate(other.choice))
        )
