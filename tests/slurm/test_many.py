"""Many bookings on an engine that is killed again and again: nothing runs twice, nothing is lost."""

import random

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.desk import Desk
from tests.slurm.engine import Engine

pytestmark = [pytest.mark.faults, pytest.mark.engines]

BOOKINGS = 200


def names_of(cluster: Cluster, states: str) -> list[str]:
    return [line.split(" ", 4)[4] for line in cluster.jobs(states)]


@pytest.mark.timeout(1500)
def test_each_of_many_bookings_is_one_job(desk: Desk, engine: Engine, cluster: Cluster) -> None:
    """Each turn starts a booking on each GPU, kills the engine at a random moment, and ends them."""
    chance = random.Random(36)  # noqa: S311 (the same test each time)
    begun: set[str] = set()
    for first in range(0, BOOKINGS, 4):
        turn = {f"BK-{first + gpu}": gpu for gpu in range(4)}
        for name, gpu in turn.items():
            desk.book(name, gpu)
        engine.kill_after(chance.uniform(0, 1.5))
        engine.start()
        for name in turn:
            desk.ready(name)
        running = names_of(cluster, "R")
        assert len(running) == len(set(running)) == 4
        begun |= set(running)
        for name in turn:
            desk.change(name, state="release")
        engine.kill_after(chance.uniform(0, 1.0))
        engine.start()
        for name in turn:
            desk.release(name)
        assert cluster.jobs() == []
    # Every booking had one job, and no job was for none.
    ever = names_of(cluster, "all")
    assert len(begun) == BOOKINGS
    assert set(ever) <= begun
    assert cluster.started() == BOOKINGS
