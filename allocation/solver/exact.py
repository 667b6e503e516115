"""Proven optima for small neighbourhoods by CP-SAT: the cheapest moves after which an ask fits.

One worker, a fixed seed, and a limit that counts work instead of seconds: the same input gives the
same answer on every machine. OR-Tools is imported here and nowhere else, and only when it is
needed: it is larger than the rest of the solver.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from allocation.solver.geometry import Masks
from allocation.solver.ordering import place_order
from allocation.solver.placement import Want
from allocation.solver.topology import Pool
from allocation.solver.types import Place

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

WORK = 2.0
"""CP-SAT's own measure of effort, about a second on a usual machine."""
_BITS = 16


@dataclass(frozen=True, slots=True)
class Movable:
    """A slice or GPU that may go elsewhere in the same shape, for `cost` (more than nothing)."""

    place: Place
    cost: int


@dataclass(frozen=True, slots=True)
class Rearranged:
    """Where the ask goes once each of the moves (from, to) is made; what they cost together.

    `proven`: nothing cheaper exists among the columns that were looked at.
    """

    places: tuple[Place, ...]
    moves: tuple[tuple[Place, Place], ...]
    cost: int
    proven: bool


def rearrange(
    pool: Pool, want: Want, busy: Masks, movable: Sequence[Movable], columns: Sequence[int]
) -> Rearranged | None:
    """The cheapest rearrangement inside `columns` after which the want fits; None: there is none.

    `busy` holds what is taken, what is movable among it; it is not changed. The want's level is
    not looked at: choose columns of one group. ValueError: something movable lies elsewhere.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415  see above

    model = cp_model.CpModel()
    items = [*sorted(movable, key=lambda each: place_order(each.place))]
    here = frozenset(columns)
    if any(pool.column[item.place.gpu] not in here for item in items):
        raise ValueError("what is movable lies outside the neighbourhood")
    stay = [_choices(model, pool, here, item.place.profile) for item in items]
    goes = [_choices(model, pool, here, want.profile) for _ in range(want.count)]
    for choice in (*stay, *goes):
        model.add_exactly_one([chosen for _, chosen in choice])
    _disjoint(model, pool, _fixed(pool, busy, items, here), [*stay, *goes])
    _in_order(model, goes)
    home = [_at_home(item, choice) for item, choice in zip(items, stay, strict=True)]
    model.minimize(
        sum(item.cost * (1 - at_home) for item, at_home in zip(items, home, strict=True))
    )
    return _solved(cp_model, model, items, stay, goes)


Choice = list[tuple[Place, "cp_model.IntVar"]]


def _choices(
    model: "cp_model.CpModel", pool: Pool, columns: frozenset[int], profile: str | None
) -> Choice:
    """One variable for each legal place of the shape."""
    return [
        (place, model.new_bool_var(""))
        for column in sorted(columns)
        for place in _places(pool, column, profile)
    ]


def _places(pool: Pool, column: int, profile: str | None) -> Iterator[Place]:
    if not pool.eligible(profile)[column]:
        return
    gpu = pool.gpus[column].id
    if profile is None:
        yield Place(gpu, None, 0, 8)
        return
    for spot in pool.geometries[column].places(profile):
        yield replace(spot, gpu=gpu)


def _fixed(
    pool: Pool, busy: Masks, items: Sequence[Movable], columns: frozenset[int]
) -> dict[int, int]:
    """What is taken of each column by what can't be moved."""
    fixed = {column: int(busy[column]) for column in columns}
    for item in items:
        fixed[pool.column[item.place.gpu]] &= ~pool.mask_of(item.place)
    return fixed


def _disjoint(
    model: "cp_model.CpModel", pool: Pool, fixed: dict[int, int], choices: Sequence[Choice]
) -> None:
    """Every bit of every GPU is taken at most once."""
    users: dict[tuple[int, int], list[Any]] = {}
    for choice in choices:
        for place, chosen in choice:
            column, mask = pool.column[place.gpu], pool.mask_of(place)
            if mask & fixed[column]:
                model.add(chosen == 0)
                continue
            for bit in range(_BITS):
                if mask >> bit & 1:
                    users.setdefault((column, bit), []).append(chosen)
    for key in sorted(users):
        model.add_at_most_one(users[key])


def _in_order(model: "cp_model.CpModel", goes: Sequence[Choice]) -> None:
    """Members of the ask are alike: only one order of them is looked at."""
    for one, other in pairwise(goes):
        model.add(
            sum(at * chosen for at, (_, chosen) in enumerate(one))
            <= sum(at * chosen for at, (_, chosen) in enumerate(other))
        )


def _at_home(item: Movable, choice: Choice) -> Any:  # noqa: ANN401  an expression of CP-SAT
    return sum(chosen for place, chosen in choice if place == item.place)


def _solved(
    cp_model: Any,  # noqa: ANN401  the module
    model: "cp_model.CpModel",
    items: Sequence[Movable],
    stay: Sequence[Choice],
    goes: Sequence[Choice],
) -> Rearranged | None:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 7
    solver.parameters.max_deterministic_time = WORK
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None

    def chosen(choice: Choice) -> Place:
        return next(place for place, variable in choice if solver.boolean_value(variable))

    ends = [(item, chosen(choice)) for item, choice in zip(items, stay, strict=True)]
    moves = tuple((item.place, place) for item, place in ends if place != item.place)
    return Rearranged(
        places=tuple(sorted((chosen(choice) for choice in goes), key=place_order)),
        moves=moves,
        cost=sum(item.cost for item, place in ends if place != item.place),
        proven=status == cp_model.OPTIMAL,
    )
