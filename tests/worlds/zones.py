"""Zones, in worlds that have two, and requests for or without one of them, or for local space."""

from dataclasses import replace
from random import Random

from solver import Ask, Where
from tests.worlds.draw import Drawn

NAMED = 0.35
"""Of the requests so many name or exclude a zone, or demand storage."""


def has_zones(seed: int) -> bool:
    """True for about one world in four; of these some have bookings of several classes."""
    return seed % 7 in (2, 5) and seed % 3 != 0


def with_zones(seed: int, drawn: Drawn) -> Drawn:
    """The world of this number with its racks in zones, and nodes with storage, if it has zones."""
    if not has_zones(seed):
        return drawn
    chance = Random(f"zones {seed}")  # noqa: S311  a made-up world, the same each time
    # Some nodes stand in no zone.
    names = chance.choice((("basel", "bern"), ("basel", "")))
    zones = dict(zip(sorted({gpu.rack for gpu in drawn.gpus}), names, strict=False))
    scratch = {node: chance.choice((0, 500, 2_000)) for node in sorted({gpu.node for gpu in drawn.gpus})}
    fleet = tuple(
        replace(
            gpu,
            zone=zones[gpu.rack],
            storage="local" if scratch[gpu.node] else "shared",
            scratch=scratch[gpu.node],
        )
        for gpu in drawn.gpus
    )
    jobs = tuple(
        replace(job, ask=_somewhere(chance, job.ask)) if chance.random() < NAMED and not job.ask.pin else job
        for job in drawn.jobs
    )
    return replace(drawn, gpus=fleet, jobs=jobs)


def _somewhere(chance: Random, ask: Ask) -> Ask:
    where = chance.choice(
        (
            Where(zones=("basel",)),
            Where(not_zones=("basel",)),
            Where(not_zones=("bern",)),
            Where(scratch=500),
            Where(storage="shared"),
        )
    )
    groups = tuple(replace(each, where=where) for each in ask.groups)
    return replace(ask, where=where, groups=groups)
