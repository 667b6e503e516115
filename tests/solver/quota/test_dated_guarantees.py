"""A guarantee between two dates: what the trees allow then, who starts when, and who is paused."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from solver import (
    DatedGuarantee,
    Held,
    Limit,
    Override,
    Quota,
    Request,
    Snapshot,
    Tier,
    Use,
    decode,
    encode,
    solve,
)
from solver.model.instants import next_instant
from tests.solver.builders import (
    DAY,
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

UNITS = 56_000
LAB, OTHER = a_limit("lab", 1, borrow=None), a_limit("other", 1, borrow=None)
FLEX = Tier("flex", pausable=True, counts=True, grace=120)
TIERS = (Tier("standard", pausable=False, counts=True), FLEX, Tier("spot", pausable=True, counts=False))


def dated(gpus_sure: int, starts: int, ends: int, owner: str = "lab") -> DatedGuarantee:
    """A guarantee of so many H100 from `starts` to `ends`, in seconds from noon."""
    return DatedGuarantee(owner, "h100", NOON + starts, NOON + ends, gpus_sure * UNITS)


def running(at: int, tenant: str) -> Held:
    """A running booking of a tier that can be paused, for nine hours."""
    row = a_held(f"n1-{at}", booking=f"run{at}", tenant=tenant, project="p", tier="flex", ends=9 * HOUR)
    return replace(row, since=NOON - HOUR)


def a_site(
    *requests: Request,
    guarantees: tuple[DatedGuarantee, ...],
    held: tuple[Held, ...] = (),
    limits: tuple[Limit, ...] = (LAB, OTHER),
    fleet: int = 4,
) -> Snapshot:
    """Four GPUs; one is guaranteed to each of two organisations at other times."""
    site = a_snapshot(*requests, fleet=gpus(fleet), held=held, limits=limits)
    return replace(site, tiers=TIERS, guarantees=guarantees)


def starts_of(site: Snapshot) -> dict[str, int]:
    """Seconds from noon at which each booking starts."""
    plan = solve(site, POLICY)
    given = {row.booking: row.starts - NOON for row in plan.assigns}
    return given | {row.booking: row.starts - NOON for row in plan.waits}


def test_work_that_is_never_paused_starts_with_the_higher_guarantee_and_ends_within_it() -> None:
    higher = (dated(3, 10 * HOUR, 14 * HOUR),)
    three = a_request(ask=an_ask(3), hours=4)
    assert starts_of(a_site(three, guarantees=higher)) == {"b1": 10 * HOUR}
    assert starts_of(a_site(replace(three, duration=3 * HOUR), guarantees=higher)) == {"b1": 10 * HOUR}
    assert starts_of(a_site(replace(three, duration=4 * HOUR + 1), guarantees=higher)) == {}
    assert starts_of(a_site(three, guarantees=())) == {}
    adjacent = (*higher, dated(4, 14 * HOUR, 20 * HOUR))
    assert starts_of(a_site(replace(three, duration=9 * HOUR), guarantees=adjacent)) == {"b1": 10 * HOUR}


def test_a_lower_guarantee_in_the_middle_of_a_window_counts() -> None:
    lower = (dated(1, 2 * HOUR, 3 * HOUR),)
    limits = (a_limit("lab", 3, borrow=None), OTHER)
    two = a_request(ask=an_ask(2), hours=4)
    other_class = replace(lower[0], gpu_class="a100", ends=NOON + DAY, guaranteed=0)
    site = a_site(two, guarantees=(*lower, other_class), limits=limits)
    assert starts_of(site) == {"b1": 3 * HOUR}
    short = replace(two, duration=2 * HOUR)
    assert starts_of(a_site(short, guarantees=lower, limits=limits)) == {"b1": 0}


def test_the_most_at_once_rises_and_falls_with_the_guarantee() -> None:
    limits = (a_limit("lab", 1, borrow=0), OTHER)
    flex = a_request(ask=an_ask(2), hours=2, tier="flex")
    assert starts_of(a_site(flex, guarantees=(dated(2, HOUR, 4 * HOUR),), limits=limits)) == {"b1": HOUR}
    lower = (a_limit("lab", 2, borrow=0), OTHER)
    assert starts_of(a_site(flex, guarantees=(dated(1, HOUR, 4 * HOUR),), limits=lower)) == {"b1": 4 * HOUR}


def test_the_neighbour_who_borrows_is_paused_as_the_guarantee_begins_and_not_before() -> None:
    loans = tuple(running(at, "other") for at in range(4))
    claim = a_request(ask=an_ask(3), hours=2, tier="flex")
    site = a_site(claim, guarantees=(dated(3, HOUR, 4 * HOUR),), held=loans)
    plan = solve(site, POLICY)
    assert not plan.pauses
    assert starts_of(site) == {"b1": HOUR}
    notice = next_instant(site, POLICY, NOON + DAY)
    assert notice <= NOON + HOUR - FLEX.grace
    later = replace(site, now=NOON + HOUR - FLEX.grace)
    pauses = {(each.booking, each.at - NOON) for each in solve(later, POLICY).pauses}
    assert len(pauses) == 3
    assert {at for _, at in pauses} == {HOUR}


def test_who_runs_inside_a_higher_guarantee_is_paused_for_others_after_its_end_only() -> None:
    mine = tuple(running(at, "lab") for at in range(4))
    claim = a_request(ask=an_ask(1), hours=2, tier="flex", tenant="other", project="o")
    inside = a_site(
        claim, guarantees=(dated(4, -HOUR, 2 * HOUR), dated(0, -HOUR, 2 * HOUR, "other")), held=mine
    )
    assert not solve(inside, POLICY).pauses
    over = replace(inside, now=NOON + 2 * HOUR)
    assert len(solve(over, POLICY).pauses) == 1


def test_what_is_guaranteed_and_never_lent_is_kept_from_others_between_the_dates_only() -> None:
    limits = (a_limit("lab", 1, borrow=None, lend=0), OTHER)
    four = a_request(ask=an_ask(3), hours=2, tier="flex", tenant="other", project="o")
    assert starts_of(a_site(four, guarantees=(), limits=limits)) == {"b1": 0}
    kept = (dated(3, -DAY, 5 * HOUR),)
    assert starts_of(a_site(four, guarantees=kept, limits=limits)) == {"b1": 5 * HOUR}


def test_ends_in_the_past_and_owners_without_a_limit_change_nothing() -> None:
    three = a_request(ask=an_ask(3), hours=4)
    for rows in ((dated(3, -DAY, 0),), (dated(3, 0, DAY, "nobody"),)):
        site = a_site(three, guarantees=rows)
        assert solve(site, POLICY) == solve(replace(site, guarantees=()), POLICY)
        assert decode(Snapshot, encode(site)).guarantees == rows


def test_what_stays_though_its_guarantee_was_cut_is_paused_for_no_other_tenant() -> None:
    mine = tuple(replace(running(at, "lab"), override=f"run{at}") for at in range(4))
    claim = a_request(ask=an_ask(1), hours=2, tier="flex", tenant="other", project="o")
    site = a_site(claim, guarantees=(), held=mine)
    assert len(solve(site, POLICY).pauses) == 1
    kept = tuple(
        Override(f"kept {at}", "lab", "h100", 0, 0, booking=f"run{at}", keeps=True, guarantee=True)
        for at in range(4)
    )
    assert not solve(replace(site, overrides=kept), POLICY).pauses
    assert len(solve(replace(site, overrides=kept[:2]), POLICY).pauses) == 1
    three = a_request(ask=an_ask(3), hours=4)
    stays = replace(kept[0], id="kept b1", booking="b1")
    fits = replace(a_site(replace(three, override="b1"), guarantees=()), overrides=(stays,))
    assert starts_of(fits) == {"b1": 0}


def _static(site: Snapshot, instant: int) -> Snapshot:
    now = {row.owner: row.guaranteed for row in site.guarantees if row.starts <= instant < row.ends}
    limits = tuple(replace(row, guaranteed=now.get(row.owner, row.guaranteed)) for row in site.limits)
    return replace(site, limits=limits, guarantees=())


@pytest.mark.parametrize("seed", range(60))
def test_between_two_dates_quota_is_that_of_the_guarantees_of_then(seed: int) -> None:
    """Windows within one segment of time, against a quota without dates."""
    chance = Random(seed)  # noqa: S311  the same draws each time
    rows = []
    for tenant in ("a", "b", "c"):
        sure = chance.randint(0, 3)
        borrow, lend = chance.choice((None, 0, 2)), chance.choice((None, 0, 1))
        rows.append(a_limit(tenant, sure, borrow=borrow, lend=lend))
        own = chance.randint(0, min(1, sure))
        rows.append(a_limit(f"{tenant}-p", own, parent=tenant, borrow=None, lend=chance.choice((None, 0))))
    edges = [0, *sorted(chance.sample(range(1, 40), 4)), 48]
    guarantees = []
    for starts, ends in pairwise(edges):
        guarantees += [
            dated(chance.randint(1, 5), starts * HOUR, ends * HOUR, tenant)
            for tenant in chance.sample(("a", "b", "c"), chance.randint(0, 3))
        ]
        promised = {
            row.owner: row.guaranteed // UNITS
            for row in _static(
                replace(a_snapshot(limits=tuple(rows)), guarantees=tuple(guarantees)), NOON + starts * HOUR
            ).limits
        }
        guarantees += [
            dated(chance.randint(0, promised[tenant]), starts * HOUR, ends * HOUR, f"{tenant}-p")
            for tenant in chance.sample(("a", "b", "c"), chance.randint(0, 3))
        ]
    site = replace(a_snapshot(limits=tuple(rows)), tiers=TIERS, guarantees=tuple(guarantees))
    moving = Quota(site, {"h100": 12 * UNITS})
    for starts, ends in pairwise(edges):
        window = (NOON + starts * HOUR, NOON + ends * HOUR)
        still = Quota(_static(site, window[0]), {"h100": 12 * UNITS})
        for _ in range(12):
            tenant = chance.choice("abc")
            use = Use(
                (tenant, f"{tenant}-{chance.choice('pq')}"),
                chance.choice(TIERS).slug,
                "h100",
                chance.randint(1, 3) * UNITS,
            )
            assert (moving.over(use, window) is None) == (still.over(use, window) is None)
            assert moving.borrowed(use, window) == still.borrowed(use, window)
            assert moving.is_within_guarantee(use, window) == still.is_within_guarantee(use, window)
            assert moving.takes_back(use, window) == still.takes_back(use, window)
            at = np.array([window[0]], dtype=np.int64)
            seconds = window[1] - window[0]
            one, two = moving.allows(use, at, seconds), still.allows(use, at, seconds)
            assert (one is None or bool(one[0])) == (two is None or bool(two[0]))
            if chance.random() < 0.7:
                moving.add(use, window)
                still.add(use, window)


PROJECTS = (
    a_limit("lab", 4, borrow=None),
    a_limit("p", 2, parent="lab", borrow=None, lend=0),
    a_limit("q", 0, parent="lab", borrow=None),
    OTHER,
)
"""The organisation `lab` has four GPUs, of which its project p keeps two for itself."""


def test_what_a_project_keeps_changes_at_its_dates_and_the_other_project_starts_with_that() -> None:
    two = a_request(ask=an_ask(3), hours=2, project="q")
    less = (dated(1, 3 * HOUR, 6 * HOUR, "p"),)
    assert starts_of(a_site(two, guarantees=less, limits=PROJECTS)) == {"b1": 3 * HOUR}
    assert starts_of(a_site(two, guarantees=(), limits=PROJECTS)) == {}
    # With the organisation's own at the same instant, so that only what is kept changes.
    both = (dated(5, 3 * HOUR, 6 * HOUR), dated(3, 3 * HOUR, 6 * HOUR, "p"))
    own = a_request(ask=an_ask(5), hours=2, project="p")
    assert starts_of(a_site(own, guarantees=both, limits=PROJECTS, fleet=6)) == {"b1": 3 * HOUR}


def test_who_runs_on_the_part_of_its_project_is_paused_for_another_project_at_its_dates_only() -> None:
    limits = (
        a_limit("lab", 4, borrow=None),
        a_limit("p", 4, parent="lab", borrow=None),
        a_limit("q", 0, parent="lab", borrow=None),
    )
    mine = tuple(running(at, "lab") for at in range(4))
    claim = a_request(ask=an_ask(2), hours=2, tier="flex", project="q")
    site = a_site(claim, guarantees=(), held=mine, limits=limits)
    assert not solve(site, POLICY).pauses
    moved = (dated(2, -HOUR, 9 * HOUR, "p"), dated(2, -HOUR, 9 * HOUR, "q"))
    pauses = solve(replace(site, guarantees=moved), POLICY).pauses
    assert len(pauses) == 2
    later = tuple(replace(row, starts=NOON + 5 * HOUR) for row in moved)
    assert not solve(replace(site, guarantees=later), POLICY).pauses


def test_what_stays_though_its_projects_guarantee_was_cut_is_paused_for_no_project_but_for_tenants() -> None:
    limits = (
        a_limit("lab", 4, borrow=None),
        a_limit("p", 0, parent="lab", borrow=None),
        a_limit("q", 4, parent="lab", borrow=None),
    )
    mine = tuple(replace(running(at, "lab"), override=f"run{at}") for at in range(4))
    kept = tuple(
        Override(f"kept {at}", "p", "h100", 0, 0, booking=f"run{at}", keeps=True, guarantee=True)
        for at in range(4)
    )
    claim = a_request(ask=an_ask(2), hours=2, tier="flex", project="q")
    site = a_site(claim, guarantees=(), held=mine, limits=limits)
    assert len(solve(site, POLICY).pauses) == 2
    assert not solve(replace(site, overrides=kept), POLICY).pauses
    # Its organisation cut the project's guarantee itself: that keeps nothing from others.
    rival = a_request(ask=an_ask(2), hours=2, tier="flex", tenant="other", project="o")
    shared = (a_limit("lab", 2, borrow=None), *limits[1:2], a_limit("other", 2, borrow=None))
    taken = a_site(rival, guarantees=(), held=mine, limits=shared)
    assert len(solve(replace(taken, overrides=kept), POLICY).pauses) == 2
