"""Which bookings are paused for which, when, and why."""

from dataclasses import replace

import pytest

from solver import Extension, Place, PlannedStart, Policy, Request, Snapshot, solve
from solver.model.policy import VICTIM_RULES
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, an_ask, gpus, whole
from tests.solver.pausing import (
    GRACE,
    TIERS,
    a_claim,
    a_site,
    given,
    later,
    notices,
    rules,
    running,
)

LENDER = (a_limit("lab", 4, borrow=0), a_limit("firm", 0, borrow=None))
FOUR = tuple(whole(f"n1-{n}") for n in range(4))


def lent(*requests, now: int = 0, **more) -> Snapshot:  # type: ignore[no-untyped-def]  # as a_claim
    """Four GPUs guaranteed to lab, all of them borrowed by two bookings of firm."""
    held = (*running("old", *FOUR[:2], since=-2 * HOUR), *running("young", *FOUR[2:]))
    more = {"held": held, "fleet": gpus(4), "limits": LENDER, **more}
    return a_site(*requests, now=now, **more)


class TestAcrossTenants:
    def test_who_is_guaranteed_it_takes_back_what_is_borrowed_after_the_notice(self) -> None:
        plan = solve(lent(a_claim(count=2)), POLICY)
        assert notices(plan) == {"young": ("claim", GRACE)}
        assert rules(plan) == {"young": "taken_back"}
        assert given(plan) == {"claim": ("wait", GRACE)}
        assert {place.gpu for place in plan.waits[0].places} == {"n1-2", "n1-3"}
        (why, *_) = plan.waits[0].reasons
        assert (why.code, dict(why.numbers), why.frees_at) == (
            "makes_room",
            {"pauses": 1},
            NOON + GRACE,
        )

    def test_nobody_is_paused_by_a_rule_that_the_policy_leaves_out(self) -> None:
        without = tuple(rule for rule in VICTIM_RULES if rule != "taken_back")
        plan = solve(lent(a_claim(count=2)), replace(POLICY, victim_rules=without))
        assert (notices(plan), given(plan)) == ({}, {"claim": ("wait", 6 * HOUR)})
        only = replace(POLICY, victim_rules=("taken_back",))
        assert rules(solve(lent(a_claim(count=2)), only)) == {"young": "taken_back"}

    def test_no_name_of_another_tenant_is_in_a_reason(self) -> None:
        (pause,) = solve(lent(a_claim(count=2)), POLICY).pauses
        assert dict(pause.reasons[0].numbers) == {"lost": 2 * HOUR, "tier": "standard"}
        assert pause.lost == 2 * HOUR

    def test_what_would_lie_inside_a_guarantee_once_the_others_have_left_stays(self) -> None:
        """Firm has a large booking that is partly inside its guarantee, and a small one after it:
        both borrow, but without the large one the small one does not."""
        held = (
            *running("large", *FOUR[:2], since=-2 * HOUR),
            *running("small", FOUR[2]),
            *running("other", FOUR[3], tenant="inst", tier="standard"),
        )
        for sure, leave in ((0, ["large", "small"]), (1, [])):
            limits = (a_limit("lab", 3, borrow=0), a_limit("firm", sure, borrow=None))
            plan = solve(lent(a_claim(count=3), held=held, limits=limits), POLICY)
            assert sorted(notices(plan)) == leave

    def test_what_lies_inside_a_guarantee_is_never_paused_by_another_tenant(self) -> None:
        limits = (a_limit("lab", 2, borrow=0), a_limit("firm", 2, borrow=None))
        plan = solve(lent(a_claim(count=2), limits=limits), POLICY)
        assert notices(plan) == {"young": ("claim", GRACE)}, "the guarantee goes to the older"
        plan = solve(lent(a_claim(count=4), limits=(a_limit("lab", 4), limits[1])), POLICY)
        assert notices(plan) == {}
        assert given(plan) == {"claim": ("wait", 6 * HOUR)}

    def test_without_a_guarantee_nobody_is_paused(self) -> None:
        limits = (a_limit("lab", 0, borrow=4), a_limit("firm", 4, borrow=None))
        plan = solve(lent(a_claim(tier="flex"), limits=limits), POLICY)
        assert notices(plan) == {}
        assert notices(solve(lent(a_claim(), limits=()), POLICY)) == {}, "no row is no guarantee"

    def test_spot_never_has_anybody_paused(self) -> None:
        assert notices(solve(lent(a_claim(tier="spot")), POLICY)) == {}

    def test_the_most_over_its_share_goes_first_then_the_lower_tier_then_the_last(self) -> None:
        fleet = gpus(8)
        limits = (a_limit("lab", 8), *(a_limit(name, 0, borrow=None) for name in ("firm", "inst")))
        places = [whole(f"n1-{n}") for n in range(8)]
        held = (
            *running("f1", places[0]),
            *running("f2", *places[1:3], since=-2 * HOUR),
            *running("i1", places[3], tenant="inst", since=-900),
            *running("i2", *places[4:6], tenant="inst"),
            *running("s", *places[6:8], tenant="inst", tier="spot", since=-3 * HOUR),
        )
        site = a_site(a_claim(), held=held, fleet=fleet, limits=limits)
        assert list(notices(solve(site, POLICY))) == ["s"], "of inst, which borrows most"
        no_spot = replace(site, held=tuple(row for row in held if row.booking != "s"))
        busy = (*no_spot.held, *running("x", *places[6:8], tenant="lab", tier="standard"))
        # Both borrow three: the one that loses least, which is who began last.
        assert list(notices(solve(replace(no_spot, held=busy), POLICY))) == ["i1"]

    def test_a_gang_is_paused_whole_and_what_is_left_of_its_room_is_used(self) -> None:
        held = running("gang", *FOUR)
        plan = solve(lent(a_claim(), a_claim("next"), held=held), POLICY)
        assert notices(plan) == {"gang": ("claim", GRACE)}
        assert given(plan) == {"claim": ("wait", GRACE), "next": ("wait", GRACE)}

    def test_the_slice_with_the_cheapest_neighbours_makes_room(self) -> None:
        slices = [Place(f"n1-{n}", "1g.10gb", at, 1) for n in (0, 1) for at in (0, 1)]
        held = (
            *running("a", slices[0], since=-5 * HOUR),
            *running("b", slices[1], since=-5 * HOUR, saved=-60),
            *running("c", slices[2], since=-700),
            *running("d", slices[3], since=-650),
        )
        claim = a_claim(ask=an_ask(1, profile="7g.80gb"))
        plan = solve(lent(claim, held=held, fleet=gpus(2)), POLICY)
        assert sorted(notices(plan)) == ["c", "d"]
        saved = tuple(replace(row, saved=NOON - 10) for row in held[:2]) + held[2:]
        assert sorted(notices(solve(lent(claim, held=saved, fleet=gpus(2)), POLICY))) == ["a", "b"]

    def test_a_gang_that_must_be_together_has_one_node_cleared(self) -> None:
        fleet = gpus(2, node="n1") + gpus(2, node="n2")
        held = (
            *running("a", whole("n1-0"), since=-700),
            *running("b", whole("n1-1"), since=-5 * HOUR),
            *running("c", whole("n2-0"), since=-HOUR),
            *running("d", whole("n2-1"), since=-HOUR),
        )
        ask = an_ask(2, together="node", required=True)
        plan = solve(lent(a_claim(ask=ask), held=held, fleet=fleet), POLICY)
        assert sorted(notices(plan)) == ["c", "d"]

    def test_nobody_is_paused_for_a_start_that_is_there_without(self) -> None:
        site = lent(a_claim(count=2), fleet=gpus(6))
        assert notices(solve(site, POLICY)) == {}
        held = (*running("old", *FOUR[:2], ends=2 * GRACE), *running("young", *FOUR[2:]))
        soon = solve(lent(a_claim(count=2), held=held), POLICY)
        assert notices(soon) == {}, "two minutes more are less than the notice takes"
        assert given(soon) == {"claim": ("wait", 2 * GRACE)}


