"""The cheapest rearrangement: proven, whole, and the same each time."""

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
import pytest

from solver.fleet.mig_geometry import Masks
from solver.fleet.pool import Pool, pools_of
from solver.model.demand import Demand
from solver.model.inputs import Place, Together
from solver.placement.rearrange import Movable, Neighbourhood, Rearranged, Window, rearrange
from solver.timeline.host_calendar import Free
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


ROW = (gpus(2), gpus(2, node="n2"))


def arrangements(pieces: list[Movable], goes: int) -> Iterator[tuple[int, tuple[Place, ...]]]:
    """Every legal arrangement of single GPUs on two nodes with two each, with its cost, by trying all."""
    pool = pools_of((*ROW[0], *ROW[1]), MODELS)["h100"]
    for ends in product([Place(gpu.id, None, 0, 8) for gpu in pool.gpus], repeat=len(pieces)):
        both = [*zip(pieces, ends, strict=True)]
        meets = [
            (one, other)
            for at, one in enumerate(both)
            for other in both[:at]
            if one[0].window[0] < other[0].window[1] and other[0].window[0] < one[0].window[1]
        ]
        nodes: dict[str, set[str]] = {}
        for piece, place in both:
            if piece.level == "node":
                nodes.setdefault(piece.gang, set()).add(place.gpu[:2])
        cores = [
            sum(
                p.host_resources[0] for p, to in both if to.gpu[:2] == node and p.window[0] <= t < p.window[1]
            )
            for node in ("n1", "n2")
            for t in sorted({each for piece in pieces for each in piece.window})
        ]
        is_legal = all(one[1].gpu != other[1].gpu for one, other in meets)
        if is_legal and all(len(each) == 1 for each in nodes.values()) and max(cores) <= CORES:
            yield sum(p.cost for p, to in both[goes:] if p.place != to), ends


CORES = 4_000
LEVELS: tuple[Together, Together] = ("any", "node")


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 300))]
)
def test_windows_gangs_and_cores_are_kept_at_the_least_cost(seed: int) -> None:
    chance = np.random.default_rng(seed)
    pool = pools_of((*ROW[0], *ROW[1]), MODELS)["h100"]
    count, level = int(chance.integers(1, 3)), LEVELS[int(chance.integers(2))]
    cores = (int(chance.integers(0, 3)) * 1_000, 0)
    demand = Demand("h100", None, count, level, 40, ("lab", "folding"), cores=cores[0])
    movable = drawn(chance)
    member = Movable(Place("", None, 0, 0), 0, (10, 50), "", level, cores)
    legal = [cost for cost, _ in arrangements([*[member] * count, *movable], count)]
    full = Free(np.full(2, CORES, dtype=np.int64), np.full(2, 1 << 20, dtype=np.int64))
    near = Neighbourhood(pool, tuple(range(4)), lambda _place, _window: True, lambda _window: full)
    found = rearrange(near, demand, 10, movable)
    assert (found.cost if found else None) == min(legal, default=None)
    if found is not None:
        assert found.proven
        ends = (*found.places, *(place for _, place in found.ends))
        items = [*[member] * count, *(item for item, _ in found.ends)]
        assert (found.cost, ends) in list(arrangements(items, count))


def drawn(chance: np.random.Generator) -> list[Movable]:
    """Up to four GPUs in use at some time, some of them by gangs of two on one node; legal together."""
    movable: list[Movable] = []
    for number in range(int(chance.integers(1, 5))):
        begins = int(chance.integers(0, 40))
        window = (begins, begins + int(chance.integers(10, 50)))
        size = int(chance.integers(1, 3))
        level: Together = "node" if size == 2 else "any"
        host = (int(chance.integers(0, 3)) * 1_000, 0)
        more = [
            Movable(Place(gpu, None, 0, 8), int(chance.integers(1, 20)), window, f"g{number}", level, host)
            for gpu in chance.permutation(["n1-0", "n1-1", "n2-0", "n2-1"]).tolist()[:size]
        ]
        if len(movable) + size <= 4 and any(cost == 0 for cost, _ in arrangements([*movable, *more], 0)):
            movable += more
    return movable


def test_too_many_for_too_few_gpus_are_found_out_at_once() -> None:
    pool = a_pool(8)
    items = [movable_at(at(gpu, None, 0, 8), 1) for gpu in range(7)]
    near = Neighbourhood(pool, tuple(range(8)), lambda _place, _window: True)
    assert rearrange(near, a_want(None, 2), 0, items, most_choices=0) is None


def test_a_search_that_is_cut_off_says_that_its_answer_is_not_proven() -> None:
    pool = a_pool(2)
    one, other = movable_at(at(0, ONE, 0, 1), 100), movable_at(at(1, ONE, 0, 1), 30)
    near = Neighbourhood(pool, (0, 1), lambda _place, _window: True)
    cut = rearrange(near, a_want(None), 0, [one, other], most_choices=2)
    assert cut is not None
    assert not cut.proven


def test_the_same_question_has_the_same_answer_in_any_order() -> None:
    pool = a_pool(4)
    items = [movable_at(at(gpu, TWO, start, 2), 10) for gpu in range(3) for start in (0, 4)]
    one = asked(pool, a_want(None, 2), items)
    other = asked(pool, a_want(None, 2), items[::-1])
    assert one == other
    assert one is not None
    assert len(one.moves) == 2
