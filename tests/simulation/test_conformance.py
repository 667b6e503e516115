"""The model portal is the real one: the same schedules on PostgreSQL, compared at every step."""

import random
import uuid
from pathlib import Path

import pytest

from tenants.access import Actor
from tenants.models import Project, Tier
from tests.builders import (
    a_gpu_class,
    a_member,
    a_project,
    a_quota,
    a_tenant,
    a_tier,
    an_actor,
)
from tests.builders_allocation import PRICE, a_budget, a_model, a_policy
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.simulation.model.portal import TUNABLES
from tests.simulation.schedules.schedule import SITES, Schedule
from tests.simulation.schedules.world import NOW, World
from tests.simulation.services.real import BothPortals, holds
from tests.simulation.services.real_requests import when
from tests.simulation.tables.people import SERVICES, Service, UserRequest
from tests.simulation.tables.rows import Tables

pytestmark = [pytest.mark.faults, pytest.mark.turn]
# Each takes seconds on the real services.
SEEDS = (*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 24)))


def some_people(gpus: int) -> list[tuple[Project, Actor]]:
    """As `people.WHO` has them: two of a tenant that is guaranteed everything, one who borrows."""
    a_model(enrolled=False)
    a_policy(**TUNABLES)
    for each in SERVICES.values():
        a_service(each)
    tiers = {("h100", slug): PRICE for slug in SERVICES}
    a_gpu_class()
    with as_system():
        price_book_publish(actor_id=None, valid_from=when(NOW), prices=tiers, now=when(NOW))
    lab, club = a_tenant("lab"), a_tenant("club")
    folding, chess = a_project(lab), a_project(club)
    a_quota(lab, guaranteed=gpus)
    a_quota(club)
    for project in (folding, chess):
        a_budget(project, "100000", now=when(NOW))
    members = [a_member(folding), a_member(folding), a_member(chess)]
    return [(member.project, an_actor(member)) for member in members if member.project]


def a_service(each: Service) -> None:
    """The tier of the schedules' people."""
    a_tier(
        each.slug,
        priority=each.priority,
        pausable=each.pausable,
        grace_seconds=each.grace,
        more_times=each.more_times,
        more_time_seconds=each.more_time,
    )
    with as_system():
        Tier.objects.filter(slug=each.slug).update(
            pause_method=each.method,
            counts_against_guarantee=each.counts,
            credit_cap_seconds=each.credit_cap,
            replace_on_lost=each.replace,
        )


def schedule_on_both(seed: int, folder: Path) -> Schedule:
    """A schedule that has run on the services and on the model."""
    rng = random.Random(seed)  # noqa: S311 (a schedule, not a secret)
    sizes = SITES[seed % len(SITES)]
    people = some_people(sum(sizes))
    world = World(rng, folder, sizes, portal_of=lambda found: BothPortals(found, people))
    schedule = Schedule(world, can_restore=False, can_order=False)
    # Nothing else is drawn for them, so each schedule has them.
    schedule.has_requests = True
    schedule.run()
    return schedule


@pytest.mark.parametrize("seed", SEEDS)
def test_the_services_do_what_the_model_does(seed: int, real_db: Servers, tmp_path: Path) -> None:
    schedule = schedule_on_both(seed, tmp_path)
    assert schedule.world.violations == [], schedule.story
    assert holds()


def test_the_services_move_what_the_model_moves(real_db: Servers, tmp_path: Path) -> None:
    people = some_people(8)
    rng = random.Random(1)  # noqa: S311 (nothing is drawn)
    world = World(rng, tmp_path, (2,), portal_of=lambda found: BothPortals(found, people))
    for node in world.nodes:
        world.node_works(node)
    world.portal_receives()
    names = {profile: str(uuid.UUID(int=n)) for n, profile in enumerate(REQUESTED, 1)}
    for profile, name in names.items():
        shape = None if profile == "whole" else profile[:7]
        requested = UserRequest(
            count=1,
            profile=shape,
            together="any",
            required=False,
            duration=1200,
            starts=int(world.now) + 600,
        )
        world.portal.request(name, requested, world.now)
        world.portal.cycle(world.now)
        if profile == "3g.40gb":
            # The large slice on its GPU ends, and it is alone: it can move to the other GPU.
            tables = world.portal.tables
            (small,) = tables.of(tables.bookings[name], "planned")
            neighbour = next(
                row for row in tables.rows.values() if row.place.gpu == small.place.gpu and row is not small
            )
            world.portal.cancel(neighbour.booking, world.now)
    tables = world.portal.tables
    assert tables.bookings[names["whole"]].state == "scheduled"
    moved = [row for row in tables.rows.values() if row.state == "superseded"]
    # One of them left with what was cancelled.
    assert len(moved) == 2
    assert world.violations == []
    assert holds()


REQUESTED = ("4g.40gb", "4g.40gb again", "3g.40gb", "whole")


def test_a_model_that_does_something_else_is_seen(
    real_db: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tables, "bump", lambda *_: None)
    with pytest.raises(AssertionError):
        schedule_on_both(1, tmp_path)
