"""The model portal is the real one: the same schedules on PostgreSQL, compared at every step."""

import random
from pathlib import Path

import pytest

from tests.builders_allocation import a_lab, a_model, a_policy, a_price_book
from tests.servers.servers import Servers
from tests.simulation.real import BothPortals, holds, when
from tests.simulation.schedule import SITES, Schedule
from tests.simulation.world import NOW, World

# Each takes seconds on the real services.
SEEDS = range(12)


@pytest.mark.faults
@pytest.mark.parametrize("seed", SEEDS)
def test_the_services_do_what_the_model_does(seed: int, real_db: Servers, tmp_path: Path) -> None:
    a_model(enrolled=False)
    a_policy()
    a_price_book(valid_from=when(NOW))
    lab = a_lab("lab", gpus=0, money="100000", now=when(NOW))
    rng = random.Random(seed)  # noqa: S311 (a schedule, not a secret)
    world = World(
        rng, tmp_path, SITES[seed % len(SITES)], portal_of=lambda found: BothPortals(found, lab)
    )
    schedule = Schedule(world, can_restore=False)
    schedule.run()
    assert world.violations == [], schedule.story
    assert holds()