class TestWithinATenant:
    def test_a_higher_tier_takes_from_a_lower_one_whatever_is_guaranteed(self) -> None:
        held = running("own", *FOUR, tenant="lab")
        plan = solve(lent(a_claim(count=2), held=held), POLICY)
        assert notices(plan) == {"own": ("claim", GRACE)}
        assert rules(plan) == {"own": "higher_tier"}

    def test_equal_tiers_wait_for_each_other(self) -> None:
        held = running("own", *FOUR, tenant="lab")
        assert notices(solve(lent(a_claim(tier="flex"), held=held), POLICY)) == {}

    def test_borrowers_are_taken_before_the_own_lower_tier(self) -> None:
        limits = (a_limit("lab", 4, borrow=None), LENDER[1])
        held = (*running("own", *FOUR[:2], tenant="lab"), *running("theirs", *FOUR[2:]))
        plan = solve(lent(a_claim(), held=held, limits=limits), POLICY)
        assert rules(plan) == {"theirs": "taken_back"}

    def test_a_lower_tier_leaves_for_quota_where_gpus_are_free(self) -> None:
        held = running("own", *FOUR, tenant="lab")
        plan = solve(lent(a_claim(count=2), held=held, fleet=gpus(8)), POLICY)
        assert notices(plan) == {"own": ("claim", GRACE)}
        assert given(plan) == {"claim": ("wait", GRACE)}


