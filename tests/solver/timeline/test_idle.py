"""When each GPU is taken next, from the begin of each stretch: kept through changes."""

from random import Random

import numpy as np

from solver import Place
from solver.fleet.pool import pools_of
from solver.timeline.gpu_calendar import GpuCalendar
from solver.timeline.grid import Grid
from tests.solver.builders import MODELS, gpus, whole


def test_the_next_use_from_each_stretch_is_that_of_the_rows_after_any_changes() -> None:
    chance = Random(4)  # noqa: S311  made-up windows
    pool = pools_of((*gpus(8), *gpus(5, node="n2")), MODELS)["h100"]
    calendar, nothing = GpuCalendar(pool, Grid(0, 10)), GpuCalendar(pool, Grid(0, 10))
    taken: list[tuple[tuple[Place, ...], int, int]] = []

    def check() -> None:
        starts = np.array(sorted(chance.sample(range(1_000), 5)), dtype=np.int64)
        seconds = chance.randint(1, 200)
        ends = calendar.grid.ends(starts + seconds)
        idle = calendar.following.after_rows(calendar.steps.rows_at(starts)) >= ends[:, None]
        assert (idle == (calendar.busy(starts, seconds) == 0)).all()

    for _ in range(300):
        first, begin = chance.randrange(8), chance.randrange(900)
        names = [gpu.id for gpu in pool.gpus[first : first + chance.choice((1, 2, 4, 8))]]
        places = tuple(map(whole, names))
        if chance.random() < 0.3:
            places = (Place(names[0], "1g.10gb", chance.randrange(7), 1),)
        row = (places, begin, begin + chance.randint(1, 300))
        if taken and chance.random() < 0.4:
            calendar.remove(*taken.pop(chance.randrange(len(taken))))
        elif calendar.is_free(*row):
            calendar.add(*row)
            taken.append(row)
        check()
    assert len(taken) > 3
    calendar.copy_columns([0, 3, 9], nothing)
    check()
