"""The cheapest rearrangement: proven, whole, and the same each time."""

from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest

from solver.fleet.mig_geometry import Masks
from solver.fleet.pool import Pool, pools_of
from solver.model.demand import Demand
from solver.model.inputs import Place
from solver.placement.cp_sat import Movable, Neighbourhood, Rearranged, Window, rearrange
from tests.solver.builders import MODELS, gpus

ONE, TWO, THREE = "1g.10gb", "2g.20gb", "3g.40gb"


def a_pool(count: int) -> Pool:
    return pools_of(gpus(count), MODELS)["h100"]


def a_want(profile: str | None, count: int = 1) -> Demand:
    return Demand("h100", profile, count, "any", 3600, ("lab", "folding"))


def at(gpu: int, profile: str | None, start: int, size: int) -> Place:
    return Place(f"n1-{gpu}", profile, start, size)


def busy_with(pool: Pool, places: list[Place]) -> Masks:
    busy = np.zeros(len(pool), dtype=np.uint16)
    for place in places:
        busy[pool.column[place.gpu]] |= pool.mask_of(place)
    return busy


def cheapest(pool: Pool, demand: Demand, busy: Masks, movable: list[Movable]) -> int | None:
    """By trying everything; `busy` with what is movable."""
    found: int | None = None
    spots = [_spots(pool, item.place.profile) for item in movable]
    goals = _spots(pool, demand.profile)
    fixed = busy.copy()
    for item in movable:
        fixed[pool.column[item.place.gpu]] &= ~np.uint16(pool.mask_of(item.place))
    for ends in product(*spots, *[goals] * demand.count):
        now, legal = fixed.copy(), True
        for place in ends:
            column, mask = pool.column[place.gpu], pool.mask_of(place)
            legal = legal and not now[column] & mask
            now[column] |= mask
        if legal:
            cost = sum(i.cost for i, to in zip(movable, ends, strict=False) if i.place != to)
            found = cost if found is None else min(found, cost)
    return found


def _spots(pool: Pool, profile: str | None) -> list[Place]:
    if profile is None:
        return [Place(gpu.id, None, 0, 8) for gpu in pool.gpus]
    return [
        Place(gpu.id, profile, spot.start, spot.size)
        for gpu in pool.gpus
        for spot in pool.geometry(gpu.id).places(profile)
    ]


def asked(
    pool: Pool,
    demand: Demand,
    movable: list[Movable],
    fixed: list[Place] | None = None,
    columns: Iterable[int] | None = None,
) -> Rearranged | None:
    busy = busy_with(pool, fixed or [])

    def is_free(place: Place, _window: Window) -> bool:
        return not busy[pool.column[place.gpu]] & pool.mask_of(place)

    near = Neighbourhood(pool, tuple(columns or range(len(pool))), is_free)
    return rearrange(near, demand, 0, movable)


def movable_at(place: Place, cost: int, window: Window = (0, 60)) -> Movable:
    return Movable(place, cost, window, f"{place.gpu}/{place.start}")


def test_a_slice_in_the_way_of_a_whole_gpu_moves_beside_another() -> None:
    pool = a_pool(2)
    one, other = at(0, ONE, 0, 1), at(1, ONE, 0, 1)
    found = asked(pool, a_want(None), [movable_at(one, 100), movable_at(other, 30)])
    assert found is not None
    assert found.places == (at(1, None, 0, 8),)
    assert [start for start, _ in found.moves] == [other]
    assert (found.cost, found.proven) == (30, True)


def test_nothing_moves_when_the_ask_fits_already() -> None:
    found = asked(a_pool(2), a_want(THREE), [movable_at(at(0, THREE, 0, 4), 5)])
    assert found is not None
    assert (found.moves, found.cost) == ((), 0)


def test_what_never_fits_is_none() -> None:
    pool = a_pool(1)
    assert asked(pool, a_want(None), [movable_at(at(0, ONE, 0, 1), 1)]) is None


def test_what_may_not_move_stays() -> None:
    pool = a_pool(2)
    found = asked(pool, a_want(None), [movable_at(at(0, ONE, 3, 1), 9)], fixed=[at(1, ONE, 6, 1)])
    assert found is not None
    assert found.places == (at(0, None, 0, 8),)
    assert found.moves[0][1].gpu == "n1-1"


def test_columns_outside_the_neighbourhood_are_an_error() -> None:
    pool = a_pool(2)
    item = movable_at(at(1, ONE, 0, 1), 1)
    with pytest.raises(ValueError, match="outside"):
        asked(pool, a_want(ONE), [item], columns=[0])


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 60))]
)
def test_no_cheaper_rearrangement_exists(seed: int) -> None:
    chance = np.random.default_rng(seed)
    pool = a_pool(2)
    now = np.zeros(2, dtype=np.uint16)
    movable: list[Movable] = []
    for profile in chance.permutation([ONE, TWO, TWO, THREE]).tolist():
        free = [s for s in _spots(pool, profile) if not now[pool.column[s.gpu]] & pool.mask_of(s)]
        if free:
            place = free[int(chance.integers(len(free)))]
            now[pool.column[place.gpu]] |= pool.mask_of(place)
            movable.append(movable_at(place, int(chance.integers(1, 50))))
    demand = a_want(str(chance.choice([TWO, THREE, "7g.80gb"])))
    found = asked(pool, demand, movable)
    least = cheapest(pool, demand, now, movable)
    assert (found.cost if found else None) == least
    assert found is None or found.proven


def test_the_same_question_has_the_same_answer_in_any_order() -> None:
    pool = a_pool(4)
    items = [movable_at(at(gpu, TWO, start, 2), 10) for gpu in range(3) for start in (0, 4)]
    one = asked(pool, a_want(None, 2), items)
    other = asked(pool, a_want(None, 2), items[::-1])
    assert one == other
    assert one is not None
    assert len(one.moves) == 2
