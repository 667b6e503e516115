"""Mixed bookings: several groups of GPUs, each on a class of its own, together or not at all."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from solver import (
    Ask,
    Held,
    Host,
    Limit,
    Plan,
    PlannedStart,
    Request,
    Snapshot,
    solve,
)
from solver.model.codec import decode, encode
from solver.model.inputs import Change
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
)
from tests.solver.truth import given_by, over_limit, overlaps

FLEET = (*gpus(4, node="n1"), *gpus(4, "l40s", "l40s", node="n2", domains=None))
CLASS_OF = {gpu.id: gpu.gpu_class for gpu in FLEET}


def a_mixed_ask(h100: int = 2, l40s: int = 3, *, cores: int = 0) -> Ask:
    return replace(an_ask(h100), cores=cores, groups=(replace(an_ask(l40s, "l40s"), cores=cores),))


def a_site(
    *requests: Request,
    held: tuple[Held, ...] = (),
    limits: tuple[Limit, ...] = (),
    changes: tuple[Change, ...] = (),
) -> Snapshot:
    return a_snapshot(*requests, fleet=FLEET, held=held, limits=limits, changes=changes)


def counts(plan: Plan, booking: str = "b1") -> dict[str, int]:
    """How many places of each class the booking gets."""
    row = next(each for each in given_by(plan) if each.booking == booking)
    found: dict[str, int] = {}
    for place in row.places:
        found[CLASS_OF[place.gpu]] = found.get(CLASS_OF[place.gpu], 0) + 1
    return found


def test_all_groups_start_together() -> None:
    plan = solve(a_site(a_request(ask=a_mixed_ask())), POLICY)
    assert counts(plan) == {"h100": 2, "l40s": 3}
    assert [(row.starts, row.ends) for row in plan.assigns] == [(NOON, NOON + HOUR)]
    assert [each.code for each in plan.assigns[0].reasons] == ["placed", "placed"]


def test_it_waits_for_the_group_that_is_busy_and_says_which() -> None:
    held = (a_held("n2-0", ends=2 * HOUR), a_held("n2-1", ends=2 * HOUR))
    plan = solve(a_site(a_request(ask=a_mixed_ask()), held=held), POLICY)
    (wait,) = plan.waits
    assert wait.starts == NOON + 2 * HOUR
    assert counts(plan) == {"h100": 2, "l40s": 3}
    busy = next(each for each in wait.reasons if each.code == "gpus_busy")
    assert (busy.facts["gpu_class"], busy.facts["left"]) == ("l40s", 2)


def test_its_planned_start_is_kept_and_nobody_behind_takes_a_group_of_it() -> None:
    held = (a_held("n2-0", ends=2 * HOUR), a_held("n2-1", ends=2 * HOUR))
    first = a_request(ask=a_mixed_ask(3, 3), hours=2)
    (wait,) = solve(a_site(first, held=held), POLICY).waits
    kept = replace(first, planned=PlannedStart(wait.starts, wait.ends, wait.places, wait.strength))
    behind = a_request("b2", an_ask(2), hours=4, submitted=60)
    plan = solve(a_site(kept, behind, held=held), POLICY)
    starts = {row.booking: row.starts - NOON for row in given_by(plan)}
    assert starts == {"b1": 2 * HOUR, "b2": 4 * HOUR}


def test_a_limit_of_one_class_forbids_all_of_it() -> None:
    limits = (a_limit("lab", 4), a_limit("lab", 2, "l40s"))
    plan = solve(a_site(a_request(ask=a_mixed_ask()), limits=limits), POLICY)
    (refusal,) = plan.refusals
    assert refusal.reasons[0].facts["gpu_class"] == "l40s"
    assert not plan.assigns


def test_its_start_is_guaranteed_inside_every_guarantee_and_only_where_it_is_never_paused() -> None:
    held = tuple(a_held(gpu.id, ends=2 * HOUR) for gpu in FLEET)
    limits = (a_limit("lab", 4), a_limit("lab", 4, "l40s"))
    strengths = [
        solve(a_site(a_request(ask=a_mixed_ask(), tier=tier), held=held, limits=limits), POLICY)
        .waits[0]
        .strength
        for tier in ("standard", "flex")
    ]
    assert strengths == ["guaranteed", "expected"]


def test_groups_on_one_node_share_its_cores() -> None:
    fleet = (*gpus(2, node="n1"), *gpus(2, "l40s", "l40s", node="n1-l", domains=None))
    fleet = tuple(replace(gpu, node="n1", rack="r1") for gpu in fleet)
    ask = a_mixed_ask(1, 1, cores=6_000)
    site = replace(a_site(a_request(ask=ask)), gpus=fleet, hosts=(Host("n1", 10_000, 0),))
    assert not solve(site, POLICY).assigns
    enough = replace(site, hosts=(Host("n1", 12_000, 0),))
    assert len(solve(enough, POLICY).assigns) == 1


def test_a_change_moves_all_groups_to_another_start() -> None:
    rows = tuple(
        replace(
            a_held(gpu, starts=4 * HOUR, ends=5 * HOUR, booking="b1", tenant="lab"),
            project="folding",
        )
        for gpu in ("n1-0", "n2-0")
    )
    target = a_request("c1", a_mixed_ask(1, 1), earliest=6 * HOUR, fixed=True)
    plan = solve(a_site(held=rows, changes=(Change("b1", target),)), POLICY)
    assert [each.granted for each in plan.changes] == [True]
    assert counts(plan) == {"h100": 1, "l40s": 1}
    assert plan.assigns[0].starts == NOON + 6 * HOUR


def test_a_booking_of_one_class_keeps_its_bytes_and_a_mixed_one_is_read_again() -> None:
    plain = a_site(a_request())
    assert b"groups" not in encode(plain)
    mixed = a_site(a_request(ask=a_mixed_ask()))
    assert decode(Snapshot, encode(mixed)).requests == mixed.requests


@pytest.mark.parametrize("seed", range(40))
def test_the_earliest_start_is_that_of_a_plain_search(seed: int) -> None:
    """Held work and one mixed request: no earlier second has room and quota for all groups."""
    chance = Random(seed)  # noqa: S311  a made-up site, the same each time
    held = tuple(
        a_held(gpu.id, ends=chance.randint(1, 6) * 1_800, tenant=chance.choice(("lab", "other")))
        for gpu in FLEET
        if chance.random() < 0.6
    )
    limits = tuple(
        a_limit(tenant, 2, name, borrow=None) for tenant, name in product(("lab", "other"), ("h100", "l40s"))
    )
    ask = a_mixed_ask(chance.randint(1, 3), chance.randint(1, 3))
    site = a_site(a_request(ask=ask, tier="flex", hours=chance.choice((0.5, 2))), held=held, limits=limits)
    plan = solve(site, POLICY)
    (row,) = given_by(plan)
    wanted = {"h100": ask.count, "l40s": ask.groups[0].count}
    assert counts(plan) == wanted
    assert not overlaps(site, plan)
    assert not over_limit(site, plan)

    def is_free(starts: int) -> bool:
        free = dict.fromkeys(("h100", "l40s"), 0)
        for gpu in FLEET:
            free[gpu.gpu_class] += all(each.place.gpu != gpu.id or each.ends <= starts for each in held)
        return all(free[name] >= count for name, count in wanted.items())

    instants = sorted({NOON, *(each.ends for each in held)})
    assert row.starts == next(each for each in instants if is_free(each))


def test_a_full_window_is_refused_with_the_next_that_serves_all_groups() -> None:
    held = (a_held("n1-0", ends=2 * HOUR), a_held("n2-1", ends=3 * HOUR))
    asked = a_request(ask=a_mixed_ask(4, 4), fixed=True, earliest=HOUR)
    (refusal,) = solve(a_site(asked, held=held), POLICY).refusals
    (later,) = refusal.alternatives
    assert (later.starts, later.gpu_class, later.count) == (NOON + 3 * HOUR, "h100", 4)
    assert [(each.classes, each.count) for each in later.groups] == [(("l40s",), 4)]
