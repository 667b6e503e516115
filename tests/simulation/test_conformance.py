"""The model portal is the real one: the same schedules on PostgreSQL, compared at every step."""

import random
import uuid
from pathlib import Path

import pytest

from tests.builders_allocation import a_lab, a_model, a_policy, a_price_book
from tests.servers.servers import Servers
from tests.simulation import lifecycle
from tests.simulation.real import BothPortals, holds, when
from tests.simulation.rows import Wish
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


def test_the_services_move_what_the_model_moves(real_db: Servers, tmp_path: Path) -> None:
    a_model(enrolled=False)
    a_policy()
    a_price_book(valid_from=when(NOW))
    lab = a_lab("lab", gpus=0, money="100000", now=when(NOW))
    rng = random.Random(1)  # noqa: S311 (nothing is drawn)
    world = World(rng, tmp_path, (2,), portal_of=lambda found: BothPortals(found, lab))
    for node in world.nodes:
        world.node_works(node)
    world.portal_hears()
    names = {profile: str(uuid.UUID(int=n)) for n, profile in enumerate(ASKED, 1)}
    for profile, name in names.items():
        shape = None if profile == "whole" else profile[:7]
        wish = Wish(
            count=1, profile=shape, together="any", required=False, duration=1200,
            starts=int(world.now) + 600,
        )  # fmt: skip
        world.portal.request(name, wish, world.now)
        world.portal.cycle(world.now)
        if profile == "3g.40gb":
            # The large slice beside it goes, and it is alone: it can lie beside the other.
            tables = world.portal.tables
            (small,) = tables.of(tables.bookings[name], "planned")
            beside = next(
                row
                for row in tables.rows.values()
                if row.place.gpu == small.place.gpu and row is not small
            )
            world.portal.cancel(beside.booking, world.now)
    tables = world.portal.tables
    assert tables.bookings[names["whole"]].state == "scheduled"
    moved = [row for row in tables.rows.values() if row.state == "superseded"]
    # One of them left with what was cancelled.
    assert len(moved) == 2
    assert world.violations == []
    assert holds()


ASKED = ("4g.40gb", "4g.40gb again", "3g.40gb", "whole")


def test_a_model_that_does_something_else_is_seen(
    real_db: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "bump", lambda *_: None)
    with pytest.raises(AssertionError):
        schedule_on_both(1, tmp_path)
