"""A world drawn from one number: hardware, quota, tiers, everything that people will ask for and
everything that will go wrong, with times in seconds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from solver import Ask, Cap, DatedGuarantee, Energy, Gpu, Host, Limit, Policy, Tier, TierPart
from solver.model.inputs import Together
from tests.solver.builders import NOON, a_limit, gpus
from tests.worlds.jobs import HOUR, Job
from tests.worlds.mixed import is_large, is_mixed, jobs_mix
from tests.worlds.operations import Operations
from tests.worlds.requests import Requests, requests_draw

PROJECTS = ("p", "q")
PEOPLE = ("ann", "bob", "eve")
SLICES = {"h100": ("1g.10gb", "2g.20gb", "3g.40gb"), "a100": ("1g.5gb", "2g.10gb")}
MODELS = {"h100": "h100-80gb", "a100": "a100-40gb", "l40s": "l40s"}
CORES = 64_000
# Of the hours of GPUs that the world has in its time, so much is asked for: a backlog.
CROWDING = 3.5


@dataclass(frozen=True)
class Size:
    """How large a world is: its nodes, GPUs a node, seconds in which people ask, and bookings."""

    nodes: int
    gpus: tuple[int, int]
    arriving: int
    bookings: int


SMALL, LARGE = Size(2, (1, 3), 2 * HOUR, 18), Size(3, (2, 4), 5 * HOUR, 46)
MIXED = Size(2, (2, 4), 2 * HOUR, 10)


@dataclass(frozen=True)
class Event:
    """Something from outside: limits, tiers or the policy are others from then on, a node is in
    maintenance, does not answer, takes no new work, or is as usual again, or the GPU `node` fails
    or returns."""

    at: int
    kind: str
    limits: tuple[Limit, ...] = ()
    node: str = ""
    until: int = 0
    tiers: tuple[Tier, ...] = ()
    policy: Policy | None = None


NO_REQUESTS, NO_OPERATIONS = Requests(), Operations()


@dataclass(frozen=True)
class Drawn:
    """Everything about a world that does not depend on a decision."""

    policy: Policy
    gpus: tuple[Gpu, ...]
    hosts: tuple[Host, ...]
    tiers: tuple[Tier, ...]
    limits: tuple[Limit, ...]
    jobs: tuple[Job, ...]
    events: tuple[Event, ...]
    is_plain: bool
    """Whole single GPUs only, and all that borrows can be paused: what claims.md bounds."""
    requests: Requests = NO_REQUESTS
    operations: Operations = NO_OPERATIONS
    search_every: int = 0
    """Seconds after which planned starts of a class are searched again though it is quiet."""
    caps: tuple[Cap, ...] = ()
    energy: tuple[Energy, ...] = ()
    guarantees: tuple[DatedGuarantee, ...] = ()
    tier_parts: tuple[TierPart, ...] = ()
    suspends: bool = False
    """Whole single GPUs are suspended in a pause: their work can continue there only."""


def world_draw(seed: int) -> Drawn:
    """The world of this number: always the same one."""
    chance = Random(seed)  # noqa: S311  a made-up world, the same each time
    is_plain, size = seed % 3 == 0, LARGE if is_large(seed) else SMALL
    of_both = is_mixed(seed, is_plain=is_plain)
    size = MIXED if of_both else size
    fleet = tuple(_fleet(chance, size, is_plain=is_plain, of_both=of_both))
    tiers = tuple(_tiers(chance, is_plain=is_plain))
    tenants = [f"t{number}" for number in range(chance.randint(2, 4))]
    limits = tuple(_limits(chance, fleet, tenants, is_plain=is_plain))
    jobs = tuple(_jobs(chance, size, fleet, tiers, limits, is_plain=is_plain))
    jobs = jobs_mix(seed, jobs, limits, tiers) if of_both else jobs
    jobs, requests = requests_draw(seed, jobs, limits, tiers, is_plain=is_plain)
    return Drawn(
        policy=Policy(1, cool_down=chance.choice((1, 600, 1_800))),
        gpus=fleet,
        hosts=tuple(Host(node, CORES, 0) for node in sorted({gpu.node for gpu in fleet})),
        tiers=tiers,
        limits=limits,
        jobs=jobs,
        events=() if is_plain else tuple(_events(chance, size, fleet, limits)),
        is_plain=is_plain,
        requests=requests,
        search_every=0 if seed % 5 else 1_800,
    )


def _fleet(chance: Random, size: Size, *, is_plain: bool, of_both: bool) -> Iterator[Gpu]:
    """The GPUs of each node; with `of_both` the first has H100, and all others another class."""
    other = chance.choice(("a100", "l40s")) if of_both else "h100"
    for number in range(size.nodes if of_both else chance.randint(1, size.nodes)):
        if of_both:
            gpu_class = other if number else "h100"
        else:
            gpu_class = "h100" if is_plain else chance.choice(("h100", "h100", "a100"))
        yield from gpus(
            chance.randint(*size.gpus),
            gpu_class,
            MODELS[gpu_class],
            node=f"n{number}",
            rack=f"r{number % 2}",
            mode="sliced" if gpu_class == "a100" else None,
        )


def _tiers(chance: Random, *, is_plain: bool) -> Iterator[Tier]:
    grace, protected = chance.choice((60, 120)), chance.choice((0, 300, 600))
    yield Tier("prem", pausable=False, counts=True, priority=90)
    yield Tier("std", pausable=False, counts=True, priority=50)
    yield Tier("flex", True, True, priority=40, grace=grace, protected=protected)  # noqa: FBT003
    if not is_plain:
        yield Tier("low", True, True, priority=20, grace=60, protected=protected)  # noqa: FBT003
    yield Tier("spot", True, False, priority=10, grace=60, protected=0)  # noqa: FBT003


def _limits(chance: Random, fleet: tuple[Gpu, ...], tenants: list[str], *, is_plain: bool) -> Iterator[Limit]:
    """Guarantees that the fleet can keep; of one tenant in four none."""
    for gpu_class in sorted({gpu.gpu_class for gpu in fleet}):
        left = sum(gpu.gpu_class == gpu_class for gpu in fleet)
        for tenant in tenants:
            sure = min(left, chance.choice((0, 1, 2, 2, 4)))
            left -= sure
            borrow = None if is_plain else chance.choice((1, 2, None, None, None))
            lend = None if is_plain else chance.choice((0, None, None, None))
            weight = chance.randint(0, 3)
            yield a_limit(tenant, sure, gpu_class, borrow=borrow, lend=lend, weight=weight)
            unsplit = sure
            for project in PROJECTS:
                if chance.random() < 0.5:
                    own = chance.randint(0, unsplit)
                    unsplit -= own
                    name = f"{tenant}-{project}"
                    borrow = None if is_plain else chance.choice((1, None, None))
                    lend = None if is_plain else chance.choice((0, None, None))
                    yield a_limit(name, own, gpu_class, parent=tenant, borrow=borrow, lend=lend)


def _jobs(
    chance: Random,
    size: Size,
    fleet: tuple[Gpu, ...],
    tiers: tuple[Tier, ...],
    limits: tuple[Limit, ...],
    *,
    is_plain: bool,
) -> Iterator[Job]:
    tenants = sorted({row.owner for row in limits if row.parent is None})
    sure = {row.owner for row in limits if row.parent is None and row.guaranteed}
    room = int(len(fleet) * size.arriving * CROWDING)
    number = 0
    while room > 0 and number < size.bookings:
        tenant = chance.choice(tenants)
        # What is never paused stays within a guarantee: without one it would be refused.
        fitting = [tier for tier in tiers if tier.pausable or tenant in sure]
        ask = _ask(chance, fleet, is_plain=is_plain)
        at = NOON + int(chance.random() ** 1.5 * size.arriving)
        job = _job(chance, number, at, tenant, chance.choice(fitting), ask)
        again = 1 if is_plain or not job.fixed or chance.random() < 0.7 else 3
        for turn in range(again):
            later = turn * (job.seconds + 1_800)
            series = f"s{number}" if again > 1 else None
            yield replace(job, name=f"b{number:03}", earliest=job.earliest + later, series=series)
            number += 1
            room -= job.seconds * ask.count


def _ask(chance: Random, fleet: tuple[Gpu, ...], *, is_plain: bool) -> Ask:
    gpu_class = chance.choice(sorted({gpu.gpu_class for gpu in fleet}))
    if is_plain:
        return Ask(1, ("h100",), None, "any", required=False)
    if gpu_class == "a100" or (gpu_class in SLICES and chance.random() < 0.3):
        profile = chance.choice(SLICES[gpu_class])
        return Ask(chance.choice((1, 1, 2)), (gpu_class,), profile, "any", required=False)
    if chance.random() < 0.1:
        return Ask(1, (gpu_class,), None, "any", required=False, share=chance.choice((250, 600)))
    cores = chance.choice((0, 0, 8_000, 20_000))
    together: Together = chance.choice(("any", "any", "node"))
    count = chance.choice((1, 1, 1, 2, 2, 3))
    ask = Ask(count, (gpu_class,), None, together, together == "node" and count == 2, cores=cores)
    if chance.random() < 0.05:
        nodes = sorted({gpu.node for gpu in fleet if gpu.gpu_class == gpu_class})
        ask = replace(ask, count=1, pin=(chance.choice(nodes),))
    return ask


def _job(chance: Random, number: int, at: int, tenant: str, tier: Tier, ask: Ask) -> Job:
    seconds = int(chance.choice((900, 2_400, 5_000, 9_000, 20_000)) * (0.7 + 0.6 * chance.random()))
    fixed = chance.random() < 0.12
    delay = chance.choice((0, 0, 0, 0, 1_234, 7_201))
    return Job(
        name=f"b{number:03}",
        at=at,
        tenant=tenant,
        project=f"{tenant}-{chance.choice(PROJECTS)}",
        owner=chance.choice(PEOPLE),
        tier=tier,
        ask=ask,
        seconds=seconds,
        earliest=at + delay,
        fixed=fixed,
        patience=chance.randint(20_000, 80_000) if chance.random() < 0.1 and not fixed else None,
        really=int(seconds * chance.random()) + 60 if chance.random() < 0.4 else seconds,
        cancelled_after=chance.randint(60, 20_000) if chance.random() < 0.08 else None,
        extended_by=chance.randint(300, 4_000) if chance.random() < 0.08 else 0,
    )


def _events(chance: Random, size: Size, fleet: tuple[Gpu, ...], limits: tuple[Limit, ...]) -> Iterator[Event]:
    """Limits are cut, and a node is in maintenance."""
    if chance.random() < 0.25:
        half = chance.random() < 0.5
        cut = tuple(_cut(row, half=half) for row in limits)
        yield Event(NOON + chance.randint(1, size.arriving), "limits", limits=cut)
    if chance.random() < 0.25:
        at = NOON + chance.randint(1, size.arriving)
        node = chance.choice(sorted({gpu.node for gpu in fleet}))
        starts = at + chance.choice((0, 6 * HOUR))
        yield Event(at, "maintenance", node=node, until=starts + 2 * HOUR)


def _cut(row: Limit, *, half: bool) -> Limit:
    """Half the guarantee, or nothing more to borrow."""
    if half:
        return replace(row, guaranteed=row.guaranteed // 2 // 56_000 * 56_000)
    return replace(row, borrow=0) if row.parent is None else row
