"""Places by the score that they take from the recent demand mix; moves and packing."""

from dataclasses import replace

import numpy as np
import pytest

from solver.fleet.demand_mix import Mix, mixes_of
from solver.fleet.fragmentation import mismatch
from solver.fleet.pool import Pool
from solver.model.demand import Demand
from solver.model.inputs import Place
from solver.model.policy import Scoring
from solver.placement.gang import place
from solver.placement.repack import make_room, pack
from solver.state.held_work import HeldWork
from tests.solver.builders import H100, MODELS, a_held, a_request, an_ask, gpus


def a_pool(*lines: tuple[str | None, int, int], count: int = 2) -> Pool:
    """H100s of one node after these asks: shape, how many, weight."""
    mix = Mix(tuple((shape, many, 0, weight) for shape, many, weight in lines))
    return Pool("h100", gpus(count), {H100.slug: H100}, mix)


def a_want(profile: str, count: int = 1) -> Demand:
    return Demand("h100", profile, count, "any", 3_600, ())


def taken(pool: Pool, *places: Place) -> np.ndarray:
    busy = np.zeros(len(pool), dtype=np.uint16)
    for each in places:
        busy[pool.column[each.gpu]] |= pool.mask_of(each)
    return busy


def test_the_mix_counts_every_booking_once_on_each_class_it_accepts() -> None:
    fleet = gpus(2) + gpus(2, "h200", "h200-141gb", node="n2")
    held = (a_held("n1-0", booking="k"), a_held("n1-1", booking="k"))
    running_requests = (a_request("b1", an_ask(1, "h100", "h200", profile="1g.10gb")),)
    work = HeldWork(fleet, MODELS)
    work.update(held)
    found = mixes_of(work.kinds, running_requests)
    assert found["h100"].lines == ((None, 2, 0, 512), ("1g.10gb", 1, 0, 512))
    assert found["h200"].lines == (("1g.10gb", 1, 0, 1_024),)


def test_the_mix_does_not_depend_on_the_order_of_the_rows() -> None:
    running_requests = tuple(
        a_request(f"b{n}", an_ask(1 + n % 3, profile=(None, "1g.10gb")[n % 2])) for n in range(9)
    )
    assert mixes_of({}, running_requests) == mixes_of({}, running_requests[::-1])


def test_a_slice_goes_beside_another_and_leaves_an_idle_gpu_whole() -> None:
    pool = a_pool()
    used = Place("n1-1", "1g.10gb", 4, 1)
    assert place(pool, a_want("1g.10gb"), taken(pool, used)) == (Place("n1-1", "1g.10gb", 5, 1),)


def test_what_is_often_asked_for_decides_where_a_slice_goes() -> None:
    often_4g = a_pool(("4g.40gb", 1, 64), count=1)
    often_1g = a_pool(("1g.20gb", 1, 64), count=1)
    nothing = taken(often_4g)
    (beside_4g,) = place(often_4g, a_want("1g.10gb"), nothing) or ()
    (beside_1g,) = place(often_1g, a_want("1g.10gb"), nothing) or ()
    assert beside_4g.start >= 4
    assert beside_1g.start % 2 == 0


def test_a_gpu_that_is_only_sliced_is_used_before_one_that_could_be_given_whole() -> None:
    either, sliced = gpus(2)
    fleet = (either, replace(sliced, mode="sliced"))
    pool = Pool("h100", fleet, {H100.slug: H100}, Mix(((None, 1, 0, 64),)))
    (found,) = place(pool, a_want("2g.20gb"), taken(pool)) or ()
    assert found.gpu == sliced.id


def test_room_is_made_by_the_smallest_move_and_nothing_is_changed() -> None:
    pool = a_pool()
    small, other = Place("n1-0", "1g.10gb", 0, 1), Place("n1-1", "3g.40gb", 0, 4)
    busy = taken(pool, small, other)
    before = busy.copy()
    room = make_room(pool, a_want("7g.80gb"), busy, (small, other), 1)
    assert room is not None
    assert [old for old, _ in room.moves] == [small]
    assert room.place == Place("n1-0", "7g.80gb", 0, 8)
    assert (busy == before).all()


def test_no_room_is_made_by_more_moves_than_allowed_or_of_what_may_not_move() -> None:
    pool = a_pool()
    small, other = Place("n1-0", "1g.10gb", 0, 1), Place("n1-1", "3g.40gb", 0, 4)
    busy = taken(pool, small, other)
    assert make_room(pool, a_want("7g.80gb"), busy, (small, other), 0) is None
    assert make_room(pool, a_want("7g.80gb"), busy, (), 1) is None


def test_slices_are_packed_on_the_fewest_gpus_whatever_order_they_come_in() -> None:
    asks = ["1g.10gb"] * 3 + ["4g.40gb"] * 2 + ["3g.40gb"] + ["7g.80gb"]
    places = pack(a_pool(count=8), asks)
    assert places is not None
    assert len(places) == len(asks)
    assert len({spot.gpu for spot in places}) == 3
    assert pack(a_pool(count=8), asks[::-1]) == places


def test_what_does_not_fit_is_not_packed() -> None:
    assert pack(a_pool(), ["7g.80gb"] * 3) is None
    assert pack(a_pool(), ["unknown"]) is None


@pytest.mark.parametrize(
    ("constant", "value"),
    [("long_run_weight", 1), ("future_requests", 1), ("host_core_cost", 0), ("host_cores_off", 1)],
)
def test_each_constant_of_the_policy_changes_the_score(constant: str, value: int) -> None:
    mix = Mix((("1g.10gb", 1, 0, 64), (None, 1, 16_000, 64)))
    changed = replace(Scoring(), **{constant: value})
    costs = []
    for scoring in (Scoring(), changed):
        pool = Pool("h100", gpus(2), {H100.slug: H100}, mix, scoring).with_mix(mix)
        best = pool.best_tables("1g.10gb")
        cores, units = np.array([64_000]), np.array([56_000])
        off = mismatch(pool.scores.scoring, cores, units, 8_000, 56_000)
        loss = pool.scores.scoring.long_run_weight * best.long_run[0, 0]
        costs.append((int(loss), int(off[0])))
    assert costs[0] != costs[1]
