"""Cores of hosts for work without a GPU, in worlds that have a node with some."""

from dataclasses import replace
from random import Random

from solver import Ask, Host
from tests.solver.builders import NOON, a_limit, gpus
from tests.worlds.draw import PEOPLE, PROJECTS, Drawn
from tests.worlds.jobs import Job

CPU, MODEL = "cpu", "host-core"
NODES = ("c0", "c1")
MEMORY_PER_CORE = 4_096


def has_cores(seed: int, drawn: Drawn) -> bool:
    """True for about one world in six."""
    return seed % 4 == 1 and not drawn.is_plain


def with_cores(seed: int, drawn: Drawn) -> Drawn:
    """The world of this number with one or two nodes of cores and work for them, if it has some."""
    if not has_cores(seed, drawn):
        return drawn
    chance = Random(f"cores {seed}")  # noqa: S311  a made-up world, the same each time
    count = chance.choice((4, 6, 8))
    nodes = NODES[: chance.choice((1, 2))]
    rack = drawn.gpus[0].rack
    devices = tuple(
        device for node in nodes for device in gpus(count, CPU, MODEL, node=node, rack=rack, domains=None)
    )
    tenants = sorted({row.owner for row in drawn.limits if row.parent is None})
    sure = {tenant: chance.choice((0, 2, count // 2)) for tenant in tenants}
    limits = tuple(a_limit(tenant, units, CPU) for tenant, units in sure.items())
    jobs = tuple(
        _job(chance, number, drawn, [tenant for tenant in tenants if sure[tenant]], count)
        for number in range(chance.randint(4, 10) if any(sure.values()) else 0)
    )
    return replace(
        drawn,
        gpus=(*drawn.gpus, *devices),
        hosts=(*drawn.hosts, *(Host(node, count * 1_000, count * MEMORY_PER_CORE) for node in nodes)),
        limits=(*drawn.limits, *limits),
        jobs=(*drawn.jobs, *jobs),
    )


def _job(chance: Random, number: int, drawn: Drawn, tenants: list[str], most: int) -> Job:
    tenant = chance.choice(tenants)
    tier = chance.choice([each for each in drawn.tiers if each.slug in ("std", "flex", "spot")])
    # What is never paused stays within its guarantee.
    count = chance.choice((1, 2)) if not tier.pausable else chance.choice((1, 2, 3, most))
    memory = chance.choice((0, 2_048, MEMORY_PER_CORE)) if count > 1 else chance.choice((4_096, 8_192))
    ask = Ask(count, (CPU,), None, "node" if count > 1 else "any", count > 1, memory=memory)
    seconds = int(chance.choice((900, 2_400, 5_000)) * (0.7 + 0.6 * chance.random()))
    at = NOON + chance.randint(0, 7_200)
    return Job(
        name=f"c{number:03}",
        at=at,
        tenant=tenant,
        project=f"{tenant}-{chance.choice(PROJECTS)}",
        owner=chance.choice(PEOPLE),
        tier=tier,
        ask=ask,
        seconds=seconds,
        earliest=at,
        fixed=False,
        patience=None,
        really=seconds,
        cancelled_after=None,
        extended_by=chance.choice((0, 0, 600)),
    )
