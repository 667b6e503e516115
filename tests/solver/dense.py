"""Crowded sites from one number: little hardware, many who want it, and every kind of them.

Hypothesis draws small and strange sites (`strategies.py`); these are large and full, so that what
two bookings do to each other happens in nearly all of them.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from solver import Ask, Extension, Gpu, Held, Host, Limit, Place, Request, Snapshot
from solver.model.inputs import Mode, Together
from tests.solver.builders import HOUR, NOON, a_limit, a_request, a_snapshot, gpus

TENANTS = ("lab", "firm", "inst")
PROJECTS = ("p", "q")
TIERS = ("standard", "standard", "flex", "spot")
PROFILES = {
    "h100": ("1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb"),
    "a100": ("1g.5gb", "1g.5gb+me", "2g.10gb"),
}
MODELS = {"h100": "h100-80gb", "a100": "a100-40gb"}
# What four running bookings may have.
CORES, MEMORY = 32_000, 81_920


def a_dense_site(seed: int, *, has_limits: bool = True) -> Snapshot:
    """Two nodes of three or four GPUs, nine to fourteen requests, and some GPUs taken."""
    chance = Random(seed)  # noqa: S311  a made-up site, the same each time
    fleet = tuple(gpu for number in range(2) for gpu in _node(chance, number))
    held = tuple(_held(chance, fleet))
    rows = tuple(_request(chance, number) for number in range(chance.randint(9, 14)))
    return a_snapshot(
        *rows,
        fleet=fleet,
        held=held,
        extensions=tuple(
            Extension(row.booking, row.ends + chance.randint(1, 4) * 1_000)
            for row in held
            if row.started and chance.random() < 0.8
        ),
        limits=tuple(_limits(chance, fleet)) if has_limits else (),
        hosts=tuple(Host(node, CORES, MEMORY) for node in sorted({gpu.node for gpu in fleet})),
    )


def _node(chance: Random, number: int) -> tuple[Gpu, ...]:
    gpu_class = chance.choice(("h100", "h100", "a100"))
    made = gpus(
        chance.randint(3, 4),
        gpu_class,
        MODELS[gpu_class],
        node=f"n{number}",
        rack=f"r{number}",
        domains=chance.choice((None, 1, 2)),
    )
    modes: tuple[Mode | None, ...] = (None, None, None, "whole", "sliced")
    stands: tuple[Mode | None, ...] = (None, "whole", "sliced") if gpu_class == "a100" else (None,)
    return tuple(
        replace(
            gpu,
            mode=chance.choice(modes),
            stands=chance.choice(stands),
            usable=chance.random() < 0.95,
        )
        for gpu in made
    )


def _held(chance: Random, fleet: tuple[Gpu, ...]) -> Iterator[Held]:
    for gpu in fleet:
        if "sliced" in (gpu.mode, gpu.stands) or chance.random() < 0.5:
            continue
        starts = chance.choice((-HOUR, -HOUR, 1_000, 2 * HOUR))
        tenant, owner = chance.choice(TENANTS), chance.choice(("ann", "bob"))
        yield Held(
            id=f"h-{gpu.id}",
            booking=f"k-{gpu.id}",
            tenant=tenant,
            project=f"{tenant}-p",
            place=Place(gpu.id, None, 0, 8, chance.choice((None, None, 250, 700))),
            starts=NOON + starts,
            ends=NOON + starts + HOUR + chance.randint(1, 9) * 1_234,
            started=starts <= 0,
            tier=chance.choice(TIERS),
            cores=chance.choice((0, 8_000)),
            memory=chance.choice((0, 20_480)),
            owner=owner,
            level="any" if starts > 0 and chance.random() < 0.7 else None,
        )


def _request(chance: Random, number: int) -> Request:
    gpu_class = chance.choice(("h100", "h100", "a100"))
    kind = chance.choice(("gang", "one", "slice", "slice", "share"))
    together: Together = chance.choice(("gpu", "domain", "node", "rack", "any"))
    ask = Ask(
        count={"gang": chance.randint(2, 4), "slice": chance.randint(1, 3)}.get(kind, 1),
        classes=("h100", "a100") if kind == "gang" and chance.random() < 0.3 else (gpu_class,),
        profile=chance.choice(PROFILES[gpu_class]) if kind == "slice" else None,
        together="any" if kind == "slice" and together == "domain" else together,
        required=chance.random() < 0.5,
        share=chance.choice((250, 500, 900)) if kind == "share" else None,
        cores=chance.choice((0, 6_000, 10_000)),
        memory=chance.choice((0, 30_720, 40_960)),
        any_class=chance.random() < 0.5,
    )
    fixed = chance.random() < 0.25
    earliest = chance.choice((0, 0, 0, 600, 3_000, 7_200)) + chance.randint(0, 59) * fixed
    tenant = chance.choice(TENANTS)
    made = a_request(
        f"b{number:02}",
        ask,
        earliest=earliest,
        fixed=fixed,
        priority=chance.choice((10, 50, 90)),
        submitted=number,
        tenant=tenant,
        project=f"{tenant}-{chance.choice(PROJECTS)}",
        tier=chance.choice(TIERS),
    )
    duration = chance.randint(1_800, 9_000)
    latest = made.earliest + duration + chance.randint(0, 20_000)
    return replace(
        made,
        duration=duration,
        latest=None if fixed or chance.random() < 0.5 else latest,
        owner=chance.choice(("ann", "bob")),
    )


def _limits(chance: Random, fleet: tuple[Gpu, ...]) -> Iterator[Limit]:
    """Guarantees that the fleet can keep, some split among projects; one tenant may have none."""
    for gpu_class in sorted({gpu.gpu_class for gpu in fleet}):
        left: float = sum(gpu.gpu_class == gpu_class for gpu in fleet)
        for tenant in TENANTS:
            sure = min(left, chance.choice((1, 1, 2)))
            left -= sure
            if chance.random() < 0.1:
                continue
            yield _a_limit(chance, tenant, sure, gpu_class, None)
            # As the database has it: projects are not guaranteed more than their tenant.
            unsplit = sure
            for project in PROJECTS:
                if chance.random() < 0.5:
                    own = min(unsplit, chance.choice((sure, sure)))
                    unsplit -= own
                    yield _a_limit(chance, f"{tenant}-{project}", own, gpu_class, tenant)


def _a_limit(chance: Random, owner: str, guaranteed: float, gpu_class: str, parent: str | None) -> Limit:
    some = (0, 0.5, 0.5)
    return a_limit(
        owner,
        guaranteed,
        gpu_class,
        parent=parent,
        borrow=chance.choice(some),
        lend=chance.choice((*some, None)),
        weight=chance.randint(0, 3),
    )
