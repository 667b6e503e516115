"""What only some worlds have: GPUs that fail and return, tiers with a maximum of pauses, and a
bound of planning. It is drawn by itself, so everything else of these worlds is as without it."""

from dataclasses import replace
from random import Random

from tests.solver.builders import NOON
from tests.worlds.draw import Drawn, Event
from tests.worlds.jobs import HOUR


def with_rare(seed: int, drawn: Drawn) -> Drawn:
    """The world of this number with what is rare, in one world of four or so."""
    if drawn.is_plain:
        return drawn
    chance = Random(f"rare {seed}")  # noqa: S311  a made-up world, the same each time
    if seed % 12 == 7:
        most = chance.choice((1, 2))
        tiers = tuple(replace(each, pauses=most) if each.pausable else each for each in drawn.tiers)
        return replace(drawn, tiers=tiers, events=(*drawn.events, *_failures(chance, drawn)))
    if seed % 12 == 4:
        return replace(drawn, policy=replace(drawn.policy, plan_depth=chance.choice((1, 3, 6))))
    return drawn


def _failures(chance: Random, drawn: Drawn) -> tuple[Event, ...]:
    """One or two GPUs fail while people ask, and return hours later."""
    found = []
    for gpu in chance.sample(drawn.gpus, min(len(drawn.gpus), chance.choice((1, 2)))):
        at = NOON + chance.randint(600, 3 * HOUR)
        until = at + chance.choice((900, 7_200, 20_000)) + chance.randint(0, 59)
        found += [Event(at, "failure", node=gpu.id), Event(until, "repair", node=gpu.id)]
    return tuple(found)
