"""Zones, in worlds that have two, and requests for or without one of them, or for local space."""

from dataclasses import replace
from random import Random

from solver import Ask, Energy, Where
from tests.worlds.draw import Drawn
from tests.worlds.jobs import HOUR

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
    return with_energy(chance, replace(drawn, gpus=fleet, jobs=jobs))


def with_energy(chance: Random, drawn: Drawn) -> Drawn:
    """In every other world a tier waits for energy, whose price is another one each hour."""
    if chance.random() < 0.5:
        return drawn
    energy = tuple(
        Energy(zone, tuple(chance.randint(900, 3_200) for _ in range(24)), (), ((0, 3_600),))
        for zone in ("basel", "bern")
    )
    name, shift = chance.choice(("flex", "std", "spot")), chance.choice((1, 3, 8)) * HOUR
    tiers = tuple(
        replace(tier, prefers="price", shift=shift) if tier.slug == name else tier for tier in drawn.tiers
    )
    jobs = tuple(
        replace(job, tier=next(tier for tier in tiers if tier.slug == job.tier.slug)) for job in drawn.jobs
    )
    return replace(drawn, tiers=tiers, jobs=jobs, energy=energy)


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
