"""Bookings of several GPU classes, in worlds that have two."""

from dataclasses import replace
from random import Random

from solver import Ask, Limit, Tier
from tests.worlds.jobs import Job

OFTEN = 0.8
"""Of the requests for whole H100 so many get a group on the other class, too."""

PAUSABLE = 0.5
"""Of these so many are in a tier that can be paused."""


def is_large(seed: int) -> bool:
    """True for the few worlds with many bookings."""
    return seed % 32 == 16


def is_mixed(seed: int, *, is_plain: bool) -> bool:
    """True for the worlds that have bookings of several classes: about one in seven, but no large
    one, which would take too long."""
    return seed % 5 == 2 and not is_plain and not is_large(seed)


def jobs_mix(
    seed: int, jobs: tuple[Job, ...], limits: tuple[Limit, ...], tiers: tuple[Tier, ...]
) -> tuple[Job, ...]:
    """The jobs, some of them with a group on the other class, half of these in a tier that can be
    paused.

    Most of their tenants have a guarantee in both classes. Without one they would be refused where
    they are never paused.
    """
    chance = Random(f"mixed {seed}")  # noqa: S311  a made-up world, the same each time
    # By itself, so that everything else of these worlds is drawn as before.
    tier_chance = Random(f"mixed tiers {seed}")  # noqa: S311  the same
    first, other = "h100", next(row.gpu_class for row in limits if row.gpu_class != "h100")
    sure = {
        name: {row.owner for row in limits if row.guaranteed and row.gpu_class == name}
        for name in (first, other)
    }
    tenants = sorted({row.owner for row in limits if row.parent is None})
    able = [each for each in tenants if each in sure[first] & sure[other]] or tenants
    firm = [tier for tier in tiers if not tier.pausable]
    found = []
    for job in jobs:
        ask = job.ask
        is_whole = ask.profile is None and ask.share is None and ask.classes == (first,)
        if not is_whole or ask.pin or job.series is not None or chance.random() > OFTEN:
            found.append(job)
            continue
        tenant = chance.choice(able if chance.random() < 0.9 else tenants)
        project = job.project.replace(job.tenant, tenant)
        ask = replace(ask, count=min(ask.count, 2), groups=(_group(chance, other),))
        tier = chance.choice(firm)
        if tier_chance.random() < PAUSABLE:
            tier = tier_chance.choice([each for each in tiers if each.pausable])
        found.append(replace(job, tenant=tenant, project=project, tier=tier, ask=ask))
    return tuple(found)


def _group(chance: Random, gpu_class: str) -> Ask:
    profile = chance.choice(("1g.5gb", "2g.10gb")) if gpu_class == "a100" else None
    cores = chance.choice((0, 0, 8_000))
    return Ask(chance.choice((1, 1, 2)), (gpu_class,), profile, "any", required=False, cores=cores)
