"""Who may pause which booking: the table of docs/decisions/preemption.md, and its edges."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from solver import (
    Cooling,
    Held,
    Limit,
    Plan,
    PlannedStart,
    Request,
    Snapshot,
    Tier,
    solve,
)
from solver.model.inputs import Change
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, a_snapshot, an_ask, gpus, whole
from tests.solver.pausing import given, later, notices, rest_of, rules
from tests.solver.pausing import running as running_of

TIERS = (
    Tier("prem", pausable=False, counts=True, priority=90),
    Tier("std", pausable=False, counts=True, priority=50),
    Tier("flex", pausable=True, counts=True, priority=40, grace=120, protected=600),
    Tier("low", pausable=True, counts=True, priority=20, grace=120, protected=600),
    Tier("spot", pausable=True, counts=False, priority=10, grace=30),
)
PRIORITY = {tier.slug: tier.priority for tier in TIERS}
FIRST = 600 + 30 + 120
"""The first second at which a run that begins at noon can be out: protected, margin, grace."""


def runs(
    name: str,
    *numbers: int,
    tenant: str = "a",
    project: str = "p",
    tier: str = "flex",
    cycle: int = 1,
    hours: float = 8,
    since: int = -2 * HOUR,
    position: int = 0,
) -> tuple[Held, ...]:
    """A booking on these GPUs of n1, two hours old unless said, granted in that cycle."""
    places = (whole(f"n1-{number}") for number in numbers)
    rows = running_of(name, *places, tenant=tenant, tier=tier, since=since, ends=int(hours * HOUR))
    return tuple(replace(row, project=f"{tenant}-{project}", granted=(cycle, position)) for row in rows)


def asks(
    name: str,
    count: int = 1,
    *,
    tenant: str = "b",
    project: str = "p",
    tier: str = "std",
    hours: float = 4,
    at: int = 0,
    fixed: bool = False,
) -> Request:
    """A booking that was just asked for."""
    return Request(
        booking=name,
        tenant=tenant,
        project=f"{tenant}-{project}",
        tier=tier,
        priority=PRIORITY[tier],
        submitted=NOON + at,
        ask=an_ask(count),
        duration=int(hours * HOUR),
        earliest=NOON + at,
        latest=None,
        fixed=fixed,
        planned=None,
    )


def site(
    *requests: Request,
    held: Iterable[Held] = (),
    limits: tuple[Limit, ...],
    fleet: int = 8,
    now: int = 0,
) -> Snapshot:
    """One node at noon."""
    held = tuple(held)
    base = a_snapshot(*requests, held=held, fleet=gpus(fleet), limits=limits, now=now)
    return replace(base, tiers=TIERS)


def backlog(count: int) -> tuple[Held, ...]:
    """So many single GPUs of tenant `a` that began at noon."""
    return tuple(
        row
        for number in range(count)
        for row in runs(f"a{number:02}", number, since=0, position=number, hours=4)
    )


def sure(**owners: float) -> tuple[Limit, ...]:
    """Guarantees of tenants, all of which may borrow."""
    return tuple(a_limit(name, units, borrow=None) for name, units in owners.items())


class TestInsideAGuarantee:
    @pytest.mark.parametrize(("count", "hours"), [(1, 1), (1, 8), (4, 4)])
    def test_a_claim_starts_as_soon_as_who_borrows_can_be_out(self, count: int, hours: float) -> None:
        """Example 1, with the eight that run: nobody gets a notice while it is protected."""
        claim = asks("b0", count, hours=hours, at=60)
        base = site(claim, held=backlog(8), limits=sure(a=4, b=4), now=60)
        plan = solve(base, POLICY)
        assert given(plan) == {"b0": ("wait", FIRST)}
        assert notices(plan) == {}
        before = solve(later(base, plan, 599), POLICY)
        assert (given(before), notices(before)) == ({"b0": ("wait", FIRST)}, {})
        due = solve(later(base, before, 600), POLICY)
        assert len(due.pauses) == count
        assert set(rules(due).values()) == {"taken_back"}
        assert given(due)["b0"] == ("wait", FIRST)

    def test_a_run_with_a_longer_notice_leaves_a_planned_claim_at_its_second(self) -> None:
        """Who begins after the start was planned may have a longer notice than its victim."""
        spot = running_of("s0", whole("n1-0"), tenant="a", tier="spot", since=-600, pauses=1)
        held = (*spot, *runs("d0", 1, tenant="d", tier="std"))
        base = site(asks("b0"), held=held, limits=sure(b=1, d=1, a=0), fleet=2)
        plan = solve(base, POLICY)
        rested = -600 + POLICY.cool_down
        assert given(plan) == {"b0": ("wait", rested + 30 + 120)}
        alongside = (*spot, *runs("d1", 1, tenant="d", since=60))
        after = solve(replace(later(base, plan, 60), held=alongside), POLICY)
        assert given(after) == given(plan)

    def test_a_pin_gives_up_its_victims_when_there_is_room_elsewhere_and_says_so(self) -> None:
        claim = asks("b0", at=HOUR)
        claim = replace(claim, ask=replace(claim.ask, pin=("n1/0",)))
        held = (*runs("s0", 0, tier="spot"), *runs("d0", 1, tenant="d", tier="std"))
        base = site(claim, held=held, limits=sure(b=1, d=1, a=0), fleet=2)
        plan = solve(base, POLICY)
        (wait,) = plan.waits
        assert (wait.starts, wait.strength) == (NOON + HOUR, "expected"), "it has a victim"
        (wait,) = solve(replace(later(base, plan, 60), held=held[:1]), POLICY).waits
        assert (wait.starts, wait.strength) == (NOON + 8 * HOUR, "guaranteed")
        assert wait.delayed_by is not None
        assert wait.delayed_by.code == "pinned"

    @pytest.mark.parametrize("is_newcomer_ahead", [False, True])
    def test_who_has_notice_for_an_earlier_plan_knows_when_it_resumes(
        self, *, is_newcomer_ahead: bool
    ) -> None:
        mine = backlog(1)
        held = (*mine, *runs("d0", 1, tenant="d", tier="std", hours=2))
        behind = asks("e0", tenant="a", tier="flex")
        base = site(asks("b0", hours=1), behind, held=held, limits=sure(a=0, b=1, c=1, d=0), fleet=2)
        plan = solve(base, POLICY)
        assert given(plan) == {"b0": ("wait", FIRST), "e0": ("wait", 2 * HOUR)}
        due = replace(later(base, plan, 600), running=(rest_of(mine, NOON + 600),))
        if is_newcomer_ahead:
            newcomer = asks("c0", tenant="c", tier="prem", at=600)
            due = replace(due, requests=(*due.requests, newcomer))
        plan = solve(due, POLICY)
        # Nobody knew of the pause, so a higher tier inside its guarantee goes first.
        paused_for = ("c0", 720) if is_newcomer_ahead else ("b0", FIRST)
        assert notices(plan) == {"a00": paused_for}
        assert given(plan)["a00"][1] >= paused_for[1] + HOUR

    def test_a_resume_goes_round_a_place_that_is_kept_ahead_of_it(self) -> None:
        mine = backlog(1)
        held = (*mine, *runs("d0", 1, tenant="d", tier="std", hours=1))
        asked = replace(asks("p0", tenant="c", hours=2), until=NOON + 3 * HOUR)
        base = site(asks("b0", hours=2), held=held, limits=sure(a=0, b=1, c=1, d=0), fleet=2, now=600)
        rest = (rest_of(mine, NOON + 600),)
        plan = solve(replace(base, running=rest, pending=(asked,)), POLICY)
        assert notices(plan) == {"a00": ("b0", 600 + 120)}
        assert [soft.starts for soft in plan.soft] == [NOON + HOUR]
        assert given(plan)["a00"] >= ("wait", 2 * HOUR)

    def test_a_resume_that_takes_the_quota_of_spot_moves_it_at_once(self) -> None:
        """Limits ignore spot for the resume, so the planned start of the spot booking gives way."""
        mine = backlog(1)
        held = (*mine, *runs("d0", 1, tenant="d", tier="std", hours=2))
        spot = asks("e0", tenant="a", tier="spot")
        limits = (a_limit("a", 0, borrow=1), *sure(b=1, d=0))
        base = site(asks("b0", hours=1), spot, held=held, limits=limits, fleet=2)
        plan = solve(base, POLICY)
        assert given(plan)["e0"] == ("wait", 2 * HOUR), "once a00 has left"
        due = replace(later(base, plan, 600), running=(rest_of(mine, NOON + 600),))
        plan = solve(due, POLICY)
        assert notices(plan) == {"a00": ("b0", FIRST)}
        resumes = next(wait for wait in plan.waits if wait.booking == "a00")
        moved = next(wait for wait in plan.waits if wait.booking == "e0")
        assert moved.starts >= resumes.ends
        codes = {why.code for why in resumes.reasons}
        assert codes, "it resumes at once, and this shows nothing"
        assert "not_before" not in codes, "its owner asked for no later start"
        assert moved.delayed_by is not None
        assert (moved.delayed_by.code, dict(moved.delayed_by.numbers)["rule"]) == (
            "overtaken",
            "tier",
        )

    @pytest.mark.parametrize(("count", "hours"), [(1, 1), (1, 8), (4, 4)])
    def test_a_planned_backlog_of_borrowed_work_is_no_obstacle(self, count: int, hours: float) -> None:
        """Example 1 as a whole: 52 more have planned starts, up to a day ahead."""
        more = [asks(f"a{n:02}", tenant="a", tier="flex") for n in range(8, 60)]
        base = site(*more, held=backlog(8), limits=sure(a=4, b=4))
        base = later(base, solve(base, POLICY), 60)
        claim = asks("b0", count, hours=hours, at=60)
        plan = solve(replace(base, requests=(*base.requests, claim)), POLICY)
        assert given(plan)["b0"] == ("wait", FIRST)
        starts = [at for name, (_, at) in given(plan).items() if name != "b0"]
        assert len(starts) == 52
        assert max(starts) <= 28 * HOUR

    def test_a_planned_start_moves_for_a_claim_inside_and_keeps_its_second(self) -> None:
        """A guaranteed start of another tenant is planned on the only GPU that can be cleared."""
        held = [
            *runs("a0", 0, tier="std", hours=1),
            *runs("b1", 1, hours=9),
            *runs("a1", 2, hours=1.5),
        ]
        own = replace(asks("a2", tenant="a", at=2 * HOUR), planned=None)
        limits = sure(a=1, b=1, c=1)
        base = site(own, held=held, limits=limits, fleet=3)
        planned = PlannedStart(NOON + 2 * HOUR, NOON + 6 * HOUR, (whole("n1-2"),), "guaranteed")
        own = replace(own, planned=planned)
        claim = asks("c0", tenant="c", hours=8)
        plan = solve(replace(base, requests=(own, claim)), POLICY)
        assert given(plan) == {"a2": ("wait", 2 * HOUR), "c0": ("wait", 120)}
        assert [place.gpu for row in plan.waits if row.booking == "a2" for place in row.places] != [
            place.gpu for row in plan.waits if row.booking == "c0" for place in row.places
        ]

    def test_a_planned_start_that_moves_keeps_what_it_does_not_lend(self) -> None:
        """Inside the tenant's guarantee, the claim still borrows: its other project lends nothing.
        What it borrows is another tenant's, which needs it from half an hour on."""
        limits = (*sure(a=2, b=1), a_limit("a-q", 1, parent="a", borrow=None, lend=0))
        planned = PlannedStart(NOON + HOUR // 2, NOON + 5400, (whole("n1-1"),), "guaranteed")
        other = replace(asks("b0", hours=1, at=HOUR // 2), planned=planned)
        claim = asks("a1", tenant="a", tier="flex", hours=2)
        base = site(other, claim, held=runs("a0", 0), limits=limits, fleet=3)
        plan = solve(base, POLICY)
        assert given(plan) == {"a1": ("wait", 5400), "b0": ("wait", HOUR // 2)}

    def test_nobody_is_paused_inside_for_who_is_guaranteed_nothing(self) -> None:
        """Example 4: the guarantee is the tenant's, whatever its projects have."""
        limits = (
            *sure(a=4, b=0),
            a_limit("a-p", 2, parent="a", borrow=None),
            a_limit("a-q", 2, parent="a", borrow=None),
        )
        held = [row for n in range(4) for row in runs(f"p{n}", n, cycle=n)]
        base = site(asks("b0", tier="flex"), held=held, limits=limits, fleet=4)
        plan = solve(base, POLICY)
        assert (notices(plan), given(plan)["b0"]) == ({}, ("wait", 8 * HOUR))
        asked = asks("q0", 2, tenant="a", project="q", tier="flex")
        plan = solve(replace(base, requests=(asked,)), POLICY)
        assert sorted(notices(plan)) == ["p2", "p3"], "the first two are p's own part"
        whys = [dict(pause.reasons[0].numbers)["whose"] for pause in plan.pauses]
        assert (set(rules(plan).values()), whys) == ({"taken_back"}, ["project"] * 2)
        assert solve(replace(base, requests=(replace(asked, tier="low"),)), POLICY).pauses == ()

    def test_a_gang_beyond_the_guarantee_is_borrowed_whole(self) -> None:
        """Example 7."""
        gang = runs("gang", *range(8))
        base = site(asks("b0"), held=gang, limits=sure(a=4, b=4))
        assert notices(solve(base, POLICY)) == {"gang": ("b0", 120)}
        half = runs("gang", *range(4))
        base = site(asks("b0", tier="flex"), held=half, limits=sure(a=4, b=0), fleet=4)
        assert notices(solve(base, POLICY)) == {}

    def test_who_borrows_leaves_before_the_own_lower_tier(self) -> None:
        """Example 8."""
        low = [row for n in range(2) for row in runs(f"low{n}", n, tier="low")]
        claim = asks("own", tenant="a", tier="flex")
        alone = site(claim, held=low, limits=sure(a=2, b=0), fleet=2)
        assert set(rules(solve(alone, POLICY)).values()) == {"higher_tier"}
        others = runs("other", 2, 3, tenant="b")
        alongside = site(claim, held=[*low, *others], limits=sure(a=2, b=0), fleet=4)
        assert rules(solve(alongside, POLICY)) == {"other": "taken_back"}

    def test_a_borrowed_claim_never_has_own_work_inside_paused(self) -> None:
        """Example 8, the flex beyond the guarantee."""
        low = [row for n in range(2) for row in runs(f"low{n}", n, tier="low")]
        flex = [row for n in range(2) for row in runs(f"f{n}", n + 2, tenant="b")]
        claim = asks("own", 3, tenant="a", tier="flex")
        plan = solve(site(claim, held=[*low, *flex], limits=sure(a=2, b=0), fleet=4), POLICY)
        assert notices(plan) == {}
        one = replace(claim, ask=an_ask(1))
        mine = runs("mine", 4, tenant="a", tier="std"), runs("more", 5, tenant="a", tier="std")
        held = [*low, *flex, *mine[0], *mine[1]]
        plan = solve(site(one, held=held, limits=sure(a=4, b=0), fleet=6), POLICY)
        assert set(notices(plan)) <= {"f0", "f1"}

    def test_the_guarantee_goes_by_grants_and_not_by_names(self) -> None:
        """Example 9: what had somebody paused is not pushed out by its equal of the same cycle."""
        first = runs("z", 0, tenant="c", cycle=7, position=0)
        second = runs("a", 1, tenant="c", cycle=7, position=1)
        claim = asks("b0", tier="flex")
        limits = sure(c=1, b=1)
        plan = solve(site(claim, held=[*first, *second], limits=limits, fleet=2), POLICY)
        assert notices(plan) == {"a": ("b0", 120)}

    def test_a_run_for_which_somebody_was_paused_rests_like_one_that_was_paused(self) -> None:
        """Example 9, in any case."""
        claim = asks("b0", tier="flex")
        for preemptor, starts in ((False, 120), (True, POLICY.cool_down - 900 + 30 + 120)):
            held = tuple(replace(row, preemptor=preemptor) for row in runs("a0", 0, since=-900))
            plan = solve(site(claim, held=held, limits=sure(a=0, b=1), fleet=1), POLICY)
            assert given(plan) == {"b0": ("wait", starts)}


class TestBetweenBorrowers:
    limits = sure(a=0, b=0)

    def test_one_claim_takes_one_and_cannot_be_taken_back(self) -> None:
        """Example 6."""
        base = site(asks("b0", tier="flex", at=60), held=backlog(8), limits=self.limits, now=60)
        plan = solve(base, POLICY)
        assert (given(plan)["b0"], notices(plan)) == (("wait", FIRST), {})
        plan = solve(later(base, plan, 600), POLICY)
        assert rules(plan) == dict.fromkeys(notices(plan), "fairer_share")
        assert len(plan.pauses) == 1
        rest = [row for row in backlog(8) if row.booking != "a00"]
        mine = runs("b0", 0, tenant="b", cycle=2)
        back = site(asks("a99", tenant="a", tier="flex"), held=[*rest, *mine], limits=self.limits)
        assert notices(solve(replace(back, now=NOON + HOUR), POLICY)) == {}

    def test_eight_claims_take_four_whatever_second_they_start(self) -> None:
        """Example 6 and trap 13: the later ones see the earlier ones of the same cycle."""
        asked = [asks(f"b{n}", tier="flex", at=60) for n in range(8)]
        base = site(*asked, held=backlog(8), limits=self.limits, now=60)
        plan = solve(base, POLICY)
        soon = {name for name, (_, at) in given(plan).items() if at == FIRST}
        assert len(soon) == 4
        plan = solve(later(base, plan, 600), POLICY)
        assert len(plan.pauses) == 4
        assert {pause.beneficiary for pause in plan.pauses} == soon

    def test_weights_are_compared_exactly(self) -> None:
        """Of 8 GPUs a weight of 3 may have 6 against one of 1; without a weight nothing."""
        for weight, most in ((3, 6), (0, 0)):
            limits = (self.limits[0], replace(self.limits[1], weight=weight))
            asked = [asks(f"b{n}", tier="flex") for n in range(8)]
            held = [row for n in range(8) for row in runs(f"a{n}", n)]
            plan = solve(site(*asked, held=held, limits=limits), POLICY)
            assert len(plan.pauses) == most


def test_a_tenant_that_has_cancelled_a_claim_has_nobody_paused_for_a_while() -> None:
    claim, held = asks("claim"), [row for n in range(8) for row in runs(f"a{n}", n)]
    at_rest = site(claim, held=held, limits=(a_limit("a", 4), a_limit("b", 4)))
    until = NOON + 900
    cooling = replace(at_rest, cooling=(Cooling("b", until), Cooling("c", until + 60)))
    soon, late = solve(at_rest, POLICY), solve(cooling, POLICY)
    assert notices(soon)
    assert not notices(late)
    (wait,) = late.waits
    assert wait.starts >= until
    assert wait.starts < NOON + HOUR, "it is planned with a pause after that"
    other = replace(at_rest, cooling=(Cooling("a", until),))
    assert notices(solve(other, POLICY)) == notices(soon)


class TestAClaimWasCancelled:
    """Nobody is paused for its person on its class for a while, and a reason says until when."""

    UNTIL = NOON + 900
    LIMITS = (a_limit("a", 4), a_limit("b", 4))
    HELD = tuple(row for n in range(8) for row in runs(f"a{n}", n))

    def plan(self, rest: Cooling | None, claim: Request | None = None) -> Plan:
        one = replace(claim or asks("claim"), owner="mia")
        base = site(one, held=self.HELD, limits=self.LIMITS)
        return solve(replace(base, cooling=(rest,) if rest else ()), POLICY)

    def test_its_person_waits_on_its_class_and_reads_why(self) -> None:
        plan = self.plan(Cooling("b", self.UNTIL, "mia", "h100"))
        assert not notices(plan)
        (wait,) = plan.waits
        assert wait.starts >= self.UNTIL
        (why,) = [each for each in wait.reasons if each.rule == "R166"]
        assert (why.code, why.frees_at) == ("claims_rest", self.UNTIL)
        assert why.facts == {"gpu_class": "h100"}

    @pytest.mark.parametrize(
        ("owner", "gpu_class"), [("tom", "h100"), ("mia", "l40s"), ("tom", ""), ("", "l40s")]
    )
    def test_others_and_other_classes_do_not(self, owner: str, gpu_class: str) -> None:
        plan = self.plan(Cooling("b", self.UNTIL, owner, gpu_class))
        assert notices(plan) == notices(self.plan(None)) != {}

    def test_who_may_pause_nobody_reads_nothing_of_it(self) -> None:
        plan = self.plan(Cooling("b", self.UNTIL, "mia", "h100"), asks("claim", tier="spot"))
        assert "R166" not in {why.rule for wait in plan.waits for why in wait.reasons}

    def test_a_start_for_which_somebody_was_to_be_paused_says_why_it_is_later(self) -> None:
        kept = PlannedStart(NOON + 750, NOON + 750 + HOUR, (whole("n1-1"),), "guaranteed")
        claim = replace(asks("claim"), planned=kept, duration=HOUR)
        plan = self.plan(Cooling("b", self.UNTIL, "mia", "h100"), claim)
        (wait,) = plan.waits
        assert wait.starts >= self.UNTIL
        assert wait.delayed_by is not None
        assert wait.delayed_by.rule == "R166"


class TestSpotBehindWorkThatCounts:
    """Limits ignore spot for work that counts, so its planned starts must give way."""

    LIMITS = (a_limit("a", 0, borrow=1), *sure(c=1, d=3))
    HELD = tuple(row for number in range(3) for row in runs(f"d{number}", number, tenant="d", hours=1))

    def plan(self, *more: Request, changes: tuple[Change, ...] = ()) -> Plan:
        """`f0` was planned at the second hour and comes to the first, which is free now. A newcomer
        goes before it, so it is made earlier last."""
        kept = PlannedStart(NOON + 2 * HOUR, NOON + 6 * HOUR, (whole("n1-1"),), "expected")
        counted = replace(asks("f0", tenant="a", tier="flex"), planned=kept)
        ahead = asks("c0", tenant="c", hours=5)
        held = tuple(replace(row, tier="std") for row in self.HELD)
        base = site(counted, ahead, *more, held=held, limits=self.LIMITS, fleet=3)
        return solve(replace(base, changes=changes), POLICY)

    def test_a_new_one_starts_after_a_start_that_is_made_earlier_in_the_same_cycle(self) -> None:
        plan = self.plan(asks("e0", tenant="a", tier="spot", hours=1))
        found = given(plan)
        assert (found["c0"], found["f0"]) == (("wait", HOUR), ("wait", HOUR))
        assert found["e0"] == ("wait", 5 * HOUR)

    def test_a_change_is_granted_next_to_what_is_ahead_of_it(self) -> None:
        kept = PlannedStart(NOON + 6 * HOUR, NOON + 7 * HOUR, (whole("n1-1"),), "expected")
        now = replace(asks("e0", tenant="a", tier="flex", hours=1, at=30), planned=kept)
        spot = asks("change of e0", tenant="a", tier="spot", hours=1, at=30)
        target = replace(spot, earliest=NOON)
        plan = self.plan(now, changes=(Change("e0", target),))
        assert [each.granted for each in plan.changes] == [True]
        assert given(plan)["e0"] == ("wait", 5 * HOUR)