class TestBetweenBorrowers:
    limits = (
        a_limit("lab", 0, borrow=None),
        a_limit("firm", 0, borrow=None),
        a_limit("owner", 8, borrow=0),
    )

    def site(self, *requests) -> Snapshot:  # type: ignore[no-untyped-def]  # as a_site
        held = tuple(row for n in range(4) for row in running(f"f{n}", FOUR[n]))
        return a_site(*requests, held=held, fleet=gpus(4), limits=self.limits)

    def test_who_borrows_less_takes_from_who_borrows_more_until_both_are_even(self) -> None:
        asks = tuple(a_claim(f"c{n}", tier="flex") for n in range(4))
        plan = solve(self.site(*asks), POLICY)
        assert len(plan.pauses) == 2
        assert set(rules(plan).values()) == {"fairer_share"}

    def test_no_gang_is_paused_for_a_part_of_its_room(self) -> None:
        held = running("gang", *FOUR)
        site = replace(self.site(a_claim(tier="flex")), held=held)
        assert notices(solve(site, POLICY)) == {}
        assert notices(solve(replace(site, limits=LENDER), POLICY)) == {"gang": ("claim", GRACE)}

    def test_a_gang_that_would_then_be_over_is_not_let_in(self) -> None:
        assert notices(solve(self.site(a_claim(count=4, tier="flex")), POLICY)) == {}


class TestWhoIsLeftAlone:
    @pytest.mark.parametrize(
        "change",
        [
            {"pausing": True, "ends": NOON + 2 * HOUR},
            {"pauses": 3},
            {"since": None},
            {"since": NOON - 599},
            {"since": NOON - 1_799, "pauses": 1},
            {"tier": "standard"},
            {"tier": "unheard of"},
            {"ends": NOON + GRACE},
        ],
    )
    def test_told_too_often_not_yet_there_protected_or_about_to_end(self, change: dict[str, object]) -> None:
        site = lent(a_claim(count=4), held=running("all", *FOUR))
        assert notices(solve(site, POLICY)) == {"all": ("claim", GRACE)}
        held = tuple(replace(row, **change) for row in site.held)  # type: ignore[arg-type]  # fields of Held
        assert notices(solve(replace(site, held=held), POLICY)) == {}

    def test_protection_ends(self) -> None:
        for since, pauses in ((-600, 0), (-1_800, 1)):
            held = running("all", *FOUR, since=since, pauses=pauses)
            assert notices(solve(lent(a_claim(), held=held), POLICY)) == {"all": ("claim", GRACE)}

    def test_who_is_only_planned_is_not_moved(self) -> None:
        planned = tuple(
            replace(row, started=False, since=None, starts=NOON + 10) for row in running("all", *FOUR)
        )
        assert notices(solve(lent(a_claim(), held=planned), POLICY)) == {}

    def test_what_is_being_paused_or_needed_is_not_extended(self) -> None:
        request = Extension("young", NOON + 7 * HOUR)
        base = lent(extensions=(request,))
        assert solve(base, POLICY).extensions[0].granted
        leaving = tuple(replace(row, pausing=True) for row in base.held)
        (refused,) = solve(replace(base, held=leaving), POLICY).extensions
        assert [why.code for why in refused.reasons] == ["room_promised"]
        planned = PlannedStart(NOON + HOUR, NOON + 2 * HOUR, FOUR[2:], strength="guaranteed")
        claim = a_claim(count=2, earliest=HOUR, planned=planned)
        plan = solve(replace(base, requests=(claim,)), POLICY)
        assert [why.code for why in plan.extensions[0].reasons] == ["room_promised"]

    def test_who_has_just_been_given_more_time_is_not_paused_in_the_same_plan(self) -> None:
        request = Extension("all", NOON + 7 * HOUR)
        plan = solve(lent(a_claim(), held=running("all", *FOUR), extensions=(request,)), POLICY)
        assert plan.extensions[0].granted
        assert notices(plan) == {}


