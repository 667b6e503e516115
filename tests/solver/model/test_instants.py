"""Between the instants of a snapshot, time alone changes no plan."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from solver import Plan, Policy, Snapshot, solve
from solver.model.instants import next_instant
from tests.solver.world import World, a_world, after, an_arrival, running_requests

STEP, REST, TURNS = 15, 60, 80
# Some turns before the next event and some after it; then new bookings arrive.
WINDOW, BEFORE = 10, 75
POLICY = Policy(1)


def planned(site: Snapshot) -> dict[str, Any]:
    """What a decision would store: of people who wait, and ("") of all else that it does."""
    plan = solve(replace(site, running=tuple(running_requests(site))), POLICY)
    waits = {each.booking: (each.starts, each.strength, each.places) for each in plan.waits}
    acts = plan.assigns or plan.pauses or plan.moves or plan.refusals or plan.withdrawn
    return {**waits, **({"": plan} if acts else {}), "plan": plan}


def different(now: int, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    keys = sorted({*old, *new})
    return [f"{now}: {key} {old.get(key)} {new.get(key)}" for key in keys if old.get(key) != new.get(key)]


def time_passes(world: World, chance: Random, *, is_far: bool) -> None:
    """A step, or all the time until shortly before the next event."""
    world.until(world.site.now + STEP)
    if is_far:
        soon = world.next_event() - chance.randint(BEFORE, BEFORE + STEP)
        world.until(max(world.site.now, soon))


def spared(world: World, chance: Random) -> tuple[int, list[str], list[str]]:
    """How many plans of a world the rests spare, which of these would have stored something, and
    which would have if rests ended by their bound alone."""
    count, until, bound, known = 0, 0, 0, dict[str, Any]()
    wrong, careless = list[str](), list[str]()
    for number in range(TURNS):
        site = world.site
        if number % WINDOW == 0:
            new = tuple(an_arrival(chance, number * 10 + n, site.now) for n in range(3))
            world.site = site = replace(site, requests=(*site.requests, *new))
            until = bound = 0
        found = planned(site)
        plan: Plan = found.pop("plan")
        news = different(site.now, known, found)
        if site.now < until:
            count += 1
            wrong += news
        if site.now < bound:
            careless += news
        if news:
            until = bound = 0
        elif site.now >= until:
            until = next_instant(site, POLICY, site.now + REST)
            bound = site.now + REST
        found.pop("", None)
        known, world.site = found, after(site, plan)
        held = world.site.held
        time_passes(world, chance, is_far=number % WINDOW == 2)
        if world.site.held != held:
            until = bound = 0
    return count, wrong, careless


@pytest.mark.parametrize("seed", [0, 4, 6, *(pytest.param(n, marks=pytest.mark.long) for n in range(10, 30))])
def test_between_instants_a_plan_stays(seed: int) -> None:
    chance = Random(seed)  # noqa: S311  a made-up world, the same each time
    count, wrong, careless = spared(a_world(chance), chance)
    assert not wrong, wrong
    assert count > TURNS // 5
    assert careless or seed > 6, "the control needs the instants"
