"""Bookings of several classes that may be paused: they stand like spot on every class."""

from dataclasses import replace
from itertools import product

import pytest

from solver import Ask, Held, Plan, Request, Snapshot, solve
from solver.model.limits import Limit
from solver.model.sites.nodes import Host
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, an_ask, gpus, whole
from tests.solver.pausing import GRACE, a_claim, a_site, given, notices, rest_of, rules, running
from tests.solver.truth import over_limit, overlaps
from tests.solver.world import with_room_made

FLEET = (*gpus(1, node="n1"), *gpus(4, "l40s", "l40s", node="n2", domains=None))
CLASS_OF = {gpu.id: gpu.gpu_class for gpu in FLEET}
LIMITS = tuple(
    a_limit(tenant, sure, name, borrow=None)
    for (tenant, sure), name in product((("lab", 1), ("firm", 0), ("inst", 0)), ("h100", "l40s"))
)
BOTH = replace(an_ask(1), groups=(an_ask(4, "l40s"),))


def sure_of(tenant: str) -> tuple[Limit, ...]:
    """The limits with all guarantees at one organisation."""
    sure = 4 * 56_000
    return tuple(replace(row, guaranteed=sure if row.owner == tenant else 0) for row in LIMITS)


def mixed(name: str = "both", *, tenant: str = "firm", tier: str = "flex") -> tuple[Held, ...]:
    """`1 h100 + 4 l40s` that runs on all of the fleet."""
    rows = running(name, *(whole(gpu.id) for gpu in FLEET), tenant=tenant, tier=tier)
    return tuple(replace(row, mixed=True) for row in rows)


def mixed_site(
    *requests: Request, held: tuple[Held, ...] = (), limits: tuple[Limit, ...] = LIMITS
) -> Snapshot:
    """A site whose running mixed bookings have a request for what is left of them."""
    site = a_site(*requests, held=held, fleet=FLEET, limits=limits)
    names = sorted({row.booking for row in held})
    rows = {name: [row for row in held if row.booking == name] for name in names}
    rests = (replace(rest_of(each, NOON), ask=_ask_of(each)) for each in rows.values())
    return replace(site, running=tuple(rests))


def _ask_of(rows: list[Held]) -> Ask:
    names = [CLASS_OF[row.place.gpu] for row in rows]
    asks = [an_ask(names.count(name), name) for name in sorted(set(names))]
    return replace(asks[0], groups=tuple(asks[1:]))


def resume_of(plan: Plan, name: str = "both") -> tuple[int, dict[str, int]]:
    """When it resumes, from NOON, and how many GPUs it then has of each class."""
    row = next(each for each in plan.waits if each.booking == name)
    names = [CLASS_OF[place.gpu] for place in row.places]
    return row.starts - NOON, {name: names.count(name) for name in sorted(set(names))}


def test_a_claim_on_one_class_pauses_all_of_it_and_it_resumes_on_all_classes() -> None:
    """Example 16 of the design: borrowed `1 h100 + 4 l40s` runs; a claim inside of 1 l40s."""
    claim = a_claim(ask=an_ask(1, "l40s"), hours=2)
    alongside = a_claim("next", ask=an_ask(1), tier="flex", tenant="inst")
    site = mixed_site(claim, alongside, held=mixed())
    plan = solve(site, POLICY)
    assert notices(plan) == {"both": ("claim", GRACE)}
    # Its H100 is free from then on, too.
    assert given(plan)["next"] == ("wait", GRACE)
    # Room opens on a grid of five minutes.
    assert resume_of(plan) == (2 * HOUR + 300, {"h100": 1, "l40s": 4})
    true = with_room_made(site, plan)
    assert not overlaps(true, plan)
    assert not over_limit(true, plan)


@pytest.mark.parametrize("gpu_class", ["h100", "l40s"])
@pytest.mark.parametrize("tenant", ["inst", "firm"])
def test_a_borrowed_claim_of_an_equal_tier_pauses_it_from_either_class(gpu_class: str, tenant: str) -> None:
    """Whoever may pause spot may pause it: another organisation, and its own."""
    claim = a_claim(ask=an_ask(1, gpu_class), tier="flex", tenant=tenant)
    plan = solve(mixed_site(claim, held=mixed()), POLICY)
    assert notices(plan) == {"both": ("claim", GRACE)}
    assert rules(plan) == {"both": "one_class"}


def test_inside_its_guarantees_it_is_paused_as_well() -> None:
    limits = sure_of("firm")
    claim = a_claim(ask=an_ask(1, "l40s"), tier="flex", tenant="inst")
    assert notices(solve(mixed_site(claim, held=mixed(), limits=limits), POLICY)) == {
        "both": ("claim", GRACE)
    }


@pytest.mark.parametrize("tier", ["spot"])
def test_spot_has_it_not_paused(tier: str) -> None:
    claim = a_claim(ask=an_ask(1, "l40s"), tier=tier, tenant="inst")
    assert notices(solve(mixed_site(claim, held=mixed()), POLICY)) == {}


