"""What holds of pauses on every site, over many cycles."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.solver.world import World, a_world, an_arrival

few = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 10**9)


def lived(seed: int, arrivals: int) -> World:
    """A world with all its arrivals, until everything has ended. Each plan is checked."""
    chance = Random(seed)  # noqa: S311  a made-up site, the same each time
    world = a_world(chance)
    quiet: Counter[str] = Counter()
    for number in range(arrivals):
        new = an_arrival(chance, number, world.site.now)
        world.site = replace(world.site, requests=(*world.site.requests, new))
        world.cycle()
        world.until(world.site.now + chance.choice((1, 5, 60, 600, 3_600)))
    for _ in range(60 * arrivals):
        if not world.site.requests and not world.site.held:
            return world
        before = len(world.log)
        world.cycle()
        quiet.update(victim for _, victim, _ in world.log[before:])
        assert max(quiet.values(), default=0) <= 2, f"paused again and again: {world.log}"
        if world.until(world.next_event()):
            quiet.clear()
    raise AssertionError(f"it never comes to rest: {world.log}")


@few
@given(seeds)
def test_pauses_come_to_rest_and_every_plan_on_the_way_is_true(seed: int) -> None:
    lived(seed, 8)


@pytest.mark.long
@settings(few, max_examples=1_500)
@given(seeds, st.integers(2, 16))
def test_the_same_for_very_many_worlds(seed: int, arrivals: int) -> None:
    lived(seed, arrivals)