class TestControls:
    """Each guard taken out once: what it keeps away appears."""

    def test_without_the_cool_down_one_is_paused_again_at_once(self) -> None:
        held = running("all", *FOUR, since=-700, pauses=1)
        site = lent(a_claim(), held=held)
        assert notices(solve(site, POLICY)) == {}
        assert notices(solve(site, replace(POLICY, cool_down=1))) != {}

    def test_a_margin_of_nothing_would_tell_a_cycle_late(self) -> None:
        site = lent(a_claim(count=2, earliest=2 * HOUR))
        site = later(site, solve(site, POLICY), 2 * HOUR - GRACE - 1)
        assert notices(solve(site, POLICY)) != {}
        assert notices(solve(site, Policy(1, notice_margin=0))) == {}

    def test_tiers_that_are_not_pausable_stay(self) -> None:
        site = lent(a_claim(count=2))
        firm = tuple(replace(tier, pausable=False) for tier in TIERS)
        assert notices(solve(replace(site, tiers=firm), POLICY)) == {}


class TestWorkAndSeries:
    """What repeats, and what takes longer on some classes."""

    FLEET = gpus(4) + gpus(1, "l40s", "l40s", node="n2", domains=None)

    def work(self, h100: int, l40s: int, **more) -> Request:  # type: ignore[no-untyped-def]
        claim = a_claim(ask=an_ask(1, "h100", "l40s"))
        durations = (("h100", h100), ("l40s", l40s))
        return replace(claim, duration=min(h100, l40s), durations=durations, **more)

    def site(self, request: Request) -> Snapshot:
        limits = (*LENDER, a_limit("lab", 1, "l40s"))
        return lent(request, fleet=self.FLEET, limits=limits)

    def test_nobody_is_paused_for_work_that_ends_as_soon_elsewhere(self) -> None:
        plan = solve(self.site(self.work(HOUR, HOUR + GRACE)), POLICY)
        assert notices(plan) == {}
        assert plan.assigns[0].gpu_class == "l40s"

    def test_work_has_somebody_paused_where_it_ends_sooner_by_more_than_the_notice(self) -> None:
        plan = solve(self.site(self.work(HOUR, 6 * HOUR)), POLICY)
        assert notices(plan) == {"young": ("claim", GRACE)}
        assert plan.waits[0].ends == NOON + GRACE + HOUR

    def test_nobody_is_paused_where_the_cheapest_class_meets_the_deadline(self) -> None:
        work = self.work(HOUR, 6 * HOUR, cheapest=True, latest=NOON + 7 * HOUR)
        work = replace(work, ask=an_ask(1, "l40s", "h100"))
        plan = solve(self.site(work), POLICY)
        assert notices(plan) == {}
        assert plan.assigns[0].gpu_class == "l40s"
        late = replace(work, latest=NOON + 2 * HOUR)
        assert notices(solve(self.site(late), POLICY)) == {"young": ("claim", GRACE)}

    def dates(self, *hours: int) -> list[Request]:
        return [
            replace(
                a_claim(f"d{hour}", count=2, fixed=True, earliest=hour * HOUR),
                series="s",
            )
            for hour in hours
        ]

    def test_a_series_has_others_paused_like_any_claim(self) -> None:
        plan = solve(lent(*self.dates(1, 30)), POLICY)
        assert given(plan).keys() >= {"d1", "d30"}
        assert plan.refusals == ()

    def test_nobody_is_told_to_leave_for_a_series_that_is_refused(self) -> None:
        near = self.dates(0, 30)
        assert notices(solve(lent(*near), POLICY)) != {}, "by itself it would"
        blocked = [*near, replace(self.dates(50)[0], ask=an_ask(5))]
        plan = solve(lent(*blocked), POLICY)
        assert len(plan.refusals) == 3
        assert (notices(plan), plan.assigns) == ({}, ())
