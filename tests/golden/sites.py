"""Sites made for a golden, where no test has one of their kind. Times are seconds from NOON."""

from dataclasses import replace
from random import Random

from solver import (
    UNITS_PER_GPU,
    Ask,
    Availability,
    Cap,
    Extension,
    Gpu,
    Held,
    Host,
    Maintenance,
    Order,
    Policy,
    QuoteRequest,
    Relocation,
    Request,
    Snapshot,
    Used,
    solve,
)
from tests.solver.builders import (
    DAY,
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_share,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)
from tests.solver.dense import a_dense_site
from tests.solver.pausing import a_claim, a_site, running
from tests.solver.strategies import the_next

LABS = ("bio", "chem", "phys", "stat")
NODES = 8


def no_gpus() -> Snapshot:
    """Two requests and nothing to run them on."""
    return a_snapshot(a_request("b1"), a_request("b2", fixed=True, earliest=HOUR), fleet=())


def nobody() -> Snapshot:
    """A fleet without a request."""
    return a_snapshot(fleet=gpus(8) + gpus(4, "a100", "a100-40gb", node="n2"))


def changed_demand() -> Snapshot:
    """A planned start on one GPU of a booking that asks for two by now."""
    planned = a_planned_start(2 * HOUR, 1, whole("n1-0"))
    held = (a_held("n1-1", ends=5 * HOUR),)
    return a_snapshot(a_request("b1", an_ask(2), planned=planned), fleet=gpus(2), held=held)


def no_seconds() -> Snapshot:
    """A request without a length."""
    return a_snapshot(a_request("b1", hours=0))


def topology() -> Snapshot:
    """Gangs of every nearness, some of which have to wait."""
    nodes = [
        gpus(8, node="a1", rack="r1", domains=2),
        gpus(8, node="a2", rack="r1", domains=1),
        gpus(8, "h200", "h200-141gb", node="b1", rack="r2", domains=4),
        gpus(4, "l40s", "l40s", node="c1", rack="r2", domains=None),
    ]
    asks = (
        an_ask(8, together="domain", required=True),
        an_ask(4, together="domain", required=True),
        an_ask(12, together="rack", required=True),
        an_ask(8, "h200", together="node", required=True),
        an_ask(2, "h200", "h100", together="domain"),
        an_ask(4, "l40s", together="node"),
        an_ask(2, "l40s", together="domain", required=True),
        an_ask(7, profile="1g.10gb", together="gpu", required=True),
    )
    rows = [
        a_request(f"b{number}", ask, hours=1 + number / 3, submitted=number)
        for number, ask in enumerate(asks)
    ]
    held = (a_held("a1-0", ends=4_321), a_held("b1-3", ends=7_777))
    return a_snapshot(*rows, fleet=sum(nodes, ()), held=held)


def repeated_maintenance() -> Snapshot:
    """Four dates of maintenance on two of three nodes, and bookings of a day and more."""
    fleet = sum((gpus(2, node=f"n{number}", rack="r1") for number in range(3)), ())
    dates = [week * 7 * DAY + 18 * HOUR for week in range(4)]
    away = tuple(
        Maintenance(gpu.id, NOON + at, NOON + at + 4 * HOUR)
        for at in dates
        for gpu in fleet
        if gpu.node != "n2"
    )
    rows = [
        a_request(f"b{number}", an_ask(2), hours=10 + 9 * number, submitted=number) for number in range(5)
    ]
    rows.append(a_request("fixed", an_ask(6), hours=2, fixed=True, earliest=19 * HOUR))
    return replace(a_snapshot(*rows, fleet=fleet), blackouts=away)


def crowded() -> Snapshot:
    """Eight nodes of two classes that four labs book: every kind of request, times in seconds."""
    chance = Random(2_026)  # noqa: S311  a made-up site, the same each time
    fleet = sum((_node(number) for number in range(NODES)), ())
    held = tuple(
        replace(
            a_held(
                gpu.id,
                starts=-HOUR,
                ends=chance.randint(600, 30_000),
                booking=f"run-{gpu.id}",
                tenant=chance.choice(LABS),
                project="old",
                tier=chance.choice(("standard", "flex", "spot")),
            ),
            since=NOON - HOUR,
        )
        for gpu in fleet
        if chance.random() < 0.6
    )
    rows = [_any(chance, number) for number in range(100)]
    limits = [a_limit(lab, 6, name, borrow=None) for lab in LABS for name in ("h100", "a100")]
    limits += [a_limit("bio-q", 2, parent="bio", borrow=1)]
    later = (Extension(row.booking, row.ends + 3_333) for row in held if chance.random() < 0.2)
    return a_snapshot(
        *rows,
        fleet=fleet,
        held=held,
        limits=tuple(limits),
        extensions=tuple(later),
        hosts=tuple(Host(f"n{number}", 96_000, 1_048_576) for number in range(NODES)),
    )


