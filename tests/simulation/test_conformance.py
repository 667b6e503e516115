"""The model portal is the real one: the same schedules on PostgreSQL, compared at every step."""

import random
from pathlib import Path

import pytest

from tests.builders_allocation import a_lab, a_model, a_policy, a_price_book
from tests.servers.servers import Servers
from tests.simulation import lifecycle
from tests.simulation.real import BothPortals, holds, when
from tests.simulation.schedule import SITES, Schedule
from tests.simulation.world import NOW, World

pytestmark = pytest.mark.faults
# Each takes seconds on the real services.
SEEDS = range(24)


def schedule_on_both(seed: int, folder: Path) -> Schedule:
    """A schedule that has run on the services and on the model."""
    a_model(enrolled=False)
    a_policy()
    a_price_book(valid_from=when(NOW))
    lab = a_lab("lab", gpus=0, money="100000", now=when(NOW))
    rng = random.Random(seed)  # noqa: S311 (a schedule, not a secret)
    sizes = SITES[seed % len(SITES)]
    world = World(rng, folder, sizes, portal_of=lambda found: BothPortals(found, lab))
    schedule = Schedule(world, can_restore=False)
    schedule.run()
    return schedule


@pytest.mark.parametrize("seed", SEEDS)
def test_the_services_do_what_the_model_does(seed: int, real_db: Servers, tmp_path: Path) -> None:
    schedule = schedule_on_both(seed, tmp_path)
    assert schedule.world.violations == [], schedule.story
    assert holds()


def test_a_model_that_does_something_else_is_seen(
    real_db: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "bump", lambda *_: None)
    with pytest.raises(AssertionError):
        schedule_on_both(1, tmp_path)
