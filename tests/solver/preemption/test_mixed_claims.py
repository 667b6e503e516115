"""Mixed bookings that have others paused: in every class of theirs inside the guarantee."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from solver import Ask, Plan, Request, Snapshot, encode, solve
from solver.model.inputs import Held
from tests.solver.builders import (
    H100,
    HOUR,
    L40S,
    NOON,
    POLICY,
    a_limit,
    an_ask,
    gpus,
    whole,
)
from tests.solver.pausing import GRACE, TIERS, a_claim, a_site, given, notices, rest_of, running
from tests.solver.standing import Block, inside_of, potential_of, units_of
from tests.solver.truth import given_by, over_limit, overlaps
from tests.solver.world import after, with_room_made

FLEET = (*gpus(3, node="n1"), *gpus(3, "l40s", "l40s", node="n2", domains=None))
CLASS_OF = {gpu.id: gpu.gpu_class for gpu in FLEET}
MODEL_OF = {"h100": H100, "l40s": L40S}
BOTH = tuple(
    a_limit(tenant, 1 if tenant == "firm" else 2, name, borrow=None)
    for tenant, name in product(("lab", "firm"), ("h100", "l40s"))
)


def a_mixed_claim(h100: int = 2, l40s: int = 2, *, tier: str = "standard") -> Request:
    return a_claim(ask=replace(an_ask(h100), groups=(an_ask(l40s, "l40s"),)), tier=tier)


def full() -> tuple[Held, ...]:
    """One booking of the other tenant on each GPU: one of each class is inside its guarantee."""
    return tuple(
        row
        for number, gpu in enumerate(FLEET)
        for row in running(f"r{number}", whole(gpu.id), since=-HOUR - number)
    )


def a_mixed_site(claim: Request, held: tuple[Held, ...], limits=BOTH) -> Snapshot:  # type: ignore[no-untyped-def]  # limits as there
    site = a_site(claim, held=held, fleet=FLEET, limits=limits)
    by_name = {row.booking: [row] for row in held}
    asks = {
        name: Ask(1, (CLASS_OF[rows[0].place.gpu],), None, "any", required=False)
        for name, rows in by_name.items()
    }
    rests = (replace(rest_of(rows, NOON), ask=asks[name]) for name, rows in by_name.items())
    return replace(site, running=tuple(rests))


def by_class(plan: Plan) -> dict[str, int]:
    """Pauses by class."""
    found: dict[str, int] = {}
    for booking in notices(plan):
        name = FLEET[int(booking.removeprefix("r"))].gpu_class
        found[name] = found.get(name, 0) + 1
    return found


def test_it_takes_what_is_borrowed_in_each_class_at_one_second() -> None:
    site = a_mixed_site(a_mixed_claim(), full())
    plan = solve(site, POLICY)
    assert by_class(plan) == {"h100": 2, "l40s": 2}
    assert {at for _, at in notices(plan).values()} == {GRACE}
    assert given(plan)["claim"][1] == GRACE
    assert plan.dropped == ()
    # All that have notice leave for it: the next cycle keeps it and notifies nobody else.
    notified = after(site, plan)
    again = solve(replace(notified, running=()), POLICY)
    assert given(again)["claim"][1] == GRACE
    assert notices(again) == {}


def test_of_a_class_with_room_nobody_leaves() -> None:
    held = tuple(row for row in full() if row.place.gpu not in ("n2-0", "n2-1"))
    plan = solve(a_mixed_site(a_mixed_claim(), held), POLICY)
    assert by_class(plan) == {"h100": 2}


def test_borrowed_in_one_class_it_has_nobody_paused_in_any() -> None:
    """Of the class in which it borrows there is room, and inside the other it could take."""
    held = tuple(row for row in full() if row.place.gpu not in ("n2-0", "n2-1"))
    limits = (*BOTH[:1], a_limit("lab", 1, "l40s", borrow=None), *BOTH[2:])
    plan = solve(a_mixed_site(a_mixed_claim(tier="flex"), held, limits), POLICY)
    assert notices(plan) == {}
    assert given(plan)["claim"][1] == 6 * HOUR


def blocks_of(site: Snapshot, names: set[str], claim: Request | None) -> dict[str, list[Block]]:
    """Who is in place, by class, as the claims page defines it."""
    tiers = {tier.slug: tier for tier in site.tiers}
    found: dict[str, list[Block]] = {"h100": [], "l40s": []}

    def add(name: str, row: Held | Request, gpu_class: str, units: int, since: int) -> None:
        tier = tiers[row.tier]
        level = (tier.priority, not tier.pausable)
        order = (1, since)
        found[gpu_class].append(
            Block(name, row.tenant, row.project, gpu_class, units, level, order, tier.counts)
        )

    for row in site.held:
        if row.booking in names:
            gpu_class = CLASS_OF[row.place.gpu]
            add(row.booking, row, gpu_class, units_of(MODEL_OF[gpu_class], row.place), row.starts)
    if claim is not None:
        for ask in (claim.ask, *claim.ask.groups):
            add(claim.booking, claim, ask.classes[0], ask.count * 56_000, 2**40)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_every_pause_raises_the_potential_of_its_class_and_takes_nobody_inside(seed: int) -> None:
    chance = Random(seed)  # noqa: S311  a made-up site, the same each time
    held = tuple(
        row
        for number, gpu in enumerate(FLEET)
        if chance.random() < 0.9
        for row in running(
            f"r{number}",
            whole(gpu.id),
            since=-chance.randint(60, 7_200),
            tenant=chance.choice(("firm", "firm", "lab")),
            tier=chance.choice(("flex", "spot")),
        )
    )
    claim = a_mixed_claim(chance.randint(1, 3), chance.randint(1, 3))
    site = a_mixed_site(claim, held)
    plan = solve(site, POLICY)
    assert plan.dropped == ()
    true = with_room_made(site, plan)
    assert not overlaps(true, plan)
    assert not over_limit(true, plan)
    notified = set(notices(plan))
    there = {row.booking for row in held}
    before = blocks_of(site, there, None)
    after_it = blocks_of(site, there - notified, claim if notified else None)
    levels = [(tier.priority, not tier.pausable) for tier in TIERS]
    for name in by_class(plan):
        assert potential_of(after_it[name], BOTH, levels, name) > potential_of(
            before[name], BOTH, levels, name
        )
        inside = inside_of(before[name], BOTH)
        assert not [b for b in before[name] if b.name in notified & inside.keys() and b.tenant != "lab"]
    for row in given_by(plan):
        if row.booking == "claim":
            counts = [sum(CLASS_OF[p.gpu] == n for p in row.places) for n in ("h100", "l40s")]
            assert counts == [claim.ask.count, claim.ask.groups[0].count]


def a_queue(chance: Random) -> list[Request]:
    """Requests of two tenants, half of them mixed."""
    found = []
    for number in range(8):
        tier = chance.choice(("standard", "flex", "assured"))
        ask = an_ask(chance.randint(1, 2), chance.choice(("h100", "l40s")))
        if chance.random() < 0.5:
            tier = chance.choice(("standard", "assured"))
            ask = replace(an_ask(chance.randint(1, 2)), groups=(an_ask(chance.randint(1, 2), "l40s"),))
        found.append(
            a_claim(
                f"b{number}",
                ask=ask,
                tier=tier,
                tenant=chance.choice(("lab", "firm")),
                hours=chance.choice((0.5, 1, 3)),
                submitted=number,
                earliest=chance.choice((0, 0, HOUR)),
                fixed=chance.random() < 0.15,
            )
        )
    return found


@pytest.mark.parametrize("seed", range(40))
def test_mixed_and_other_bookings_share_a_site_over_several_cycles(seed: int) -> None:
    """No slot twice, no limit broken, all of a booking or none, and no start later unsaid."""
    chance = Random(seed)  # noqa: S311  a made-up site, the same each time
    held = tuple(row for row in full() if chance.random() < 0.6)
    queue = a_queue(chance)
    site = replace(a_mixed_site(queue[0], held), requests=tuple(queue))
    wanted = {each.booking: each.ask for each in queue}
    for _ in range(3):
        plan = solve(site, POLICY)
        assert plan.dropped == ()
        true = with_room_made(site, plan)
        assert overlaps(true, plan) == []
        assert encode(solve(site, POLICY)) == encode(plan)
        for row in given_by(plan):
            ask = wanted.get(row.booking)
            for part in (ask, *ask.groups) if ask else ():
                there = sum(CLASS_OF[place.gpu] == part.classes[0] for place in row.places)
                assert there == part.count, row.booking
        promised = {each.booking: each.planned for each in site.requests if each.planned}
        for wait in plan.waits:
            before = promised.get(wait.booking)
            assert before is None or wait.starts <= before.starts or wait.delayed_by
        site = replace(after(site, plan), running=())