@pytest.mark.parametrize("victim", ["flex", "spot"])
@pytest.mark.parametrize("tenant", ["firm", "lab"])
def test_it_has_nobody_paused_inside_its_guarantees_either(victim: str, tenant: str) -> None:
    held = tuple(
        row
        for number, gpu in enumerate(FLEET)
        for row in running(f"r{number}", whole(gpu.id), tenant=tenant, tier=victim)
    )
    limits = sure_of("lab")
    first = a_claim(ask=BOTH, tier="flex")
    for asked in (first, replace(first, paused=True)):
        plan = solve(mixed_site(asked, held=held, limits=limits), POLICY)
        assert notices(plan) == {}
        (wait,) = plan.waits
        assert (wait.starts - NOON, wait.strength) == (6 * HOUR, "expected")
        assert "free_room_only" in [each.code for each in wait.reasons]


def test_it_starts_in_free_room_after_those_of_one_class() -> None:
    """In the queue it is behind whoever may have it paused: it would start in vain."""
    ahead = a_claim("one", ask=an_ask(4, "l40s"), tier="flex", tenant="inst", submitted=60)
    both = a_claim("both", ask=BOTH, tier="flex", tenant="firm", submitted=0)
    plan = solve(mixed_site(both, ahead), POLICY)
    assert given(plan) == {"one": ("assign", 0), "both": ("wait", HOUR)}
    assert given(solve(mixed_site(both), POLICY)) == {"both": ("assign", 0)}


def test_what_it_uses_takes_nothing_from_a_guarantee_and_is_limited_itself() -> None:
    limits = tuple(a_limit(*each, borrow=0) for each in product(("lab", "firm"), (2,), ("h100", "l40s")))
    two = replace(an_ask(1), groups=(an_ask(2, "l40s"),))
    rows = tuple(
        replace(row, mixed=True)
        for row in running("both", whole("n1-0"), whole("n2-0"), whole("n2-1"), tenant="lab")
    )
    # The own work that counts does not see it, and takes its place within the limit.
    claim = a_claim(ask=an_ask(2, "l40s"), tier="flex")
    plan = solve(mixed_site(claim, held=rows, limits=limits), POLICY)
    assert given(plan) == {"claim": ("assign", 0)}
    # It sees all that its organisation uses.
    busy = running("run", whole("n2-0"), tenant="lab", tier="standard")
    site = mixed_site(a_claim(ask=two, tier="flex"), held=busy, limits=limits)
    assert given(solve(site, POLICY)) == {"claim": ("wait", 6 * HOUR)}


def test_the_host_cores_of_all_its_nodes_come_free() -> None:
    rows = tuple(replace(row, cores=8_000) for row in mixed())
    hosts = (Host("n1", 8_000, 0), Host("n2", 32_000, 0))
    claim = a_claim(ask=replace(an_ask(1, "l40s"), cores=8_000), hours=2)
    alongside = a_claim("next", ask=replace(an_ask(1), cores=8_000), tier="flex", tenant="inst")
    plan = solve(replace(mixed_site(claim, alongside, held=rows), hosts=hosts), POLICY)
    assert notices(plan) == {"both": ("claim", GRACE)}
    assert given(plan)["next"] == ("wait", GRACE)


def test_a_claim_on_both_classes_counts_it_once() -> None:
    """A booking of several classes that is never paused takes all of it, and gives notice."""
    claim = a_claim(ask=replace(an_ask(1), groups=(an_ask(1, "l40s"),)), tier="standard")
    plan = solve(mixed_site(claim, held=mixed()), POLICY)
    assert notices(plan) == {"both": ("claim", GRACE)}
    assert {each.booking: each.strength for each in plan.waits}["claim"] == "firm"


def test_suspended_it_waits_for_its_own_gpus_of_all_classes() -> None:
    home = tuple(whole(gpu) for gpu in ("n1-0", "n2-0"))
    busy = running("run", whole("n2-0"), tenant="lab", tier="standard", ends=HOUR)
    ask = replace(an_ask(1), groups=(an_ask(1, "l40s"),))
    asked = replace(a_claim(ask=ask, tier="flex", tenant="firm"), paused=True, home=home)
    for patience, starts in ((0, 0), (2 * HOUR, HOUR)):
        plan = solve(mixed_site(replace(asked, home_wait=patience), held=busy), POLICY)
        assert given(plan)["claim"][1] == starts


def test_what_it_borrows_is_the_sum_of_its_classes_also_once_it_has_notice() -> None:
    plan = solve(mixed_site(held=mixed()), POLICY)
    assert [(each.own, each.borrowed) for each in plan.borrows] == [(0, 5 * 56_000)]
    notified = tuple(replace(row, pausing=True, ends=NOON + GRACE) for row in mixed())
    rest = replace(rest_of(notified, NOON), ask=BOTH, duration=HOUR, earliest=NOON + GRACE, paused=True)
    plan = solve(replace(mixed_site(rest, held=notified), running=()), POLICY)
    assert {each.borrowed for each in plan.borrows} == {5 * 56_000}
