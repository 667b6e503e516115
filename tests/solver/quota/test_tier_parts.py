"""A part of a guarantee for some tiers: what the other tiers may use, and what is paused for which claim."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from solver import (
    DatedGuarantee,
    Held,
    Limit,
    Quota,
    Request,
    Snapshot,
    Tier,
    TierPart,
    Use,
    decode,
    encode,
    solve,
)
from tests.solver.builders import HOUR, NOON, POLICY, a_held, a_limit, a_request, a_snapshot, an_ask, gpus

UNITS = 56_000
LAB, OTHER = a_limit("lab", 4, borrow=None), a_limit("other", 2, borrow=None)
FLEX = Tier("flex", pausable=True, counts=True, grace=120)
PREMIUM = Tier("premium", pausable=False, counts=True)
TIERS = (
    PREMIUM,
    Tier("standard", pausable=False, counts=True),
    FLEX,
    replace(FLEX, slug="cheap"),
    Tier("spot", pausable=True, counts=False),
)
TWO_FOR_PREMIUM = TierPart("lab", "h100", 2 * UNITS, ("premium",))


def a_site(
    *requests: Request,
    parts: tuple[TierPart, ...] = (TWO_FOR_PREMIUM,),
    held: tuple[Held, ...] = (),
    limits: tuple[Limit, ...] = (LAB, OTHER),
    fleet: int = 6,
) -> Snapshot:
    """Six GPUs, of which four are guaranteed to one organisation and two to the other."""
    site = a_snapshot(*requests, fleet=gpus(fleet), held=held, limits=limits)
    return replace(site, tiers=TIERS, tier_parts=parts)


def a_claim(count: int, tier: str, **more: Any) -> Request:  # noqa: ANN401 (fields of a request)
    """A request of the organisation for two hours."""
    return replace(a_request(ask=an_ask(count), hours=2, tier=tier), **more)


def running(at: int, tier: str, tenant: str = "lab") -> Held:
    row = a_held(f"n1-{at}", booking=f"run{at}", tenant=tenant, project="p", tier=tier, ends=9 * HOUR)
    return replace(row, since=NOON - HOUR)


def starts_of(site: Snapshot) -> dict[str, int]:
    plan = solve(site, POLICY)
    given = {row.booking: row.starts - NOON for row in plan.assigns}
    return given | {row.booking: row.starts - NOON for row in plan.waits}


def test_other_tiers_stay_within_what_is_left_and_the_named_ones_use_all() -> None:
    assert starts_of(a_site(a_claim(2, "standard"))) == {"b1": 0}
    assert starts_of(a_site(a_claim(3, "standard"))) == {}
    assert starts_of(a_site(a_claim(3, "standard"), parts=())) == {"b1": 0}
    assert starts_of(a_site(a_claim(4, "premium"))) == {"b1": 0}
    # Premium uses what is left of the part first come, first served, and standard only the rest.
    one = (running(0, "premium"), running(1, "premium"), running(2, "premium"))
    assert starts_of(a_site(a_claim(1, "standard"), held=one)) == {"b1": 0}
    assert starts_of(a_site(a_claim(2, "standard"), held=one)) == {"b1": 9 * HOUR}


def test_the_refusal_says_how_much_is_left_for_its_tier() -> None:
    (refused,) = solve(a_site(a_claim(3, "standard")), POLICY).refusals
    (why,) = [each for each in refused.reasons if each.code == "guarantee_only"]
    assert (dict(why.facts)["guaranteed"], dict(why.facts)["asked"]) == (2 * UNITS, 3 * UNITS)


def test_a_tier_that_can_be_paused_borrows_above_what_is_left_and_is_paused_for_the_named_one() -> None:
    mine = tuple(running(at, "flex") for at in range(6))
    premium = a_claim(2, "premium")
    only = replace(TWO_FOR_PREMIUM, tiers=("cheap",))
    assert len(solve(a_site(premium, held=mine), POLICY).pauses) == 2
    # At the same level: two of four are inside without a part, and the claim borrows.
    cheap = a_claim(2, "cheap")
    assert not solve(a_site(cheap, held=mine, parts=()), POLICY).pauses
    pauses = solve(a_site(cheap, held=mine, parts=(only,)), POLICY).pauses
    assert len(pauses) == 2
    assert not solve(a_site(a_claim(2, "flex"), held=mine, parts=(only,)), POLICY).pauses


def test_a_neighbour_has_what_is_above_the_rest_paused() -> None:
    mine = tuple(running(at, "flex") for at in range(4))
    theirs = tuple(running(at, "premium", "third") for at in (4, 5))
    claim = a_claim(2, "flex", tenant="other", project="o")
    assert not solve(a_site(claim, held=(*mine, *theirs), parts=()), POLICY).pauses
    assert len(solve(a_site(claim, held=(*mine, *theirs)), POLICY).pauses) == 2


def test_planned_starts_of_other_tiers_are_guaranteed_within_the_rest_only() -> None:
    full = tuple(running(at, "premium", "third") for at in range(6))
    claims = [a_claim(1, "flex", booking=f"f{at}") for at in range(3)]
    plan = solve(a_site(*claims, held=full), POLICY)
    assert sorted(str(row.strength) for row in plan.waits) == ["expected", "guaranteed", "guaranteed"]
    plan = solve(a_site(*claims, held=full, parts=()), POLICY)
    assert {row.strength for row in plan.waits} == {"guaranteed"}


def test_without_a_part_a_snapshot_has_the_bytes_of_before_and_with_one_it_is_kept() -> None:
    site = a_site(a_claim(2, "standard"))
    assert b"tier_parts" not in encode(replace(site, tier_parts=()))
    assert decode(Snapshot, encode(site)).tier_parts == (TWO_FOR_PREMIUM,)
    for_cheap = replace(TWO_FOR_PREMIUM, gpu_class="a100", units=UNITS, tiers=("cheap",))
    elsewhere = (replace(TWO_FOR_PREMIUM, owner="nobody"), for_cheap)
    assert solve(replace(site, tier_parts=elsewhere), POLICY) == solve(replace(site, tier_parts=()), POLICY)


@pytest.mark.parametrize("seed", range(40))
def test_quota_with_a_part_is_that_of_two_counts(seed: int) -> None:
    """All that counts stays within the guarantee, and other tiers within the rest, at each hour."""
    chance = Random(seed)  # noqa: S311  the same draws each time
    sure, part = chance.randint(2, 6), chance.randint(1, 4)
    dated = DatedGuarantee("lab", "h100", NOON + 4 * HOUR, NOON + 8 * HOUR, chance.randint(0, 8) * UNITS)
    site = replace(
        a_snapshot(limits=(a_limit("lab", sure, borrow=None),)),
        tiers=TIERS,
        tier_parts=(replace(TWO_FOR_PREMIUM, units=part * UNITS),),
        guarantees=(dated,),
    )
    quota, used = Quota(site, {"h100": 20 * UNITS}), list[tuple[str, int, int, int]]()
    for _ in range(30):
        tier, units = chance.choice(("premium", "standard")), chance.randint(1, 2)
        first = chance.randint(0, 10)
        last = first + chance.randint(1, 4)
        fits = True
        for hour in range(first, last):
            now = dated.guaranteed // UNITS if 4 <= hour < 8 else sure
            there = [(t, u) for t, u, a, b in used if a <= hour < b]
            every = sum(u for _, u in there) + units
            others = sum(u for t, u in there if t == "standard") + units
            fits = fits and every <= now and (tier == "premium" or others <= max(0, now - part))
        use = Use(("lab", "p"), tier, "h100", units * UNITS)
        window = (NOON + first * HOUR, NOON + last * HOUR)
        assert (quota.over(use, window) is None) == fits
        assert quota.is_within_guarantee(use, window) == fits
        if fits:
            quota.add(use, window)
            used.append((tier, units, first, last))
