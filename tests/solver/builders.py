"""Plain makers of solver values; each asks only for what the test is about.

Times are seconds from NOON; models carry the geometry of the real cards.
"""

from solver import (
    Ask,
    Cap,
    Extension,
    Gpu,
    Held,
    Host,
    Limit,
    Model,
    Place,
    Placement,
    PlannedStart,
    Policy,
    Request,
    Snapshot,
    Tier,
    Used,
)
from solver.model.inputs import Change, Mode, Strength, Together

NOON = 1_800_014_400
HOUR = 3_600
DAY = 86_400
POLICY = Policy(version=1)
SWITCH = 30
"""Seconds that a model with a reset takes to change its mode."""
# Standard stays within guarantees, flex may borrow, spot always does.
TIERS = (
    Tier("standard", pausable=False, counts=True),
    Tier("flex", pausable=True, counts=True),
    Tier("spot", pausable=True, counts=False),
)

# Profile id, compute slices, starts, memory slots, most per GPU.
_EIGHT = (
    (19, 1, range(7), 1, 7),
    (20, 1, range(7), 1, 1),
    (15, 1, (0, 2, 4, 6), 2, 4),
    (14, 2, (0, 2, 4), 2, 3),
    (9, 3, (0, 4), 4, 2),
    (5, 4, (0,), 4, 1),
    (0, 7, (0,), 8, 1),
)
_FOUR = ((14, 1, (0, 1, 2, 3), 1, 4), (5, 2, (0, 2), 2, 2), (0, 4, (0,), 4, 1))


def _model(slug: str, names: str, mode_switch: str, table: tuple = _EIGHT) -> Model:  # type: ignore[type-arg]  # rows as printed
    placements = tuple(
        Placement(name, start, size, compute, number, most)
        for name, (number, compute, starts, size, most) in zip(names.split(), table, strict=True)
        for start in starts
    )
    slots = 8 if table is _EIGHT else 4
    compute = 7 if table is _EIGHT else 4
    if mode_switch == "reset":
        return Model(slug, slots, compute, "reset", placements, SWITCH)
    return Model(slug, slots, compute, "online", placements)


H100 = _model("h100-80gb", "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", "online")
A100_40 = _model("a100-40gb", "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", "reset")
H200 = _model("h200-141gb", "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", "online")
A30 = _model("a30", "1g.6gb 2g.12gb 4g.24gb", "reset", _FOUR)
L40S = Model("l40s", 8, 7, "online", ())
HOST_CORE = Model("host-core", 8, 7, "online", (), host=True)
MODELS = (H100, A100_40, H200, A30, L40S, HOST_CORE)


def gpus(
    count: int = 8,
    gpu_class: str = "h100",
    model: str = "h100-80gb",
    *,
    node: str = "n1",
    rack: str = "r1",
    domains: int | None = 1,
    mode: Mode | None = None,
    usable: bool = True,
    stands: Mode | None = None,
) -> tuple[Gpu, ...]:
    """One node's GPUs; `domains` NVLink domains of equal size, None for no NVLink."""
    return tuple(
        Gpu(
            id=f"{node}-{index}",
            number=index,
            node=node,
            rack=rack,
            index=index,
            gpu_class=gpu_class,
            model=model,
            domain=None if domains is None else index * domains // count,
            usable=usable,
            mode=mode,
            stands=stands,
        )
        for index in range(count)
    )


def an_ask(
    count: int = 1,
    *classes: str,
    profile: str | None = None,
    together: Together = "any",
    required: bool = False,
) -> Ask:
    """`count` GPUs or slices, on h100 unless said."""
    return Ask(count, classes or ("h100",), profile, together, required)


def a_share(share: int = 250, *classes: str, cores: int = 0, memory: int = 0) -> Ask:
    """Thousandths of one GPU, on h100 unless said."""
    names = classes or ("h100",)
    return Ask(1, names, None, "any", required=False, share=share, cores=cores, memory=memory)


def shared(gpu: str, share: int = 250) -> Place:
    """A share of a GPU."""
    return Place(gpu, None, 0, 8, share)


def a_request(
    booking: str = "b1",
    ask: Ask | None = None,
    *,
    hours: float = 1,
    earliest: int = 0,
    latest: int | None = None,
    fixed: bool = False,
    priority: int = 50,
    submitted: int = 0,
    planned: PlannedStart | None = None,
    tenant: str = "lab",
    project: str = "folding",
    tier: str = "standard",
) -> Request:
    """A flexible booking of one hour from now on; `earliest` and `latest` from NOON."""
    return Request(
        booking=booking,
        tenant=tenant,
        project=project,
        tier=tier,
        priority=priority,
        submitted=NOON - DAY + submitted,
        ask=ask or an_ask(),
        duration=int(hours * HOUR),
        earliest=NOON + earliest,
        latest=None if latest is None else NOON + latest,
        fixed=fixed,
        planned=planned,
    )


def a_held(
    gpu: str,
    *,
    starts: int = 0,
    ends: int = HOUR,
    profile: str | None = None,
    start: int = 0,
    size: int = 8,
    booking: str = "",
    tenant: str = "other",
    project: str = "else",
    tier: str = "standard",
    level: Together | None = None,
) -> Held:
    """A live allocation; times from NOON. With a level it may move before it starts."""
    return Held(
        id=f"{gpu}/{start}/{starts}",
        booking=booking or f"held-{gpu}-{start}-{starts}",
        tenant=tenant,
        project=project,
        place=Place(gpu, profile, start, size),
        starts=NOON + starts,
        ends=NOON + ends,
        started=starts <= 0,
        tier=tier,
        level=level,
    )


def a_planned_start(
    starts: int, hours: float, *places: Place, strength: Strength | None = None
) -> PlannedStart:
    """A planned start, from NOON; expected unless said."""
    return PlannedStart(NOON + starts, NOON + starts + int(hours * HOUR), places, strength)


def whole(gpu: str) -> Place:
    """A whole GPU."""
    return Place(gpu, None, 0, 8)


def a_limit(
    owner: str,
    guaranteed: float,
    gpu_class: str = "h100",
    *,
    parent: str | None = None,
    borrow: float | None = 0,
    lend: float | None = None,
    weight: int = 1,
) -> Limit:
    """A tenant's quota in GPUs, or with `parent` a project's; nothing may be borrowed."""
    borrow_units, lend_units = (None if n is None else int(n * 56_000) for n in (borrow, lend))
    units = int(guaranteed * 56_000)
    return Limit(owner, parent, gpu_class, units, borrow_units, lend_units, weight)


def a_snapshot(
    *requests: Request,
    fleet: tuple[Gpu, ...] | None = None,
    held: tuple[Held, ...] = (),
    extensions: tuple[Extension, ...] = (),
    limits: tuple[Limit, ...] = (),
    now: int = 0,
    caps: tuple[Cap, ...] = (),
    used: tuple[Used, ...] = (),
    hosts: tuple[Host, ...] = (),
    changes: tuple[Change, ...] = (),
) -> Snapshot:
    """A site at noon: one node of eight H100 unless said."""
    return Snapshot(
        now=NOON + now,
        models=MODELS,
        gpus=gpus() if fleet is None else fleet,
        held=held,
        requests=requests,
        extensions=extensions,
        limits=limits,
        tiers=TIERS,
        caps=caps,
        used=used,
        hosts=hosts,
        changes=changes,
    )