def crowded_later() -> Snapshot:
    """The same, 307 seconds after its plan was carried out."""
    site = crowded()
    return the_next(site, solve(site, POLICY), 307)


def other_policy() -> Snapshot:
    """A crowded site that is decided with `OTHER_POLICY`."""
    return a_dense_site(42)


def two_moves() -> Snapshot:
    """Planned slices of two classes move for two windows, and a pinned one stays."""
    kinds = (("h100", "1g.10gb", 2 * HOUR), ("a100", "1g.5gb", 5 * HOUR))
    fleet = gpus(2, node="h") + gpus(2, "a100", "a100-40gb", node="a")
    rows: list[Held] = []
    windows: list[Request] = []
    for gpu_class, profile, starts in kinds:
        for gpu in fleet:
            if gpu.gpu_class == gpu_class:
                when = {"starts": starts, "ends": starts + HOUR + 17}
                row = a_held(gpu.id, profile=profile, size=1, level="any", **when)  # type: ignore[arg-type]  # only numbers
                rows.append(replace(row, pauses=len(rows)))
        ask = an_ask(1, gpu_class)
        windows.append(a_request(f"w-{gpu_class}", ask, fixed=True, earliest=starts, hours=0.5))
    rows.append(
        replace(
            a_held("h-0", profile="3g.40gb", start=4, size=4, starts=9 * HOUR, ends=10 * HOUR, level="any"),
            pinned=True,
        )
    )
    fleet = tuple(replace(gpu, shares=gpu.index > 0) for gpu in fleet)
    caps = (
        Cap("lab", "h100", 9 * HOUR * UNITS_PER_GPU, NOON - NOON % DAY, NOON - NOON % DAY + DAY),
        Cap("folding", "a100", 9 * HOUR * UNITS_PER_GPU, 0, 0, rolling_days=3),
    )
    used = tuple(
        Used("lab", "folding", gpu_class, NOON - NOON % DAY - DAY, HOUR * UNITS_PER_GPU)
        for gpu_class, _, _ in kinds
    )
    windows.append(a_request("part", a_share(300, "h100", "a100"), hours=0.3))
    pinned = replace(an_ask(2), pin=("h",))
    windows.append(a_request("pin", pinned, fixed=True, earliest=2 * HOUR + 60, hours=1))
    return a_snapshot(*windows, fleet=fleet, held=tuple(rows), caps=caps, used=used)


def two_orders() -> Snapshot:
    """Two relocations that are not possible any more."""
    held = (a_held("n1-0", ends=3 * HOUR, tier="spot"), a_held("n1-1", ends=4 * HOUR))
    moves = (Relocation("held-n1-0-0", whole("n1-0"), whole("n1-2")),)
    orders = (
        Order("first", "b1", "h100", (whole("n1-0"),), moves),
        Order("second", "b2", "a100", (whole("n1-1"),), moves),
    )
    site = a_snapshot(a_request("b1", an_ask(4)), fleet=gpus(3), held=held)
    return replace(site, orders=orders)


def cheapest_quote() -> None:
    """Asks for the cheapest way to do work of somebody who has a share already."""
    Availability(crowded(), POLICY).quote(_cheapest())


def quote_within_guarantee() -> None:
    """Asks the same while a budget allows no borrowing."""
    Availability(crowded(), POLICY).quote(replace(_cheapest(), within=True))


def _cheapest() -> QuoteRequest:
    return QuoteRequest(
        ask=an_ask(2, "a100", "h100"),
        duration=5_000,
        earliest=NOON,
        latest=NOON + 2 * DAY,
        fixed=False,
        tenant="bio",
        project="bio-q",
        rates={"a100": 120, "h100": 300},
        tier="flex",
        owner="ann",
        lengths={"a100": 9_999, "h100": 5_000},
        reference="a100",
        cheapest=True,
        risks={("h100", True, 2): 125},
        priority=30,
    )


