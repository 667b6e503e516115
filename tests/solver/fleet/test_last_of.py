"""Until when so many GPUs of one group are idle."""

from random import Random

import numpy as np
import pytest

from solver import Gpu
from solver.fleet.pool import LEVELS, Columns
from tests.solver.builders import gpus

UNEQUAL = (*gpus(8), *gpus(4, node="n2"), *gpus(8, node="n3", rack="r2"), *gpus(3, node="n4", rack="r2"))


@pytest.mark.parametrize("fleet", [UNEQUAL, (*gpus(6), *gpus(6, node="n2")), (*gpus(8), *gpus(8, node="n2"))])
def test_the_last_end_is_that_of_the_best_group_for_any_count(fleet: tuple[Gpu, ...]) -> None:
    chance = Random(6)  # noqa: S311  made-up seconds
    pool = Columns(fleet)
    for _ in range(50):
        until = np.array([chance.choice((0, 0, chance.randint(1, 90))) for _ in fleet], dtype=np.int64)
        for level in LEVELS:
            groups = [until[[*pool.members(level, n)]] for n in range(len(pool.bounds[level]))]
            for count in range(1, len(fleet) + 2):
                ends = [sorted(each)[-count] for each in groups if len(each) >= count]
                last = max(ends, default=0)
                assert pool.last_of(level, until, count) == last
                for end in (1, 30, max(1, last), last + 1):
                    rows, two = np.array([until, until]), np.array([end, end], dtype=np.int64)
                    bounds = pool.last_of_rows(level, rows, count, two)
                    assert (bounds >= last).all() or (last < end and (bounds < end).all())
                    assert ((bounds >= two) == (last >= end)).all()
