"""Victims: as few and with as little lost work as possible, against every subset."""

from collections.abc import Iterator
from itertools import combinations
from random import Random
from statistics import mean

import numpy as np
import pytest

from solver.fleet.pool import Bools, Pool, pools_of
from solver.model.demand import Demand
from solver.model.inputs import Place, Tier, Together
from solver.preemption.victims import VictimSearch, victims
from solver.quota.use import Use
from solver.state.running import RunningBooking
from tests.solver.builders import H100, NOON, gpus

SPOT = Tier("spot", pausable=True, counts=False)
SIZES = {"1g.10gb": (1, range(7)), "2g.20gb": (2, (0, 2, 4)), "3g.40gb": (4, (0, 4))}


def a_runner(pool: Pool, name: str, lost: int, *places: Place) -> RunningBooking:
    """A running booking that loses so many GPU-seconds."""
    bits: dict[int, int] = {}
    for place in places:
        column = pool.column[place.gpu]
        bits[column] = bits.get(column, 0) | pool.mask_of(place)
    use = Use(("firm", "p"), "spot", "h100", 1)
    rows = tuple(bits.items())
    granted = (0, 0)
    return RunningBooking(
        name, "firm", SPOT, use, places, rows, NOON + 9, NOON + 9, NOON, NOON, lost, granted
    )


def some_runners(pool: Pool, chance: Random) -> Iterator[RunningBooking]:
    """Up to ten: whole GPUs, gangs of them, slices, some of two GPUs."""
    free = {gpu.id: set(range(8)) for gpu in pool.gpus}
    for number in range(chance.randint(3, 10)):
        places = []
        profile = chance.choice((None, None, *SIZES))
        for gpu in chance.sample(list(free), chance.choice((1, 1, 2, 3))):
            size, starts = (8, (0,)) if profile is None else SIZES[profile]
            start = chance.choice(list(starts))
            if free[gpu] >= set(range(start, start + size)):
                free[gpu] -= set(range(start, start + size))
                places.append(Place(gpu, profile, start, size))
        if places:
            lost = chance.choice((0, 60, 600, 3_600, 9_000, 40_000)) * len(places)
            yield a_runner(pool, f"r{number}", lost + chance.randint(0, 59), *places)


def a_want(chance: Random) -> Demand:
    """Whole GPUs or slices, anywhere or on one node."""
    profile = chance.choice((None, None, "1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"))
    count = chance.randint(1, 4)
    levels: tuple[Together, ...] = ("any", "any", "node")
    return Demand("h100", profile, count, chance.choice(levels), 3_600, ("lab", "p"))


def least(search: VictimSearch, runners: list[RunningBooking]) -> int:
    """The least that any subset loses whose room is enough."""
    found = []
    for size in range(len(runners) + 1):
        for chosen in combinations(range(len(runners)), size):
            gone: Bools = np.zeros(len(runners), dtype=np.bool_)
            gone[list(chosen)] = True
            if search.fits(gone):
                found.append(sum(runners[at].lost for at in chosen))
    return min(found)


def cases(seed: int, count: int) -> Iterator[tuple[VictimSearch, list[RunningBooking]]]:
    """Small rooms in which nothing fits until somebody leaves."""
    chance = Random(seed)  # noqa: S311  made-up rooms
    fleet = gpus(4, node="n1") + gpus(3, node="n2")
    pool = pools_of(fleet, (H100,))["h100"]
    while count:
        runners = list(some_runners(pool, chance))
        taken = np.zeros(len(pool), dtype=np.uint16)
        taken[chance.randrange(len(pool))] = chance.choice((0, 0, 255))
        taken[[column for column in range(len(pool)) if chance.random() < 0.2]] = 255
        search = VictimSearch(pool, a_want(chance), taken, runners)
        nobody, everybody = np.zeros(len(runners), bool), np.ones(len(runners), bool)
        if not search.fits(nobody) and search.fits(everybody):
            count -= 1
            yield search, runners


def chosen(search: VictimSearch, runners: list[RunningBooking]) -> Bools:
    gone = victims(search, [0] * len(runners), lambda _: True)
    assert gone is not None
    return gone


def ratios(seed: int, count: int) -> list[float]:
    """GPU-seconds lost over the least possible, a second more each so that none is nothing."""
    found = []
    for search, runners in cases(seed, count):
        gone = chosen(search, runners)
        lost = sum(runner.lost for runner, flag in zip(runners, gone, strict=True) if flag)
        found.append((lost + 1) / (least(search, runners) + 1))
    return found


def test_what_is_lost_is_close_to_the_least_of_all_subsets() -> None:
    assert mean(ratios(1, 40)) <= 1.05


@pytest.mark.long
def test_the_same_for_very_many_rooms() -> None:
    assert mean(ratios(2, 3_000)) <= 1.05


def test_nobody_of_the_answer_could_stay() -> None:
    for search, runners in cases(3, 40):
        gone = chosen(search, runners)
        for one in np.flatnonzero(gone):
            back = gone.copy()
            back[one] = False
            assert not search.fits(back)


def test_nobody_of_a_later_group_goes_while_the_earlier_are_enough() -> None:
    pool = pools_of(gpus(4), (H100,))["h100"]
    dear = a_runner(pool, "a", 9_999, Place("n1-0", None, 0, 8))
    cheap = a_runner(pool, "b", 1, Place("n1-1", None, 0, 8))
    taken = np.array([0, 0, 255, 255], dtype=np.uint16)
    demand = Demand("h100", None, 1, "any", 60, ("lab", "p"))
    search = VictimSearch(pool, demand, taken, [dear, cheap])
    for groups, expected in (([0, 1], [True, False]), ([0, 0], [False, True])):
        gone = victims(search, groups, lambda _: True)
        assert gone is not None
        assert gone.tolist() == expected


def test_all_of_them_may_be_too_few() -> None:
    pool = pools_of(gpus(2), (H100,))["h100"]
    runner = a_runner(pool, "a", 1, Place("n1-0", None, 0, 8))
    taken = np.array([0, 255], dtype=np.uint16)
    search = VictimSearch(pool, Demand("h100", None, 2, "any", 60, ("lab", "p")), taken, [runner])
    assert victims(search, [0], lambda _: True) is None
