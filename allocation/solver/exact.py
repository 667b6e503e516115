"""Proven optima for small neighbourhoods by CP-SAT: the cheapest moves after which an ask fits.

One worker, a fixed seed, and a limit that counts work instead of seconds: the same input gives the
same answer on every machine. OR-Tools is imported here and nowhere else, and only when it is
needed: it is larger than the rest of the solver.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from allocation.solver.ordering import place_order
from allocation.solver.placement import Want
from allocation.solver.topology import Pool
from allocation.solver.types import SLOTS_PER_GPU, Place

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

WORK = 2.0
"""CP-SAT's own measure of effort, about a second on a usual machine."""
_BITS = 16


IsFree = Callable[[Place, int], bool]
"""Whether nothing that stays takes the place in so many seconds from now."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A slice or GPU that may go elsewhere in the same shape for `cost` (more than nothing), and
    will be needed for `seconds` more."""

    place: Place
    cost: int
    seconds: int


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
    pool: Pool, want: Want, movable: Sequence[Movable], columns: Sequence[int], is_free: IsFree
) -> Rearranged | None:
    """The cheapest rearrangement inside `columns` after which the want fits; None: there is none.

    The want's level is not looked at: choose columns of one group. ValueError: something movable
    lies elsewhere.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415  see above

    model = cp_model.CpModel()
    items = sorted(movable, key=lambda each: place_order(each.place))
    if any(pool.column[item.place.gpu] not in columns for item in items):
        raise ValueError("what is movable lies outside the neighbourhood")
    spots = _Spots(model, pool, sorted(columns), is_free)
    stay = [spots.choice(item.place.profile, item.seconds, item.place) for item in items]
    goes = [spots.choice(want.profile, want.duration) for _ in range(want.count)]
    _disjoint(model, pool, [*stay, *goes])
    _in_order(model, goes)
    home = [_at_home(item, choice) for item, choice in zip(items, stay, strict=True)]
    model.minimize(
        sum(item.cost * (1 - at_home) for item, at_home in zip(items, home, strict=True))
    )
    return _solved(cp_model, model, items, stay, goes)


Choice = list[tuple[Place, "cp_model.IntVar"]]


@dataclass(frozen=True, slots=True)
class _Spots:
    """The legal places of the neighbourhood."""

    model: "cp_model.CpModel"
    pool: Pool
    columns: Sequence[int]
    is_free: IsFree

    def choice(self, profile: str | None, seconds: int, home: Place | None = None) -> Choice:
        """One variable for each place of the shape that is free for so long; exactly one is true.

        Where something is now, it may stay, whatever comes after it.
        """
        found = [
            (place, self.model.new_bool_var(""))
            for column in self.columns
            for place in self._places(column, profile)
            if place != home and self.is_free(place, seconds)
        ]
        if home is not None:
            found.append((home, self.model.new_bool_var("")))
        self.model.add_exactly_one([chosen for _, chosen in found])
        return found

    def _places(self, column: int, profile: str | None) -> Iterator[Place]:
        pool = self.pool
        if not pool.eligible(profile)[column]:
            return
        gpu = pool.gpus[column].id
        if profile is None:
            yield Place(gpu, None, 0, SLOTS_PER_GPU)
            return
        for spot in pool.geometries[column].places(profile):
            yield replace(spot, gpu=gpu)


def _disjoint(model: "cp_model.CpModel", pool: Pool, choices: Sequence[Choice]) -> None:
    """Every bit of every GPU is taken at most once."""
    users: dict[tuple[int, int], list[Any]] = {}
    for choice in choices:
        for place, chosen in choice:
            column, mask = pool.column[place.gpu], pool.mask_of(place)
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