def overtaken() -> Snapshot:
    """Expected, guaranteed and late bookings behind one that asks later; a lender waits."""
    fleet = (*gpus(2), *gpus(1, "a100", "a100-40gb", node="n2"))
    held = (
        *(
            replace(row, granted=(3, n), preemptor=n > 1)
            for n, row in enumerate(
                running("run", whole("n1-0"), whole("n1-1"), tier="standard", ends=HOUR), 1
            )
        ),
        *running("borrower", whole("n2-0"), since=-60, ends=9 * HOUR),
    )
    first, second = whole("n1-0"), whole("n1-1")
    requests = (
        a_claim(
            "late",
            tier="flex",
            tenant="firm",
            latest=int(2.5 * HOUR),
            planned=a_planned_start(HOUR, 1, first, strength="expected"),
        ),
        a_claim(
            "open", tier="flex", tenant="firm", planned=a_planned_start(HOUR, 1, second, strength="expected")
        ),
        a_claim("own", tier="flex", planned=a_planned_start(6 * HOUR, 1, first, strength="guaranteed")),
        a_claim(
            "over",
            tier="flex",
            tenant="firm",
            latest=1_800,
            planned=a_planned_start(2 * HOUR, 1, second, strength="expected"),
        ),
        a_claim("new", 2, tier="assured", hours=4),
        a_claim("lender", ask=an_ask(1, "a100")),
    )
    used = (
        Used("lab", "lab-p", "h100", NOON - DAY, 9 * HOUR * 56_000, "ann"),
        Used("firm", "firm-p", "h100", NOON - DAY, 2 * HOUR * 56_000, "bob"),
    )
    limits = (
        a_limit("lab", 2, borrow=None),
        a_limit("lab", 1, "a100"),
        a_limit("firm", 0, borrow=None),
        a_limit("firm", 0, "a100", borrow=None),
    )
    return a_site(*requests, held=held, fleet=fleet, limits=limits, used=used)


OTHER_POLICY = Policy(
    version=2,
    grid=600,
    freeze_horizon=90,
    horizon=14 * DAY,
    half_life=2 * DAY,
    share_step=20_000,
    age_step=HOUR,
    cool_down=600,
    notice_margin=45,
    share_owners=3,
    neighbourhoods=4,
    exact_neighbourhoods=1,
    mode_changes=0,
    mode_patience=900,
    patience=2 * DAY,
    epoch=60,
    long_run_weight=2,
    future_requests=9,
    host_core_cost=7_000,
    host_cores_off=50_000,
    moved_bookings=5,
    node_sets=2,
    exact_pieces=12,
    alternatives=1,
    victim_rules=("taken_back", "higher_tier"),
    order=("tier", "age", "part", "person", "project", "tenant"),
)
POLICIES = {"other_policy": OTHER_POLICY}


def _node(number: int) -> tuple[Gpu, ...]:
    gpu_class, model = (("h100", "h100-80gb"), ("a100", "a100-40gb"))[number % 2]
    node, rack = f"n{number}", f"r{number // 4}"
    return gpus(8, gpu_class, model, node=node, rack=rack, domains=(1, 2)[number // 4])


def _any(chance: Random, number: int) -> Request:
    gpu_class, profile = chance.choice((("h100", "2g.20gb"), ("a100", "3g.20gb")))
    asks: tuple[Ask, ...] = (
        an_ask(1, gpu_class),
        an_ask(chance.randint(2, 8), gpu_class, together="node"),
        an_ask(4, "h100", "a100", together="domain", required=chance.random() < 0.5),
        an_ask(chance.randint(1, 4), gpu_class, profile=profile),
        a_share(chance.choice((100, 250, 500)), gpu_class, cores=4_000, memory=16_384),
    )
    fixed = chance.random() < 0.2
    lab = chance.choice(LABS)
    made = a_request(
        f"b{number:03}",
        chance.choice(asks),
        hours=chance.randint(1_800, 40_000) / HOUR,
        earliest=chance.choice((0, 0, 0, 1_234, 20_000)),
        fixed=fixed,
        priority=chance.choice((10, 30, 50)),
        submitted=number,
        tenant=lab,
        project=f"{lab}-{chance.choice('pq')}",
        tier=chance.choice(("standard", "flex", "spot")),
    )
    late = made.earliest + made.duration + chance.randint(0, 90_000)
    latest = None if fixed or chance.random() < 0.7 else late
    return replace(made, latest=latest, owner=chance.choice(("ann", "bob")))
